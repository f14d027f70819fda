"""Counts the devices, and the allocated devices, of a class on each node.

Source: upstream noderesources calculateDRAResourceTotals. There are two differences from the allocator: devices in
slices of all generations count, and a selector reads `allowMultipleAllocations` as false for every device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from extender.devices.cel.device_selectors import SelectorError, matches
from extender.devices.device import PoolDevice, PoolID
from extender.devices.inventory.allocated import AllocatedState
from extender.devices.inventory.pools import Pool
from extender.framework.node_selectors import nodes_in_selector
from extender.model.devices import Device, DeviceClass, ResourceSliceSpec
from extender.table import Table
from extender.table.journal import Cursor
from extender.table.labels import IntColumn, Rows

Expressions = tuple[str, ...]
POOLS = "device pools"
"""A topic of the table's journal. Its keys are pools whose slices, or whose allocated devices, have changed."""
_COUNTED, _TAKEN, _FAULTS = range(3)


def expressions_of(device_class: DeviceClass) -> Expressions:
    """Returns the CEL expressions that must all be true for a device of the class."""
    return tuple(selector.cel.expression for selector in device_class.spec.selectors or () if selector.cel is not None)


class _Count(NamedTuple):
    """The contribution of some devices of a pool to the totals of `rows`, the nodes that can access the devices.

    Attributes:
        counted: the number of devices of the class.
        taken: the number of these devices that are allocated.
        faults: the number of devices for which a selector fails with an error.
    """

    rows: Rows
    counted: int
    taken: int
    faults: int


class ClassTotals:
    """The numbers of devices of one class on each node. If a pool changes, only its devices are counted again."""

    def __init__(self, expressions: Expressions, table: Table, allocated: AllocatedState) -> None:
        self._expressions = expressions
        self._table = table
        self._allocated = allocated
        self._changed_pools = Cursor(table.journal, POOLS)
        self._counts: dict[PoolID, list[_Count]] = {}
        self._columns = np.zeros((3, table.nodes.capacity), np.int64)

    def refresh(self, pools: Mapping[PoolID, Pool]) -> None:
        """Updates the totals for the pools that have changed."""
        changed = self._changed_pools.read()
        for pool_id in (*self._counts, *pools) if changed is None else changed:
            self.replace(pool_id, pools.get(pool_id))

    def replace(self, pool_id: PoolID, pool: Pool | None) -> None:
        """Counts the pool again in the totals; `pool` is None if the pool no longer exists."""
        missing = self._table.nodes.capacity - self._columns.shape[1]
        if missing > 0:
            self._columns = np.pad(self._columns, ((0, 0), (0, missing)))
        self._add(self._counts.pop(pool_id, ()), -1)
        counts = list(self._counts_of(pool)) if pool is not None else []
        if counts:
            self._counts[pool_id] = counts
            self._add(counts, 1)

    def at(self, rows: Rows) -> tuple[IntColumn, IntColumn]:
        """Returns the numbers of devices and of allocated devices for each row: int64[len(rows)] each.

        Both are 0 if a selector fails with an error for any device of the row.
        """
        width = self._columns.shape[1]
        columns = np.where(rows < width, self._columns[:, np.minimum(rows, width - 1)], 0)
        is_certain = columns[_FAULTS] == 0
        return np.where(is_certain, columns[_COUNTED], 0), np.where(is_certain, columns[_TAKEN], 0)

    def _add(self, counts: Iterable[_Count], sign: int) -> None:
        for count in counts:
            self._columns[:, count.rows] += sign * np.array([[count.counted], [count.taken], [count.faults]])

    def _counts_of(self, pool: Pool) -> Iterator[_Count]:
        for index, slice_ in enumerate(pool.slices):
            if slice_.spec.per_device_node_selection:
                for device in pool.devices(index):
                    yield from self._count(device.spec, [device])
            else:
                yield from self._count(slice_.spec, pool.devices(index))

    def _count(self, selecting: ResourceSliceSpec | Device, devices: Sequence[PoolDevice]) -> Iterator[_Count]:
        """Yields one `_Count` for these devices, or nothing if all its numbers would be 0.

        `selecting`: the slice of these devices, or the only device; its fields say which nodes can access the devices.
        """
        counted = taken = faults = 0
        for device in devices:
            try:
                if self._is_of_class(device):
                    counted += 1
                    taken += self._allocated.holds(device.id)
            except SelectorError:
                faults += 1
        if counted or faults:
            yield _Count(self._rows(selecting), counted, taken, faults)

    def _is_of_class(self, device: PoolDevice) -> bool:
        if self._expressions and device.shareable:
            unshared = msgspec.structs.replace(device.spec, allow_multiple_allocations=None)
            device = PoolDevice(unshared, device.slice, device.taints)
        return all(matches(expression, device) for expression in self._expressions)

    def _rows(self, selecting: ResourceSliceSpec | Device) -> Rows:
        nodes = self._table.nodes
        if selecting.all_nodes:
            return nodes.rows
        if selecting.node_name:
            row = nodes.row_of.get(selecting.node_name)
            return np.array([] if row is None else [row], np.intp)
        if selecting.node_selector is not None:
            return nodes.rows[nodes_in_selector(selecting.node_selector, self._table, nodes.rows)]
        # As in upstream, a slice that selects no nodes counts on all nodes, although the allocator ignores it.
        return nodes.rows if isinstance(selecting, ResourceSliceSpec) else nodes.rows[:0]
