"""Defines a device of a ResourceSlice, as selectors and the allocator use it."""

from __future__ import annotations

from typing import NamedTuple

from extender.model.devices import Device, DeviceTaint, ResourceSlice
from extender.model.quantity import nano

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
        self, spec: Device, of_slice: ResourceSlice, taints: tuple[DeviceTaint, ...], *, fails_when_read: bool = False
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
