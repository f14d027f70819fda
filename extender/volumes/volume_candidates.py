"""Finds the volumes that a claim may be bound to, and the capacity that CSI drivers report (KEP-1472).

Source: component-helpers volume.FindMatchingVolume, upstream volumeBinder.hasEnoughCapacity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from extender.framework.rules import Scores
from extender.model.quantity import Quantity, nano, units
from extender.model.selectors import compile_selector
from extender.model.storage import (
    FILESYSTEM,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.table import Table
from extender.table.journal import FREE_VOLUMES, TOPOLOGY, Cursor
from extender.table.labels import BoolColumn
from extender.table.volume_usage import UnboundVolume, VolumeTraits
from extender.volumes.accessibility import (
    Accessibility,
    Picked,
    accessibility_by_label_selector,
    accessibility_by_node_selector,
)

_UNKNOWN = -1


class FreeVolumes:
    """The volumes of a storage class that have no claimRef, smallest first.

    Attributes:
        bytes: int64[volume]: the size of each volume.
        access: which nodes can access each volume.
    """

    def __init__(self, class_name: str, table: Table) -> None:
        self.volumes = sorted(table.storage.unbound.free(class_name), key=lambda volume: volume.nanos)
        self.bytes: Scores = np.array([volume.size_bytes for volume in self.volumes], np.int64)
        selectors = [(volume.selector_key, volume.volume.node_selector) for volume in self.volumes]
        self.access: Accessibility = accessibility_by_node_selector(selectors, table)
        self._nanos = [volume.nanos for volume in self.volumes]
        index: dict[VolumeTraits, int] = {}
        self._traits_id = np.array([index.setdefault(v.traits, len(index)) for v in self.volumes], np.intp)
        self._traits = list(index)

    def suitable(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Returns which volumes the claim could be bound to, regardless of the node: bool[volume]."""
        suitable: BoolColumn = np.array([_suits(traits, claim) for traits in self._traits], np.bool_)[self._traits_id]
        suitable[: bisect_left(self._nanos, claim.requested_nanos)] = False
        if claim.spec.selector is not None:
            selector = compile_selector(claim.spec.selector)
            for index in np.flatnonzero(suitable):
                suitable[index] = selector.matches(self.volumes[index].volume.labels)
        return suitable


class _FreeVolumesByClass:
    """The free volumes of each storage class, cached until a volume of the class or a node changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._nodes = Cursor(table.journal, TOPOLOGY)
        self._volumes = Cursor(table.journal, FREE_VOLUMES)
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
    """Returns the volume whose claimRef names the claim; None if there is no such volume, or it does not fit."""
    reserved = table.storage.unbound.reserved(claim.key)
    return next((volume for volume in reserved if _is_for(volume, claim)), None)


def _is_for(volume: UnboundVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.volume.is_bound_to(claim)
        and volume.volume.class_name == claim.class_name
        and volume.nanos >= claim.requested_nanos
        and _same_form(volume.traits, claim)
        and not volume.volume.terminating
    )


def _suits(traits: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    has_modes = traits.access_modes.issuperset(claim.spec.access_modes or ())
    return traits.available and _same_form(traits, claim) and has_modes


def _same_form(traits: VolumeTraits, claim: PersistentVolumeClaim) -> bool:
    form = claim.spec.volume_mode or FILESYSTEM, claim.spec.volume_attributes_class_name or ""
    return (traits.volume_mode, traits.attributes_class) == form


class StoragePools:
    """The storage pools (CSIStorageCapacity objects) of a storage class.

    Attributes:
        bytes: int64[pool]: the capacity of each pool.
    """

    def __init__(self, capacities: Sequence[CSIStorageCapacity], table: Table) -> None:
        accessible = [capacity for capacity in capacities if capacity.node_topology is not None]
        self.bytes: Scores = np.array([units(capacity.capacity) for capacity in accessible], np.int64)
        limits = [capacity.volume_limit for capacity in accessible]
        self._limits = limits
        self._is_exact = table.features.behaviours.exact_storage_capacity
        self._largest: Scores = np.array([_UNKNOWN if limit is None else units(limit) for limit in limits], np.int64)
        selectors = [capacity.node_topology for capacity in accessible if capacity.node_topology is not None]
        self._access: Accessibility = accessibility_by_label_selector(selectors, table)

    def pick(self, size: Quantity, nodes: int) -> Picked:
        """Returns, for each row, a pool that the node can access and that has room for a volume of this size.

        The result is intp[nodes]: the index of the pool, or NONE.
        """
        size_bytes = units(size)
        fits = self._largest >= size_bytes
        if self._is_exact:  # rounded up, or capped, the two may be equal although the volume is larger
            for pool in np.flatnonzero(self._largest == size_bytes).tolist():
                fits[pool] = nano(self._limits[pool]) >= nano(size)
        return self._access.pick(fits, (), nodes)


def pools_for(claim: PersistentVolumeClaim, storage_class: StorageClass, table: Table) -> StoragePools | None:
    """Returns the storage pools for the claim's volume; None if free space does not matter.

    Free space does not matter if the driver does not report capacity, or if the claim requests no size.
    """
    driver = table.objects.get(CSIDriver, storage_class.provisioner)
    if claim.requested_storage is None or driver is None or not driver.spec.storage_capacity:
        return None
    return table.reader(_PoolsByClass).of(storage_class.name)


class _PoolsByClass:
    """The storage pools of each storage class, cached until a capacity or a node changes."""

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
