"""A device of a slice, as selectors and the allocator see it."""

from __future__ import annotations

from typing import NamedTuple

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
        taints: those that keep pods away, its own and those of DeviceTaintRules.
        counters: what it consumes of its pool's shared counters, in billionths.
        shareable: it may be allocated to several claims at once (KEP-5075).
        fault: an error in its attributes, which fails every selector; "" without one, None if not yet checked.
        amounts: the amounts for requests without capacity: (None,) if it has not enough, None if not yet computed.
    """

    __slots__ = (
        "_verdict_cache", "_verdicts", "amounts", "counters", "fault", "id", "shareable", "slice", "spec", "taints",
    )  # fmt: skip

    def __init__(self, spec: Device, of_slice: ResourceSlice, taints: tuple[DeviceTaint, ...]) -> None:
        self.id = DeviceID(of_slice.spec.driver, of_slice.spec.pool.name, spec.name)
        self.spec = spec
        self.slice = of_slice
        self.taints = taints
        self.shareable = bool(spec.allow_multiple_allocations)
        self.fault: str | None = None
        self._verdicts = bytearray()
        self._verdict_cache: object = None
        self.amounts: tuple[Amounts | None] | None = None
        self.counters: tuple[tuple[CounterKey, int], ...] = tuple(
            ((consumption.counter_set, name), nano(counter.value))
            for consumption in spec.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        )

    def verdicts_of(self, cache: object) -> bytearray:
        """Returns the verdicts of the selectors in this cache, by their numbers; drops those of another cache."""
        if self._verdict_cache is not cache:
            self._verdict_cache = cache
            self._verdicts = bytearray()
        return self._verdicts
