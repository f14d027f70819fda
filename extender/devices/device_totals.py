"""Counts the devices of a class on each node, and tracks those that are allocated to claims.

Source: upstream noderesources calculateDRAResourceTotals, claimTracker. The totals differ from the allocator in two
points: devices in slices of all generations count, and a selector reads `allowMultipleAllocations` as false for every
device.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from extender.devices.cel.device_selectors import SelectorError, matches
from extender.devices.device_nodes import MOST_DEVICES
from extender.devices.inventory import Amounts, DeviceID, Pool, PoolDevice, PoolID, qualified
from extender.framework.node_selectors import nodes_in_selector
from extender.model.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    PendingClaim,
    ResourceClaim,
    ResourceSliceSpec,
)
from extender.model.quantity import nano
from extender.table import Table
from extender.table.filing import adjust, drop_empty
from extender.table.journal import Cursor
from extender.table.labels import IntColumn, Rows

_NOTHING: Amounts = {}
Expressions = tuple[str, ...]
POOLS = "device pools"
"""A topic of the table's journal. Its keys are pools whose slices, or whose allocated devices, have changed."""
_COUNTED, _TAKEN, _FAULTS = range(3)


class AllocatedState:
    """The devices that are allocated to claims; `refresh` updates them (upstream AllocatedState).

    Attributes:
        devices: the devices that are not shared, with the number of claims that have them.
        shares: the devices that are shared, with the number of shares.
        capacities: for each shared device, the amount of each capacity that claims have taken, in billionths.
        fractional: True if the feature gate DRAFractionalCapacityRange is on.
        behaviours: what no feature gate switches in the version of Kubernetes that the table follows.
        kinds: pool -> how many claims have devices of it, by kind: 0 for a share, else the number of devices.
        for_extended_resources: pod UID -> the keys of the claims that the scheduler created for the pod's extended
            resources.
    """

    def __init__(self, table: Table) -> None:
        self._objects = table.objects
        self.fractional = table.features.dra_fractional_capacity_range
        self.behaviours = table.features.behaviours
        self._negative: dict[str, str] = {}  # key of a claim -> the share with a negative amount, as a text
        self._changed_claims = Cursor(table.journal, ResourceClaim.__name__, PendingClaim.__name__)
        self._held: dict[str, tuple[DeviceRequestAllocationResult, ...]] = {}
        self._owners: dict[str, str] = {}
        self.devices: Counter[DeviceID] = Counter()
        self.shares: Counter[DeviceID] = Counter()
        self.capacities: dict[DeviceID, Counter[str]] = {}
        self.kinds: defaultdict[PoolID, Counter[int]] = defaultdict(Counter)
        self.for_extended_resources: defaultdict[str, list[str]] = defaultdict(list)

    def holds(self, device: DeviceID) -> bool:
        """Returns True if any claim has the device or a share of it (upstream IsDeviceAllocated)."""
        return device in self.devices or device in self.shares

    def capacity(self, device: DeviceID) -> Amounts:
        """Returns, for each capacity of the shared device, the amount that claims have taken, in billionths."""
        return self.capacities.get(device, _NOTHING)

    def capacity_key(self, device: DeviceID, name: str) -> str:
        """Returns the key in `capacity` of a capacity with this name in a claim or slice."""
        return qualified(name, device.driver) if self.behaviours.capacities_have_domains else name

    @property
    def fault(self) -> str:
        """The error because of which no claim can be allocated; "" if there is none."""
        if not self._negative or not self.behaviours.negative_consumption_fails:
            return ""
        key = min(self._negative)
        more = len(self._negative) - 1
        others = f" (and {more} more claims with invalid consumed capacity)" if more else ""
        return f"claim {key}, {self._negative[key]}{others}"

    def refresh(self) -> set[PoolID]:
        """Updates the allocated devices after changes of claims; returns the pools of these devices."""
        keys = self._changed_claims.read()
        if keys is None:
            objects = self._objects
            keys = [*objects.all(ResourceClaim), *objects.all(PendingClaim), *self._held, *self._owners]
        return {pool for key in set(keys) for pool in self._replace(key)}

    def _replace(self, key: str) -> Iterator[PoolID]:
        claim, pending = self._objects.get(ResourceClaim, key), self._objects.get(PendingClaim, key)
        self._own(key, claim)
        holder = claim if claim is not None and claim.allocation is not None else pending
        results = holder.allocation.results if holder is not None and holder.allocation is not None else ()
        taken = tuple(result for result in results if not result.admin_access)
        given_up = self._held.pop(key, ())
        if taken:
            self._held[key] = taken
        if taken == given_up:
            return
        self._count(given_up, -1)
        self._count(taken, 1)
        self._negative.pop(key, None)
        if (share := next(_negative_shares(taken), None)) is not None:
            self._negative[key] = share
        yield from {PoolID(result.driver, result.pool) for result in (*given_up, *taken)}

    def _count(self, results: Sequence[DeviceRequestAllocationResult], sign: int) -> None:
        if results:
            kind = len(results) if results[0].share_id is None else 0
            self.kinds[PoolID(results[0].driver, results[0].pool)][min(kind, MOST_DEVICES)] += sign
        for result in results:
            device = DeviceID(result.driver, result.pool, result.device)
            adjust(self.devices if result.share_id is None else self.shares, device, sign)
            if result.share_id is not None and result.consumed_capacity is not None:
                amounts = self.capacities.setdefault(device, Counter())
                for name, quantity in result.consumed_capacity.items():
                    full = self.capacity_key(device, name)
                    if full == name or full not in result.consumed_capacity:
                        amounts[full] += sign * nano(quantity)
                if not any(amounts.values()) and device not in self.shares:
                    del self.capacities[device]

    def _own(self, key: str, claim: ResourceClaim | None) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            self.for_extended_resources[owner].remove(key)
            drop_empty(self.for_extended_resources, owner)
        if claim is not None and claim.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true":
            controller = claim.controller
            if controller is not None:
                self._owners[key] = controller.uid
                self.for_extended_resources[controller.uid].append(key)


def _negative_shares(results: Iterable[DeviceRequestAllocationResult]) -> Iterator[str]:
    """Yields a text for each negative amount that a result consumes."""
    for result in results:
        for name, quantity in sorted((result.consumed_capacity or {}).items()):
            if nano(quantity) < 0:
                device = DeviceID(result.driver, result.pool, result.device)
                yield f'device {device}: consumed capacity "{name}" must not be negative, got {quantity}'


def expressions_of(device_class: DeviceClass) -> Expressions:
    """Returns the CEL expressions that must all be true for a device of the class."""
    return tuple(selector.cel.expression for selector in device_class.spec.selectors or () if selector.cel is not None)


_Count = tuple[Rows, IntColumn]
"""What some devices of a pool add to the totals of the nodes that can access them: (rows of the nodes, int64[3, 1]).

The numbers are those of the devices of the class (_COUNTED), of those of them that are allocated (_TAKEN), and of the
devices for which a selector fails with an error (_FAULTS).
"""


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
        for rows, numbers in counts:
            self._columns[:, rows] += sign * numbers

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
            yield self._rows(selecting), np.array([[counted], [taken], [faults]])

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
