"""Builds the pools of devices, and the view that each node has of a pool. Source: structured GatherPools, buildPool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from extender.devices.device import CounterKey, DeviceID, PoolDevice, PoolID
from extender.framework.node_selectors import is_well_formed
from extender.model.devices import Device, ResourceSlice, ResourceSliceSpec
from extender.model.quantity import nano

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
        devices = [
            device for slice_ in reached if not slice_.spec.shared_counters for device in self._devices[slice_.name]
        ]
        elsewhere = [
            device
            for slice_ in whole
            if slice_.name not in names and not slice_.spec.shared_counters
            for device in self._devices[slice_.name]
        ]
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
