"""Devices as selectors and the allocator see them."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from extender.model.devices import Device, DeviceTaint, ResourceSlice
from extender.model.quantity import nano

PREVENTING_EFFECTS = ("NoSchedule", "NoExecute")

CounterKey = tuple[str, str]  # counter set, counter
Amounts = dict[str, int]  # billionths by qualified name


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


class DeviceValue:
    """What a selector can tell of a device: one for all devices that are alike.

    `verdicts`: by CEL expression whether it matches, or why it failed.
    """

    __slots__ = ("__weakref__", "device", "driver", "verdicts")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver, self.device = driver, device
        self.verdicts: dict[str, bool | str] = {}


class DeviceValues:
    """Interns the values of devices, for as long as a device has them."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, bytes], DeviceValue] = WeakValueDictionary()

    def of(self, driver: str, device: Device) -> DeviceValue:
        """The value of a device of `driver`."""
        told = (device.attributes, device.capacity, device.allow_multiple_allocations)
        key = driver, msgspec.json.encode(told, order="deterministic")
        value = self._known.get(key)
        if value is None:
            value = self._known[key] = DeviceValue(driver, device)
        return value


class PoolDevice:
    """A device of a slice.

    Attributes:
        taints: those that keep pods away, its own and the rules'.
        counters: what it consumes of its pool's shared counters, in billionths.
        shareable: whether it may be allocated to several claims at once (KEP-5075).
    """

    __slots__ = ("counters", "id", "shareable", "slice", "spec", "taints", "value")

    def __init__(
        self, spec: Device, of_slice: ResourceSlice, value: DeviceValue, taints: tuple[DeviceTaint, ...]
    ) -> None:
        self.id = DeviceID(of_slice.spec.driver, of_slice.spec.pool.name, spec.name)
        self.spec, self.slice, self.value, self.taints = spec, of_slice, value, taints
        self.shareable = bool(spec.allow_multiple_allocations)
        self.counters: tuple[tuple[CounterKey, int], ...] = tuple(
            ((consumption.counter_set, name), nano(counter.value))
            for consumption in spec.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        )
