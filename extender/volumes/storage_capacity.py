"""Storage that CSI drivers can still provision (KEP-1472). Source: upstream volumeBinder.hasEnoughCapacity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from extender.framework.rules import Scores
from extender.model.quantity import units
from extender.model.volumes.storage import CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from extender.table import Table
from extender.table.journal import TOPOLOGY, Cursor
from extender.volumes.accessibility import Accessibility, Picked, accessibility_by_label_selector

_UNKNOWN = -1


class StoragePools:
    """The CSIStorageCapacity objects of one storage class. `bytes`: int64[pool]: the capacity left in each."""

    def __init__(self, capacities: Sequence[CSIStorageCapacity], table: Table) -> None:
        accessible = [capacity for capacity in capacities if capacity.node_topology is not None]
        self.bytes: Scores = np.array([units(capacity.capacity) for capacity in accessible], np.int64)
        self._largest: Scores = np.array([_largest_volume_bytes(capacity) for capacity in accessible], np.int64)
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


def _largest_volume_bytes(capacity: CSIStorageCapacity) -> int:
    return _UNKNOWN if capacity.volume_limit is None else units(capacity.volume_limit)
