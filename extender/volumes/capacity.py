"""How much storage CSI drivers can still provision, and on which nodes.

Source: upstream volumeBinder.hasEnoughCapacity (KEP-1472).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from extender.framework.rules import Scores
from extender.model.quantity import units
from extender.model.volumes.storage import CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from extender.table import Table
from extender.table.journal import TOPOLOGY, Cursor
from extender.volumes.reach import Picked, Reach, reach_by_label_selector

_UNKNOWN = -1


class Pools:
    """The pools of one storage class. `bytes`: int64[pool]: what is left in each."""

    def __init__(self, capacities: Sequence[CSIStorageCapacity], table: Table) -> None:
        reached = [capacity for capacity in capacities if capacity.node_topology is not None]
        self.bytes: Scores = np.array([units(capacity.capacity) for capacity in reached], np.int64)
        self._largest: Scores = np.array([_largest_volume_bytes(capacity) for capacity in reached], np.int64)
        selectors = [capacity.node_topology for capacity in reached if capacity.node_topology is not None]
        self._reach: Reach = reach_by_label_selector(selectors, table)

    def pick(self, size_bytes: int, nodes: int) -> Picked:
        """A pool that each row reaches and that has room for a volume of the size: intp[nodes], NONE without one."""
        return self._reach.pick(self._largest >= size_bytes, (), nodes)


def pools_for(claim: PersistentVolumeClaim, storage_class: StorageClass, table: Table) -> Pools | None:
    """Where the claim's volume could be made; None: the driver does not tell, or the claim does not say how much."""
    driver = table.objects.get(CSIDriver, storage_class.provisioner)
    if claim.requested_storage is None or driver is None or not driver.spec.storage_capacity:
        return None
    return table.reader(_PoolsByClass).of(storage_class.name)


class _PoolsByClass:
    """What is kept until a capacity or a node changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes = Cursor(table.journal, CSIStorageCapacity.__name__, TOPOLOGY)
        self._by_class: dict[str, Pools] = {}

    def of(self, class_name: str) -> Pools:
        if self._changes.advance():
            self._by_class = self._pools()
        return self._by_class.get(class_name) or Pools((), self._table)

    def _pools(self) -> dict[str, Pools]:
        by_class: defaultdict[str, list[CSIStorageCapacity]] = defaultdict(list)
        for capacity in self._table.objects.all(CSIStorageCapacity).values():
            by_class[capacity.storage_class_name].append(capacity)
        return {name: Pools(capacities, self._table) for name, capacities in by_class.items()}


def _largest_volume_bytes(capacity: CSIStorageCapacity) -> int:
    return _UNKNOWN if capacity.volume_limit is None else units(capacity.volume_limit)
