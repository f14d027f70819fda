"""Defines devices of ResourceSlices, and finds the inventory of each node: the pools of devices that it can access.

Nodes that can access the same slices of the same pools share one inventory. The number of an inventory stays the same
until one of its pools changes, so a result for one inventory remains valid when others change. Start reading at
`Inventories`, which reads resource slices, taint rules and nodes through the table's journal. `PoolDevice` is a device
as selectors and the allocator use it.

Source of the pools: structured GatherPools, buildPool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from extender.framework.node_selectors import is_well_formed, nodes_in_selector
from extender.model.devices import Device, DeviceTaintRule, ResourceSlice, ResourceSliceSpec
from extender.model.node import Taint
from extender.model.quantity import nano
from extender.table import Table
from extender.table.journal import TOPOLOGY, Cursor
from extender.table.labels import BoolColumn, Rows

PREVENTING_EFFECTS = ("NoSchedule", "NoExecute")

CounterKey = tuple[str, str]  # the names of a counter set and of a counter in it
Amounts = dict[str, int]  # the qualified name of a capacity -> an amount in billionths


def qualified(name: str, domain: str) -> str:
    """Returns the name of a capacity with its domain; without one, it has that of the driver."""
    return name if "/" in name else f"{domain}/{name}"


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolDevice:
    """A device of a ResourceSlice.

    Attributes:
        taints: the taints that keep pods away, from the ResourceSlice and from DeviceTaintRules.
        counters: the amount that the device consumes of each shared counter of its pool, in billionths.
        shareable: True if the device may be allocated to several claims at once (KEP-5075).
        fails_when_read: True if an attribute without a known value is an error only for what reads it; False if it
            makes every selector fail (`Behaviours.attributes_fail_when_read`).
        fault: an error in the attributes that makes every selector fail; "" if there is no error, None if the
            attributes have not been checked.
        amounts: stored by the allocator: `(amounts,)` with the amounts that a request takes if it names no capacity, or
            `(None,)` if the device has too little capacity. None if nothing is stored yet.
    """

    __slots__ = (
        "_verdict_cache", "_verdicts", "amounts", "counters", "fails_when_read", "fault", "id", "shareable", "slice",
        "spec", "taints",
    )  # fmt: skip

    def __init__(
        self, spec: Device, of_slice: ResourceSlice, taints: tuple[Taint, ...], *, fails_when_read: bool = False
    ) -> None:
        self.id = DeviceID(of_slice.spec.driver, of_slice.spec.pool.name, spec.name)
        self.spec = spec
        self.slice = of_slice
        self.taints = taints
        self.shareable = bool(spec.allow_multiple_allocations)
        self.fails_when_read = fails_when_read
        self.fault: str | None = "" if fails_when_read else None
        self._verdicts = bytearray()
        self._verdict_cache: object = None
        self.amounts: tuple[Amounts | None] | None = None
        self.counters: tuple[tuple[CounterKey, int], ...] = tuple(
            ((consumption.counter_set, name), nano(counter.value))
            for consumption in spec.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        )

    def verdicts_of(self, cache: object) -> bytearray:
        """Returns the stored results of CEL selectors for this device: one byte for each selector.

        The index of a byte is the number that `cache` gives to the selector. A device stores results for one cache
        only: a call with another cache deletes them and returns an empty array, which the caller fills.
        """
        if self._verdict_cache is not cache:
            self._verdict_cache = cache
            self._verdicts = bytearray()
        return self._verdicts


NOWHERE: frozenset[DeviceID] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class PoolView:
    """The part of a pool that some nodes can access: nodes with the same accessible slices have the same view.

    Attributes:
        devices: the devices of the accessible slices, in the order in which they are tried.
        unreachable: devices of these slices that the nodes cannot access, because the device selects other nodes.
        elsewhere: the devices of the pool's other slices. These devices may consume the same shared counters.
        counters: the amounts of the shared counters, in billionths.
        incomplete: True if slices of the pool are missing, so nothing may be allocated from it.
        invalid: True if names are not unique or counters are missing, so nothing may be allocated from it.
        binds: True if a device has binding conditions; such pools are tried last.
    """

    id: PoolID
    devices: tuple[PoolDevice, ...] = ()
    unreachable: frozenset[DeviceID] = NOWHERE
    elsewhere: tuple[PoolDevice, ...] = ()
    counters: dict[CounterKey, int] = field(default_factory=dict)
    incomplete: bool = False
    invalid: bool = False
    binds: bool = False


class Pool:
    """The slices of one pool, of all generations, and their devices.

    Attributes:
        local: node name -> the indices of the slices that name this node.
        shared: the indices of the slices that do not name a node, but select nodes in another way.
        names_nodes_only: True if every slice names a node, and no slice has perDeviceNodeSelection.
        fault: an error that names a slice whose node selector cannot be parsed, or "".
    """

    def __init__(
        self, pool_id: PoolID, slices: Iterable[ResourceSlice], devices: Mapping[str, Sequence[PoolDevice]]
    ) -> None:
        self.id = pool_id
        self.slices = sorted(slices, key=lambda slice_: slice_.name)
        self.local: defaultdict[str, list[int]] = defaultdict(list)
        self.shared: list[int] = []
        self._devices = devices
        self._views: dict[tuple[tuple[int, ...], frozenset[DeviceID]], PoolView | None] = {}
        self.names_nodes_only = not any(
            slice_.spec.per_device_node_selection or not slice_.spec.node_name for slice_ in self.slices
        )
        self.fault = ""
        for index, slice_ in enumerate(self.slices):
            if not _is_understood(slice_):
                continue
            if not _selects_well(slice_):
                self.fault = f"failed to perform node selection for slice {slice_.name}"
            if slice_.spec.node_name:
                self.local[slice_.spec.node_name].append(index)
            else:
                self.shared.append(index)

    def devices(self, index: int) -> Sequence[PoolDevice]:
        return self._devices[self.slices[index].name]

    def newest(self, reached: Iterable[int]) -> list[int]:
        """Returns the slices in `reached` that have the newest generation. Each slice is given by its index."""
        generation = max(self.slices[index].spec.pool.generation for index in reached)
        return [index for index in reached if self.slices[index].spec.pool.generation == generation]

    def view(self, reached: tuple[int, ...], unreachable: frozenset[DeviceID] = NOWHERE) -> PoolView | None:
        """Returns the view for nodes that can access the slices `reached` (indices), but not the devices `unreachable`.

        Returns None if these slices are outdated: the pool has slices of a newer generation, which these nodes cannot
        access.
        """
        key = reached, unreachable
        if key not in self._views:
            self._views[key] = self._make_view([self.slices[index] for index in self.newest(reached)], unreachable)
        return self._views[key]

    def _make_view(self, reached: list[ResourceSlice], unreachable: frozenset[DeviceID]) -> PoolView | None:
        generation = reached[0].spec.pool.generation
        whole = reached
        if len(reached) != reached[0].spec.pool.resource_slice_count:
            if any(slice_.spec.pool.generation > generation for slice_ in self.slices):
                return None
            of_generation = [slice_ for slice_ in self.slices if slice_.spec.pool.generation == generation]
            whole = [slice_ for slice_ in of_generation if not _uses_compatibility_groups(slice_)]
            if len(whole) != reached[0].spec.pool.resource_slice_count:
                return PoolView(self.id, incomplete=True)
        return self._checked(reached, whole, unreachable)

    def _checked(
        self, reached: list[ResourceSlice], whole: list[ResourceSlice], unreachable: frozenset[DeviceID]
    ) -> PoolView:
        names = {slice_.name for slice_ in reached}
        devices = self._devices_of(reached)
        elsewhere = self._devices_of(slice_ for slice_ in whole if slice_.name not in names)
        sets = [counters for slice_ in whole for counters in slice_.spec.shared_counters or ()]
        counters = {
            (counter_set.name, name): nano(counter.value)
            for counter_set in sets
            for name, counter in (counter_set.counters or {}).items()
        }
        if not (
            _all_differ(device.spec.name for device in devices)
            and _all_differ(counter_set.name for counter_set in sets)
            and _all_known([*devices, *elsewhere], counters, {counter_set.name for counter_set in sets})
        ):
            return PoolView(self.id, invalid=True)
        binds = any(device.spec.binding_conditions is not None for device in devices)
        return PoolView(self.id, tuple(devices), unreachable, tuple(elsewhere), counters, binds=binds)

    def _devices_of(self, slices: Iterable[ResourceSlice]) -> list[PoolDevice]:
        return [device for slice_ in slices if not slice_.spec.shared_counters for device in self._devices[slice_.name]]


def _is_understood(slice_: ResourceSlice) -> bool:
    """Returns True if the slice selects nodes and does not use compatibility groups (an alpha feature)."""
    spec = slice_.spec
    selects = spec.node_name or spec.all_nodes or spec.node_selector is not None or spec.per_device_node_selection
    return bool(selects) and not _uses_compatibility_groups(slice_)


def _selects_well(slice_: ResourceSlice) -> bool:
    """Returns True if all node selectors that the slice and its devices use can be parsed."""
    selecting: list[ResourceSliceSpec | Device] = [slice_.spec]
    if slice_.spec.per_device_node_selection:
        selecting += slice_.devices
    return all(
        is_well_formed(term)
        for one in selecting
        if one.node_selector is not None and not (one.node_name or one.all_nodes)
        for term in one.node_selector.node_selector_terms or ()
    )


def _uses_compatibility_groups(slice_: ResourceSlice) -> bool:
    return any(
        consumption.compatibility_groups for device in slice_.devices for consumption in device.consumes_counters or ()
    )


def _all_differ(names: Iterator[str]) -> bool:
    every = list(names)
    return len(set(every)) == len(every)


def _all_known(devices: Iterable[PoolDevice], counters: dict[CounterKey, int], sets: set[str]) -> bool:
    """Returns True if all shared counters that the devices consume exist."""
    return all(
        consumption.counter_set in sets
        and all((consumption.counter_set, name) in counters for name in consumption.counters or ())
        for device in devices
        for consumption in device.spec.consumes_counters or ()
    )


Views = tuple[PoolView, ...]
NO_DEVICES = 0
_STALE_ALLOWED = 4096
INVENTORIES = "device inventories"
"""A topic of the table's journal. Its keys are the ids of inventories whose devices were allocated or released."""


class Inventories:
    """The inventories of the nodes. A node's inventory is all pools of devices that the node can access.

    Attributes:
        number: intp[row]: the number that identifies each node's inventory. It is NO_DEVICES if the node can access no
            pool.
        views: the pools of each inventory, in the order in which they are tried. The index is the inventory's number.
        pools: all pools of the cluster.
        reaching: for each pool, the numbers of the inventories that include it.
        fault: an error that makes it impossible to find the pools of any node, or "".
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._slices: dict[str, ResourceSlice] = {}
        self._names: defaultdict[PoolID, set[str]] = defaultdict(set)
        self.pools: dict[PoolID, Pool] = {}
        self._rules: list[DeviceTaintRule] = []
        self._changed_nodes = Cursor(table.journal, TOPOLOGY)
        self._changed_slices = Cursor(table.journal, ResourceSlice.__name__)
        self._changed_rules = Cursor(table.journal, DeviceTaintRule.__name__)
        self._views_of: defaultdict[int, list[PoolView]] = defaultdict(list)
        self._rows_of: defaultdict[PoolID, list[int]] = defaultdict(list)
        self.views: list[Views] = []
        self.fault = ""
        self._start_over()

    def _start_over(self) -> None:
        """Discards all inventories and numbers them again, so results stored by the old numbers become invalid."""
        self._note_all()
        self.views = [()]
        self._number_of: dict[Views, int] = {(): NO_DEVICES}
        self.reaching: dict[PoolID, set[int]] = {}
        self.number: Rows = np.zeros(self._table.nodes.capacity, np.intp)

    def _note_all(self) -> None:
        for number in range(len(self.views)):
            self._table.journal.note(INVENTORIES, number)

    def refresh(self) -> set[PoolID]:
        """Updates the inventories after changes of slices, taint rules and nodes; returns the affected pools."""
        changed = self._read_slices()
        if self._changed_nodes.advance():
            self._views_of.clear()
            self._rows_of.clear()
            self.number = np.zeros(self._table.nodes.capacity, np.intp)
            changed |= self.pools.keys()
        if changed:
            self._assign(changed)
            fault = next((pool.fault for pool in self.pools.values() if pool.fault), "")
            if fault != self.fault:
                self.fault = fault
                self._note_all()
        missing = self._table.nodes.capacity - len(self.number)
        if missing > 0:
            self.number = np.pad(self.number, (0, missing))
        return changed

    # ---- reads slices into pools

    def _read_slices(self) -> set[PoolID]:
        """Rebuilds the pools whose slices have changed; returns the ids of these pools."""
        objects = self._table.objects
        changed = self._changed_slices.read()
        if self._changed_rules.advance():
            self._rules = list(objects.all(DeviceTaintRule).values())
            changed = None
        if changed is None:
            changed = list(self._slices.keys() | objects.all(ResourceSlice).keys())
        stale = {pool for name in changed for pool in self._replace(name, objects.get(ResourceSlice, name))}
        for pool in stale:
            self._build_pool(pool)
        return stale

    def _replace(self, name: str, new: ResourceSlice | None) -> Iterator[PoolID]:
        old = self._slices.pop(name, None)
        if old is not None:
            pool = _pool_of(old)
            self._names[pool].discard(name)
            yield pool
        if new is not None:
            self._slices[name] = new
            pool = _pool_of(new)
            self._names[pool].add(name)
            yield pool

    def _build_pool(self, pool: PoolID) -> None:
        if not self._names[pool]:
            del self._names[pool]
            self.pools.pop(pool, None)
            return
        slices = [self._slices[name] for name in self._names[pool]]
        devices = {slice_.name: [self._device(spec, slice_) for spec in slice_.devices] for slice_ in slices}
        self.pools[pool] = Pool(pool, slices, devices)

    def _device(self, spec: Device, of_slice: ResourceSlice) -> PoolDevice:
        taints = [*(spec.taints or ()), *self._ruled(spec, of_slice.spec)]
        preventing = tuple(taint for taint in taints if taint.effect in PREVENTING_EFFECTS)
        fails_when_read = self._table.features.behaviours.attributes_fail_when_read
        return PoolDevice(spec, of_slice, preventing, fails_when_read=fails_when_read)

    def _ruled(self, spec: Device, offered: ResourceSliceSpec) -> Iterator[Taint]:
        for rule in self._rules:
            chosen = rule.spec.device_selector
            if (
                chosen is not None
                and chosen.driver in (None, offered.driver)
                and chosen.pool in (None, offered.pool.name)
                and chosen.device in (None, spec.name)
            ):
                yield rule.spec.taint

    # ---- assigns pools to nodes

    def _assign(self, pools: Iterable[PoolID]) -> None:
        """Finds the nodes that can access these pools, and assigns an inventory to each of these nodes."""
        affected: set[int] = set()
        for pool_id in pools:
            for row in self._rows_of.pop(pool_id, ()):
                affected.add(row)
                self._views_of[row] = [view for view in self._views_of[row] if view.id != pool_id]
            for rows, view in self._reach(self.pools[pool_id]) if pool_id in self.pools else ():
                affected.update(rows)
                self._rows_of[pool_id] += rows
                for row in rows:
                    self._views_of[row].append(view)
        if len(self.views) > 2 * len(self._views_of) + _STALE_ALLOWED:
            self._start_over()
            affected = set(self._views_of)
        for row in affected:
            views = sorted(self._views_of[row], key=lambda view: (view.binds, view.id))
            self.number[row] = self._intern(tuple(views))

    def _intern(self, views: Views) -> int:
        number = self._number_of.get(views)
        if number is None:
            number = self._number_of[views] = len(self.views)
            self.views.append(views)
            for view in views:
                self.reaching.setdefault(view.id, set()).add(number)
        return number

    def _reach(self, pool: Pool) -> Iterator[tuple[list[int], PoolView]]:
        """Yields (rows, view) for each group of nodes that can access the same part of the pool."""
        row_of = self._table.nodes.row_of
        local = {row_of[name]: reached for name, reached in pool.local.items() if name in row_of}
        if pool.names_nodes_only:
            for row, only in local.items():
                view = pool.view(tuple(only))
                if view is not None:
                    yield [row], view
            return
        yield from self._reach_selected(pool, local)

    def _reach_selected(self, pool: Pool, local: dict[int, list[int]]) -> Iterator[tuple[list[int], PoolView]]:
        """Does the same as `_reach`, for a pool with at least one slice that does not name a node.

        `local`: row of a node -> the indices of the slices that name this node.
        """
        rows = self._table.nodes.rows if pool.shared else np.array(list(local), np.intp)
        selected = {index: self._slice_mask(pool, index, rows) for index in pool.shared}
        devices = self._device_masks(pool, rows)
        grouped: defaultdict[tuple[tuple[int, ...], frozenset[DeviceID]], list[int]] = defaultdict(list)
        for position, row in enumerate(rows.tolist()):
            reached = sorted([*(index for index, mask in selected.items() if mask[position]), *local.get(row, ())])
            if reached:
                masks = [mask for index in pool.newest(reached) for mask in devices.get(index, ())] if devices else []
                apart = frozenset(device for device, mask in masks if not mask[position]) if masks else NOWHERE
                grouped[tuple(reached), apart].append(row)
        for (slices, apart), its_rows in grouped.items():
            view = pool.view(slices, apart)
            if view is not None:
                yield its_rows, view

    def _slice_mask(self, pool: Pool, index: int, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: True if the row can access any device of the slice with this index."""
        spec = pool.slices[index].spec
        if spec.all_nodes or spec.node_selector is not None:
            return self._mask(spec, rows)
        masks = [self._mask(device.spec, rows) for device in pool.devices(index)]
        return np.logical_or.reduce(masks) if masks else np.zeros(len(rows), np.bool_)

    def _device_masks(self, pool: Pool, rows: Rows) -> dict[int, list[tuple[DeviceID, BoolColumn]]]:
        """Returns slice index -> (device, mask) of each device; the mask is True for rows that can access the device.

        Only slices with perDeviceNodeSelection are included. A mask is bool[len(rows)].
        """
        return {
            index: [(device.id, self._mask(device.spec, rows)) for device in pool.devices(index)]
            for index in {*pool.shared, *(index for reached in pool.local.values() for index in reached)}
            if pool.slices[index].spec.per_device_node_selection
        }

    def _mask(self, selecting: ResourceSliceSpec | Device, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: True if the slice or device selects the row (structured NodeMatches)."""
        if selecting.node_name:
            named: BoolColumn = rows == self._table.nodes.row_of.get(selecting.node_name, -1)
            return named
        if selecting.all_nodes:
            return np.ones(len(rows), np.bool_)
        if selecting.node_selector is not None:
            return nodes_in_selector(selecting.node_selector, self._table, rows)
        return np.zeros(len(rows), np.bool_)


def _pool_of(slice_: ResourceSlice) -> PoolID:
    return PoolID(slice_.spec.driver, slice_.spec.pool.name)
