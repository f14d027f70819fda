"""Records the devices that a search has assigned to each claim so far.

Source: structured allocator allocateDevice, checkAvailableCounters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.devices.allocator.consumable_capacity import has_room
from extender.devices.allocator.request_data import AttributeValue, ClaimsToAllocate, RequestData
from extender.devices.device import Amounts, CounterKey, DeviceID, PoolDevice, PoolID
from extender.devices.inventory.allocated import AllocatedState
from extender.devices.inventory.pools import PoolView
from extender.model.devices import DeviceTaint, DeviceToleration

Candidate = tuple[PoolDevice, PoolView]
Undo = Callable[[], None]
_NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True, eq=False)
class DeviceResult:
    """A device that is assigned to a request.

    Attributes:
        amounts: the amounts of the device's capacities that the request consumes, in billionths; None if the device
            cannot be shared.
    """

    request: RequestData
    device: PoolDevice
    amounts: Amounts | None = None


class AllocatingDevices:
    """Tracks the devices assigned to each claim so far, and what remains of shared devices and counters.

    Attributes:
        results: the devices of each claim, in the order in which they were chosen.
    """

    def __init__(self, claims: ClaimsToAllocate, allocated: AllocatedState) -> None:
        self.results: list[list[DeviceResult]] = [[] for _ in claims]
        self._claims = claims
        self._allocated = allocated
        self._claims_of: dict[DeviceID, set[int]] = {}
        self._shares: Counter[DeviceID] = Counter()
        self._amounts: dict[DeviceID, Counter[str]] = {}
        self._values: list[list[list[AttributeValue]]] = [[[] for _ in claim.constraints] for claim in claims]
        self._counters: dict[PoolID, Counter[CounterKey]] = {}

    def in_use(self, request: RequestData, device: PoolDevice) -> bool:
        """Returns True if the request cannot get the device, because a claim has the device already.

        For a request with admin access, only the request's own claim counts.
        """
        claims = self._claims_of.get(device.id)
        if request.admin:
            return claims is not None and request.claim in claims
        if self._allocated.behaviours.shares_prevent_exclusive_use and not device.shareable:
            return bool(claims) or self._allocated.holds(device.id)
        return bool(claims) or device.id in self._allocated.devices

    def take(self, request: RequestData, candidate: Candidate, amounts: Amounts) -> Undo | None:
        """Assigns the device to the request's claim, and returns a function that undoes the assignment.

        Returns None if the request cannot get the device.

        Raises:
            AllocationError: the request is for all devices, and a constraint excludes this one; or a constraint cannot
                read the device's attribute.
        """
        device, view = candidate
        if self.in_use(request, device) and not (request.admin and device.shareable):
            return None
        shared = device.shareable and (self._shares[device.id] or device.id in self._allocated.shares)
        counts = bool(device.counters) and not shared
        if counts and not self._has_counters(device, view):
            return None
        if any(keeps_away(taint, request.tolerations) for taint in device.taints):
            return None
        values = self._constrained(request, device)
        if values is None:
            if request.takes_all:
                raise request.error(f"cannot add device {device.id} because a claim constraint would not be satisfied")
            return None
        if not self._has_room(device, amounts):
            return None
        return self._note(request, candidate, amounts, values, counts)

    def _has_room(self, device: PoolDevice, amounts: Amounts) -> bool:
        taken, more = self._allocated.capacity(device.id), self._amounts.get(device.id, _NOTHING)
        if not (taken or more):
            return True
        key_of = self._allocated.capacity_key
        of_others = {name: taken.get(key_of(device.id, name), 0) for name in amounts}
        return has_room(amounts, device.spec.capacity or {}, of_others, more)

    def _has_counters(self, device: PoolDevice, view: PoolView) -> bool:
        """Returns True if the pool's shared counters suffice for the device.

        If any counter is below 0, no device that consumes counters of the pool is available.
        """
        remaining = self._counters.get(view.id)
        if remaining is None:
            remaining = self._counters[view.id] = self._remaining_counters(view)
        wanted: Counter[CounterKey] = Counter()
        for key, amount in device.counters:
            wanted[key] += amount
        return all(amount >= wanted[key] for key, amount in remaining.items())

    def _remaining_counters(self, view: PoolView) -> Counter[CounterKey]:
        remaining = Counter(view.counters)
        for device in (*view.devices, *view.elsewhere):
            if device.counters and self._allocated.holds(device.id):
                for key, amount in device.counters:
                    remaining[key] -= amount
        return remaining

    def _constrained(self, request: RequestData, device: PoolDevice) -> list[AttributeValue | None] | None:
        """Returns the device's value for the attribute of each constraint; None if the device violates a constraint.

        The value for a constraint that does not apply to the request is None. Raises AllocationError for a value of no
        known type.
        """
        values: list[AttributeValue | None] = []
        for constraint, chosen in zip(
            self._claims[request.claim].constraints, self._values[request.claim], strict=True
        ):
            value = None
            if constraint.applies_to(request.name, request.parent):
                value = constraint.value_of(device)
                if constraint.is_fault(value):
                    text = f"device {device.id}: unsupported attribute value for {constraint.attribute}"
                    raise request.error(text)
                if value is None or not constraint.allows(value, chosen):
                    return None
            values.append(value)
        return values

    def _note(
        self,
        request: RequestData,
        candidate: Candidate,
        amounts: Amounts,
        values: list[AttributeValue | None],
        counts: bool,
    ) -> Undo:
        device, view = candidate
        self.results[request.claim].append(DeviceResult(request, device, amounts if device.shareable else None))
        self._tally(request, device, amounts, 1)
        self._charge(device, view, counts, -1)
        for chosen, value in zip(self._values[request.claim], values, strict=True):
            if value is not None:
                chosen.append(value)

        def undo() -> None:
            for chosen, value in zip(self._values[request.claim], values, strict=True):
                if value is not None:
                    chosen.pop()
            self._charge(device, view, counts, 1)
            self._tally(request, device, amounts, -1)
            self.results[request.claim].pop()

        return undo

    def _tally(self, request: RequestData, device: PoolDevice, amounts: Mapping[str, int], sign: int) -> None:
        if device.shareable:
            self._shares[device.id] += sign
            taken = self._amounts.setdefault(device.id, Counter())
            for name, amount in amounts.items():
                taken[name] += sign * amount
        elif sign > 0:
            self._claims_of.setdefault(device.id, set()).add(request.claim)
        else:
            self._claims_of[device.id].discard(request.claim)

    def _charge(self, device: PoolDevice, view: PoolView, counts: bool, sign: int) -> None:
        if counts:
            for key, amount in device.counters:
                self._counters[view.id][key] += sign * amount


def keeps_away(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """Returns True if none of the tolerations covers the taint (upstream ToleratesTaint)."""
    return not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
