"""Stores CSINodes in columns; finds the CSI volumes of claims, inline volumes and VolumeAttachments.

Source: upstream CSILimits.getCSIDriverInfo.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from extender.model.pod_volumes import (
    MIGRATED_PLUGINS,
    UNCOUNTED_PLUGINS,
    Attachable,
    ClaimUse,
    CSIVolume,
    Fault,
    InlineVolume,
    migrated_volume,
)
from extender.model.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from extender.table.journal import TOPOLOGY, Cursor, Journal
from extender.table.labels import BoolColumn, IntColumn
from extender.table.node_columns import NodeColumns
from extender.table.object_index import Objects

ObjectKey = tuple[str, str]  # kind, key
READ_KINDS = (PersistentVolumeClaim.__name__, PersistentVolume.__name__, StorageClass.__name__)
NO_LIMIT = np.iinfo(np.int64).max


class MissingClaim(NamedTuple):
    """Says that a claim of a pod does not exist, so its CSI volume is unknown."""

    use: ClaimUse


class ResolvedVolume(NamedTuple):
    """The CSI volume of a claim, an inline volume or a VolumeAttachment.

    Attributes:
        volume: the volume, or the reason why it is unknown; None if no CSI driver attaches it.
        migrated: True for an in-tree volume; a CSI driver attaches it only if the node has a CSINode.
        read: (kind, key) of each object that the result depends on. Objects that do not exist are included.
    """

    volume: CSIVolume | Fault | MissingClaim | None
    migrated: bool = False
    read: tuple[ObjectKey, ...] = ()


def csi_volume_of(source: Attachable, objects: Objects) -> ResolvedVolume:
    """Returns the CSI volume of a claim or an inline volume."""
    if isinstance(source, InlineVolume):
        return ResolvedVolume(_countable(source.volume), migrated=True)
    read = (("PersistentVolumeClaim", source.key),)
    if not source.name:
        return ResolvedVolume(Fault("PersistentVolumeClaim had no name"), read=read)
    claim = objects.get(PersistentVolumeClaim, source.key)
    if claim is None:
        return ResolvedVolume(MissingClaim(source), read=read)
    if objection := source.objection(claim):
        return ResolvedVolume(Fault(objection), read=read)
    return _of_claim(claim, objects, read)


def attached_volume(attachment: VolumeAttachment, objects: Objects) -> ResolvedVolume:
    """Returns the CSI volume that a VolumeAttachment attaches."""
    name = attachment.spec.source.persistent_volume_name
    if not attachment.spec.attacher or name is None:
        return ResolvedVolume(None)
    read = (("PersistentVolume", name),)
    volume = objects.get(PersistentVolume, name)
    if volume is None or volume.spec.csi is None:
        return ResolvedVolume(None, read=read)
    return ResolvedVolume(CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle), read=read)


def _of_claim(claim: PersistentVolumeClaim, objects: Objects, read: tuple[ObjectKey, ...]) -> ResolvedVolume:
    if claim.spec.volume_name:
        read = (*read, ("PersistentVolume", claim.spec.volume_name))
        volume = objects.get(PersistentVolume, claim.spec.volume_name)
        if volume is not None:
            return _of_volume(volume, read)
    # The claim has no volume: the storage class names the driver that will provision one.
    if not claim.class_name:
        return ResolvedVolume(None, read=read)
    read = (*read, ("StorageClass", claim.class_name))
    storage_class = objects.get(StorageClass, claim.class_name)
    if storage_class is None or storage_class.provisioner in UNCOUNTED_PLUGINS:
        return ResolvedVolume(None, read=read)
    provisioner = storage_class.provisioner
    volume_to_be = CSIVolume(MIGRATED_PLUGINS.get(provisioner, provisioner), f"to be provisioned for {claim.key}")
    return ResolvedVolume(_countable(volume_to_be), provisioner in MIGRATED_PLUGINS, read)


def _of_volume(volume: PersistentVolume, read: tuple[ObjectKey, ...]) -> ResolvedVolume:
    if volume.spec.csi is not None:
        return ResolvedVolume(_countable(CSIVolume(volume.spec.csi.driver, volume.spec.csi.volume_handle)), read=read)
    migrated = migrated_volume(volume.spec, volume.labels)
    return ResolvedVolume(None if isinstance(migrated, Fault) else _countable(migrated), migrated=True, read=read)


def _countable(found: CSIVolume | Fault | None) -> CSIVolume | Fault | None:
    return None if isinstance(found, CSIVolume) and not (found.driver and found.handle) else found


class CSINodes:
    """The data of all CSINodes in columns by node row, updated when they are read."""

    def __init__(self, nodes: NodeColumns, objects: Objects, journal: Journal) -> None:
        self._nodes = nodes
        self._objects = objects
        self._changed_names = Cursor(journal, TOPOLOGY, CSINode.__name__)
        self._known = np.zeros(0, np.bool_)
        self._limited = np.zeros(0, np.bool_)
        self._limits: dict[str, IntColumn] = {}
        self._drivers: dict[str, BoolColumn] = {}
        self._migrated: dict[str, BoolColumn] = {}
        self._row_of: dict[str, int] = {}

    def known(self) -> BoolColumn:
        """Returns bool[row]: True for nodes that have a CSINode."""
        self._refresh()
        return self._known

    def limited(self) -> BoolColumn:
        """Returns bool[row]: True for nodes whose CSINode limits the volumes of any driver."""
        self._refresh()
        return self._limited

    def limit(self, driver: str) -> IntColumn:
        """Returns int64[row]: how many volumes of the driver each node can have; NO_LIMIT if unlimited."""
        self._refresh()
        return self._limits.get(driver, np.full(len(self._known), NO_LIMIT))

    def has_driver(self, driver: str) -> BoolColumn:
        """Returns bool[row]: True for nodes on which the driver is installed."""
        self._refresh()
        return self._drivers.get(driver, np.zeros(len(self._known), np.bool_))

    def migrated(self, plugin: str) -> BoolColumn:
        """Returns bool[row]: True for nodes on which a CSI driver handles the volumes of the in-tree plugin."""
        self._refresh()
        return self._migrated.get(plugin, np.zeros(len(self._known), np.bool_))

    def _refresh(self) -> None:
        if len(self._known) != self._nodes.capacity:
            self._grow(self._nodes.capacity)
        names = self._changed_names.read()
        changed = {*self._row_of, *self._objects.all(CSINode)} if names is None else set(names)
        for name in changed:
            if name in self._row_of:
                self._clear(self._row_of.pop(name))
        for name in changed:
            node, row = self._objects.get(CSINode, name), self._nodes.row_of.get(name)
            if node is not None and row is not None:
                self._write(node, row)

    def _write(self, node: CSINode, row: int) -> None:
        self._row_of[node.name] = row
        self._known[row] = True
        for driver in node.drivers:
            self._flags(self._drivers, driver.name)[row] = True
            if driver.allocatable is not None and driver.allocatable.count is not None:
                self._limited[row] = True
                self._limits_of(driver.name)[row] = driver.allocatable.count
        for plugin in node.migrated_plugins:
            self._flags(self._migrated, plugin)[row] = True

    def _clear(self, row: int) -> None:
        for flags in (self._known, self._limited, *self._drivers.values(), *self._migrated.values()):
            flags[row] = False
        for limits in self._limits.values():
            limits[row] = NO_LIMIT

    def _limits_of(self, driver: str) -> IntColumn:
        if driver not in self._limits:
            self._limits[driver] = np.full(len(self._known), NO_LIMIT)
        return self._limits[driver]

    def _flags(self, columns: dict[str, BoolColumn], key: str) -> BoolColumn:
        if key not in columns:
            columns[key] = np.zeros(len(self._known), np.bool_)
        return columns[key]

    def _grow(self, capacity: int) -> None:
        more = (0, capacity - len(self._known))
        self._known = np.pad(self._known, more)
        self._limited = np.pad(self._limited, more)
        for columns in (self._drivers, self._migrated):
            columns.update({key: np.pad(flags, more) for key, flags in columns.items()})
        self._limits = {key: np.pad(limits, more, constant_values=NO_LIMIT) for key, limits in self._limits.items()}
