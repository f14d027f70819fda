"""Devices as selectors and the allocator see them."""

from __future__ import annotations

from typing import NamedTuple

from extender.devices.cel.values import Semver
from extender.model.devices.slices import Device, DeviceTaint, ResourceSlice
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


class PoolDevice:
    """A device of a slice.

    Attributes:
        taints: those that keep pods away, its own and the rules'.
        counters: what it consumes of its pool's shared counters, in billionths.
        shareable: whether it may be allocated to several claims at once (KEP-5075).
        fault: what is wrong with its attributes, if anything is; then no selector can be evaluated for it.
        verdicts: by CEL expression whether it matches, or why that cannot be told.
        amounts: what requests without wishes take of its capacity, once known; None inside: they cannot have it.
    """

    __slots__ = ("amounts", "counters", "fault", "id", "shareable", "slice", "spec", "taints", "verdicts")

    def __init__(self, spec: Device, of_slice: ResourceSlice, taints: tuple[DeviceTaint, ...]) -> None:
        self.id = DeviceID(of_slice.spec.driver, of_slice.spec.pool.name, spec.name)
        self.spec, self.slice, self.taints = spec, of_slice, taints
        self.shareable = bool(spec.allow_multiple_allocations)
        self.fault = _fault(spec)
        self.verdicts: dict[str, bool | str] = {}
        self.amounts: tuple[Amounts | None] | None = None
        self.counters: tuple[tuple[CounterKey, int], ...] = tuple(
            ((consumption.counter_set, name), nano(counter.value))
            for consumption in spec.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        )


def _fault(spec: Device) -> str:
    for name, attribute in (spec.attributes or {}).items():
        if attribute.version_value is not None:
            if Semver.parse(attribute.version_value) is None:
                return f"attribute {name}: parse semantic version: {attribute.version_value!r} is not one"
        elif (attribute.int_value, attribute.bool_value, attribute.string_value) == (None, None, None):
            return f"attribute {name}: unsupported attribute value"
    return ""
