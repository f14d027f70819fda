"""Keeps what device policies read of the cluster: the free devices of each node, and the kinds of pods on them.

A *slot* is what policies call a device: a device of a ResourceSlice, or the shared counters of which several devices
(partitions of one piece of hardware) take a part. A slot that is full has 0 free thousandths, an idle one 1000.

Everything follows the table's journal, so that a change costs what it changes. Start reading at `DeviceColumns`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from extender.devices.allocations import Devices, devices_of
from extender.devices.allocator import consumed_amounts, remaining_counters
from extender.devices.cel.device_selectors import SelectorError, matches
from extender.devices.device_nodes import MOST_DEVICES, WHOLE, DeviceNodes, Ints
from extender.devices.device_requests import AllocationError, RequestData
from extender.devices.device_totals import AllocatedState
from extender.devices.inventory import (
    INVENTORIES,
    NO_DEVICES,
    Amounts,
    CounterKey,
    DeviceID,
    PoolDevice,
    PoolView,
    Views,
    qualified,
)
from extender.model.quantity import nano
from extender.table import Table
from extender.table.filing import cached
from extender.table.journal import BEGINNING, RESOURCES, Cursor
from extender.table.node_columns import CPU, MEMORY

NO_SLOT = 0
"""The class of a slot that a node does not have."""
_SAMPLES = 8
_MOST_REQUESTS = 256
_MODELS = ("productName", "model")


class DeviceResource(NamedTuple):
    """The devices of one driver, as policies see them.

    Attributes:
        driver: the driver; "" for every driver.
        capacity: the capacity that measures shares of a device; "" for the one of which a share takes most.
        model: the attribute with the device's model; "" for productName or model.
    """

    driver: str = ""
    capacity: str = ""
    model: str = ""


EVERY_DRIVER = (DeviceResource(),)


@dataclass(frozen=True, slots=True)
class SlotClass:
    """Slots that are alike for policies: they offer devices of equal size and model.

    Attributes:
        samples: devices of such slots, and how many thousandths of its slot each of them is, the smallest first. A
            request can use the slots if it can use any of the samples.
    """

    model: str
    resource: DeviceResource
    samples: list[tuple[PoolDevice, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """The slots of one inventory.

    Attributes:
        members: the devices of each slot, with how many thousandths of the slot each of them is.
        counters: the view and the counters of each slot with shared counters; None for the others.
        classes: the class of each slot, as an index of `DeviceColumns.classes`.
        place_of: device -> the index of its slot, and how many thousandths of it the device is.
    """

    views: Views
    members: list[list[tuple[PoolDevice, int]]]
    counters: list[tuple[PoolView, list[CounterKey]] | None]
    classes: list[int]
    place_of: dict[DeviceID, tuple[int, int]]
    model: str


class DeviceColumns:
    """The nodes of a table as device policies see them.

    Attributes:
        nodes: the state of all rows of the table.
        classes: the classes of slots; the first represents a slot that does not exist.
        class_of: intp[row, slot]: an index of `classes`.
    """

    def __init__(self, table: Table, resources: Sequence[DeviceResource]) -> None:
        self._table = table
        self._resources = resources
        self._devices: Devices = devices_of(table)
        self._touched = Cursor(table.journal, INVENTORIES)
        self._changed_resources = Cursor(table.journal, RESOURCES)
        self.classes = [SlotClass("", DeviceResource())]
        self._class_of: dict[Hashable, int] = {}
        self._layouts: dict[int, Layout] = {}
        self._sizes: OrderedDict[RequestData, Ints] = OrderedDict()  # empty after a change of `classes`
        self._seen = BEGINNING
        self._start_over(1)

    def _start_over(self, width: int) -> None:
        capacity = self._table.nodes.capacity
        nothing = np.zeros(capacity, np.int64)
        self.nodes = DeviceNodes.empty(np.full(capacity, "", np.object_), nothing, nothing.copy(), nothing.copy())
        self.nodes.free = np.zeros((capacity, width), np.int64, order="F")
        self.class_of = np.full((capacity, width), NO_SLOT, np.intp, order="F")
        self._number = np.full(capacity, NO_DEVICES, np.intp)
        self._is_new = True

    def layout_of(self, row: int) -> Layout | None:
        """Returns the slots of the node in this row; None if it has no devices."""
        return self._layouts.get(int(self._number[row]))

    def slot_of(self, row: int, device: DeviceID) -> int:
        """Returns the slot of a device on the node in this row; 0 if policies do not see the device."""
        layout = self.layout_of(row)
        return 0 if layout is None else layout.place_of.get(device, (0, 0))[0]

    def refresh(self) -> None:
        """Applies the table's changes since the last call."""
        if self._seen == self._table.journal.now:
            return
        self._devices.refresh()
        if len(self._number) != self._table.nodes.capacity:
            self._start_over(self.nodes.free.shape[1])
        number = self._devices.inventories.number
        touched = self._touched.read()
        moved = np.flatnonzero(number != self._number) if not self._is_new else self._table.nodes.rows
        if touched is None:
            moved = np.flatnonzero(number | self._number)
        rows = set(moved.tolist())
        for inventory in touched or ():
            rows.update(np.flatnonzero(number == inventory).tolist())
        self._write_devices(sorted(rows))
        self._write_resources()
        self._is_new = False
        self._seen = self._table.journal.now

    def _write_resources(self) -> None:
        changed = self._changed_resources.read()
        rows = self._table.nodes.rows if changed is None or self._is_new else np.array(changed, np.intp)
        if not len(rows):
            return
        nodes, columns = self.nodes, self._table.nodes
        nodes.cpu[rows], nodes.memory[rows] = (columns.allocatable[CPU, rows], columns.allocatable[MEMORY, rows])
        nodes.free_cpu[rows] = nodes.cpu[rows] - columns.requested[CPU, rows]
        nodes.free_memory[rows] = nodes.memory[rows] - columns.requested[MEMORY, rows]
        nodes.touch(*rows.tolist())

    def _write_devices(self, rows: Iterable[int]) -> None:
        for row in rows:
            number = int(self._devices.inventories.number[row])
            layout = self._layout(number)
            if len(layout.members) > self.nodes.free.shape[1]:
                self._widen(len(layout.members))
            self._number[row] = number
            self.nodes.models[row] = layout.model
            self.nodes.devices[row] = len(layout.members)
            self.class_of[row] = NO_SLOT
            self.class_of[row, : len(layout.classes)] = layout.classes
            self.nodes.free[row] = 0
            self.nodes.free[row, : len(layout.members)] = self._free(layout)
            self.nodes.pods[row] = self._pods(layout.views)
            self.nodes.touch(row)

    def _widen(self, width: int) -> None:
        more = ((0, 0), (0, width - self.nodes.free.shape[1]))
        self.nodes.free = np.asfortranarray(np.pad(self.nodes.free, more))
        self.class_of = np.asfortranarray(np.pad(self.class_of, more, constant_values=NO_SLOT))

    def _pods(self, views: Views) -> Ints:
        pods = np.zeros(MOST_DEVICES + 1, np.int64)
        for view in views:
            for kind, claims in self._devices.allocated.kinds.get(view.id, {}).items():
                pods[kind] += claims
        return pods

    # ---- the slots of an inventory

    def _layout(self, number: int) -> Layout:
        views = self._devices.inventories.views[number]
        layout = self._layouts.get(number)
        if layout is None or layout.views is not views:
            layout = self._layouts[number] = self._make_layout(views)
        return layout

    def _make_layout(self, views: Views) -> Layout:
        offered = list(self._offered(views))
        model = next((_model(device, resource) for _, device, resource in offered), "")
        layout = Layout(views, [], [], [], {}, model)
        slots: dict[Hashable, int] = {}
        for view, device, _ in offered:
            counter_set = device.counters[0][0][0] if device.counters else None
            slot = slots.setdefault((view.id, counter_set) if counter_set else device.id, len(layout.members))
            if slot == len(layout.members):
                layout.members.append([])
                keys = [key for key in view.counters if key[0] == counter_set]
                layout.counters.append((view, keys) if counter_set else None)
            part = _part(view, device)
            layout.members[slot].append((device, part))
            layout.place_of[device.id] = slot, part
        layout.classes.extend(map(self._intern, layout.members))
        return layout

    def _offered(self, views: Views) -> Iterator[tuple[PoolView, PoolDevice, DeviceResource]]:
        for view in views:
            resource = self._resource(view.id.driver)
            if resource is not None and not view.incomplete and not view.invalid:
                for device in view.devices:
                    if device.id not in view.unreachable:
                        yield view, device, resource

    def _resource(self, driver: str) -> DeviceResource | None:
        return next((each for each in self._resources if each.driver in ("", driver)), None)

    def _intern(self, members: Sequence[tuple[PoolDevice, int]]) -> int:
        """Returns the class of a slot with these devices."""
        device = members[0][0]
        resource = self._resource(device.id.driver)
        assert resource is not None
        key = frozenset((_type(member, resource), part) for member, part in members)
        number = self._class_of.setdefault(key, len(self.classes))
        if number == len(self.classes):
            self.classes.append(SlotClass(_model(device, resource), resource))
        if len(self.classes[number].samples) < _SAMPLES * len(key):
            self._sizes.clear()
            self.classes[number].samples.extend(members)
            self.classes[number].samples.sort(key=lambda sample: sample[1])
        return number

    def _free(self, layout: Layout) -> list[int]:
        allocated = self._devices.allocated
        return [
            _free_of(members[0][0], self.classes[number].resource, allocated)
            if counters is None
            else _free_counters(*counters, allocated)
            for members, counters, number in zip(layout.members, layout.counters, layout.classes, strict=True)
        ]

    # ---- requests

    def sizes(self, request: RequestData) -> Ints:
        """Returns int64[class]: the thousandths of a slot of each class that the request takes; 0 if it cannot use it.

        If it can use several devices of a slot, the smallest counts.
        """
        return cached(self._sizes, request, lambda: self._compute_sizes(request), _MOST_REQUESTS)

    def _compute_sizes(self, request: RequestData) -> Ints:
        return np.array(
            [
                next(filter(None, (self.size(request, *sample, slots.resource) for sample in slots.samples)), 0)
                for slots in self.classes
            ],
            np.int64,
        )

    def size(self, request: RequestData, device: PoolDevice, part: int, resource: DeviceResource) -> int:
        """Returns the thousandths of its slot that the request takes with this device; 0 if it cannot use the device.

        `part`: the thousandths of its slot that the device itself is.
        """
        if request.is_repelled_by(device.taints):
            return 0
        try:
            if not all(matches(expression, device) for _, _, expression in request.selectors):
                return 0
            amounts = consumed_amounts(request, device, self._devices.allocated)
        except (SelectorError, AllocationError):
            return 0
        if amounts is None:
            return 0
        return share_size(device, amounts, resource) if device.shareable else part


def share_size(device: PoolDevice, amounts: Amounts, resource: DeviceResource) -> int:
    """Returns the thousandths of a device that these amounts are, of the capacity of which they take most.

    Sizes and what is free are both rounded down, so that whatever fits a device fits it here, too.
    """
    sizes = (max(1, amounts.get(name, 0) * WHOLE // total) for name, total in _measured(device, resource))
    return max(sizes, default=1)


def _measured(device: PoolDevice, resource: DeviceResource) -> Iterator[tuple[str, int]]:
    """Yields the name and the amount, in billionths, of each capacity that measures shares of the device."""
    for name, capacity in (device.spec.capacity or {}).items():
        total = nano(capacity.value)
        if total > 0 and (
            not resource.capacity or qualified(resource.capacity, device.id.driver) == qualified(name, device.id.driver)
        ):
            yield name, total


def _free_of(device: PoolDevice, resource: DeviceResource, allocated: AllocatedState) -> int:
    if device.id in allocated.devices:
        return 0
    if device.id not in allocated.shares:
        return WHOLE
    if not device.shareable:
        return 0
    taken = allocated.capacity(device.id)
    left = (
        (total - taken.get(allocated.capacity_key(device.id, name), 0)) * WHOLE // total
        for name, total in _measured(device, resource)
    )
    return max(0, min(left, default=WHOLE))


def _free_counters(view: PoolView, keys: Sequence[CounterKey], allocated: AllocatedState) -> int:
    remaining = remaining_counters(view, allocated)
    fractions = (remaining[key] * WHOLE // view.counters[key] for key in keys if view.counters[key] > 0)
    return max(0, min(fractions, default=WHOLE))


def _part(view: PoolView, device: PoolDevice) -> int:
    """Returns the thousandths of its slot that the device is: of the shared counter of which it takes most."""
    parts = (max(1, amount * WHOLE // view.counters[key]) for key, amount in device.counters if view.counters.get(key))
    return min(WHOLE, max(parts, default=WHOLE))


def _model(device: PoolDevice, resource: DeviceResource) -> str:
    attributes = device.spec.attributes or {}
    for name in (resource.model,) if resource.model else _MODELS:
        value = attributes.get(name) or attributes.get(qualified(name, device.id.driver))
        if value is not None and value.string_value is not None:
            return value.string_value
    return ""


def _type(device: PoolDevice, resource: DeviceResource) -> Hashable:
    """Returns what policies see of a device; devices with equal types are alike for them."""
    capacities = tuple(sorted(_measured(device, resource)))
    return (device.id.driver, _model(device, resource), capacities, device.shareable, bool(device.taints))
