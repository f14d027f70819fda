"""The volumes that claims may be bound to, and the storage that CSI drivers can still provision (KEP-1472).

Source: component-helpers volume.FindMatchingVolume, upstream volumeBinder.hasEnoughCapacity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from extender.framework.rules import Scores
from extender.model.quantity import units
from extender.model.selectors import compile_selector
from extender.model.volumes.storage import (
    FILESYSTEM,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.table import Table
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor
from extender.table.labels import BoolColumn
from extender.table.volumes.storage import UnboundVolume, VolumeTraits
from extender.volumes.accessibility import (
    Accessibility,
    Picked,
    accessibility_by_label_selector,
    accessibility_by_node_selector,
)

_UNKNOWN = -1


class FreeVolumes:
    """The free volumes of a class, the smallest first.

    Attributes:
        bytes: int64[volume]: their sizes.
        access: the nodes that can access them.
    """

    def __init__(self, class_name: str, table: Table) -> None:
        self.volumes = sorted(table.storage.unbound.free(class_name), key=lambda each: each.nanos)
        self.bytes: Scores = np.array([each.size_bytes for each in self.volumes], np.int64)
        selectors = [(each.selector_key, each.volume.node_selector) for each in self.volumes]
        self.access: Accessibility = accessibility_by_node_selector(selectors, table)
        self._nanos = [each.nanos for each in self.volumes]
        index: dict[VolumeTraits, int] = {}
        self._kind = np.array([index.setdefault(each.traits, len(index)) for each in self.volumes], np.intp)
        self._kinds = list(index)

    def suitable(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Tells the volumes that the claim could be bound to, wherever they are: bool[volume]."""
        suitable: BoolColumn = np.array([_suits(kind, claim) for kind in self._kinds], np.bool_)[self._kind]
        suitable[: bisect_left(self._nanos, claim.requested_nanos)] = False
        if claim.spec.selector is not None:
            selector = compile_selector(claim.spec.selector)
            for index in np.flatnonzero(suitable):
                suitable[index] = selector.matches(self.volumes[index].volume.labels)
        return suitable


class _FreeVolumesByClass:
    """The free volumes of each class, kept until one of them, or a node, changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._nodes, self._volumes = Cursor(table.journal, TOPOLOGY), Cursor(table.journal, FREE_VOLUMES)
        self._by_class: dict[str, FreeVolumes] = {}

    def of(self, class_name: str) -> FreeVolumes:
        changed = self._volumes.read()
        if self._nodes.advance() or changed is None:
            self._by_class.clear()
        for name in changed or ():
            self._by_class.pop(name, None)
        if class_name not in self._by_class:
            self._by_class[class_name] = FreeVolumes(class_name, self._table)
        return self._by_class[class_name]


def free_volumes(class_name: str, table: Table) -> FreeVolumes:
    return table.reader(_FreeVolumesByClass).of(class_name)


def reserved_volume(claim: PersistentVolumeClaim, table: Table) -> UnboundVolume | None:
    """The volume whose claimRef names the claim, if there is one; then it is that one or none."""
    return next((each for each in table.storage.unbound.reserved(claim.key) if _is_for(each, claim)), None)


def _is_for(each: UnboundVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        each.volume.is_bound_to(claim)
        and each.volume.class_name == claim.class_name
        and each.nanos >= claim.requested_nanos
        and _same_form(each.traits, claim)
        and not each.volume.terminating
    )


def _suits(kind: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    return kind.available and _same_form(kind, claim) and kind.access_modes.issuperset(claim.spec.access_modes or ())


def _same_form(kind: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    wanted = claim.spec.volume_mode or FILESYSTEM, claim.spec.volume_attributes_class_name or ""
    return (kind.volume_mode, kind.attributes_class) == wanted


class StoragePools:
    """The CSIStorageCapacity objects of one storage class. `bytes`: int64[pool]: the capacity left in each."""

    def __init__(self, capacities: Sequence[CSIStorageCapacity], table: Table) -> None:
        accessible = [capacity for capacity in capacities if capacity.node_topology is not None]
        self.bytes: Scores = np.array([units(capacity.capacity) for capacity in accessible], np.int64)
        self._largest: Scores = np.array(
            [_UNKNOWN if each.volume_limit is None else units(each.volume_limit) for each in accessible], np.int64
        )
        selectors = [capacity.node_topology for capacity in accessible if capacity.node_topology is not None]
        self._access: Accessibility = accessibility_by_label_selector(selectors, table)

    def pick(self, size_bytes: int, nodes: int) -> Picked:
        """A pool that each row can access with room for a volume of the size: intp[nodes], NONE without one."""
        return self._access.pick(self._largest >= size_bytes, (), nodes)


def pools_for(claim: PersistentVolumeClaim, storage_class: StorageClass, table: Table) -> StoragePools | None:
    """The pools for the claim's volume; None: its driver publishes none, or the claim requests no size."""
    driver = table.objects.get(CSIDriver, storage_class.provisioner)
    if claim.requested_storage is None or driver is None or not driver.spec.storage_capacity:
        return None
    return table.reader(_PoolsByClass).of(storage_class.name)


class _PoolsByClass:
    """The pools, kept until a capacity or a node changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes = Cursor(table.journal, CSIStorageCapacity.__name__, TOPOLOGY)
        self._by_class: dict[str, StoragePools] = {}

    def of(self, class_name: str) -> StoragePools:
        if self._changes.advance():
            self._by_class = self._pools()
        return self._by_class.get(class_name) or StoragePools((), self._table)

    def _pools(self) -> dict[str, StoragePools]:
        by_class: defaultdict[str, list[CSIStorageCapacity]] = defaultdict(list)
        for capacity in self._table.objects.all(CSIStorageCapacity).values():
            by_class[capacity.storage_class_name].append(capacity)
        return {name: StoragePools(capacities, self._table) for name, capacities in by_class.items()}
