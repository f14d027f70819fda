"""The devices chosen so far in a search, and whether one more may join them.

Source: structured allocator allocateDevice, checkAvailableCounters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.devices.cel.device import Amounts, CounterKey, DeviceID, PoolDevice, PoolID
from extender.devices.inventory.allocated import Allocated
from extender.devices.inventory.pools import PoolView
from extender.devices.search.capacity import has_room
from extender.devices.search.constraints import AttributeValue
from extender.devices.search.questions import Ask, Question
from extender.devices.search.tolerations import keeps_away

Candidate = tuple[PoolDevice, PoolView]
Undo = Callable[[], None]
_NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True, eq=False)
class Pick:
    """A device chosen for a request. `amounts`: what is taken of it, where it is shared (billionths)."""

    ask: Ask
    device: PoolDevice
    amounts: Amounts | None = None


class Choice:
    """What each claim has been given, and what is left of the devices.

    `picks`: by claim, in the order in which they were chosen.
    """

    def __init__(self, question: Question, allocated: Allocated) -> None:
        self.picks: list[list[Pick]] = [[] for _ in question]
        self._question, self._allocated = question, allocated
        self._claims_of: dict[DeviceID, set[int]] = {}
        self._shares: Counter[DeviceID] = Counter()
        self._amounts: dict[DeviceID, Counter[str]] = {}
        self._values: list[list[list[AttributeValue]]] = [[[] for _ in claim.constraints] for claim in question]
        self._counters: dict[PoolID, Counter[CounterKey]] = {}

    def in_use(self, ask: Ask, device: PoolDevice) -> bool:
        """Whether the device is another's; with admin access, whether the claim has it already."""
        claims = self._claims_of.get(device.id)
        if ask.admin:
            return claims is not None and ask.claim in claims
        return bool(claims) or device.id in self._allocated.devices

    def take(self, ask: Ask, candidate: Candidate, amounts: Amounts) -> Undo | None:
        """Gives the device to the request's claim; returns how to take it back, None if the claim cannot have it.

        Raises:
            AllocationError: the request is for all devices, and a constraint stands against this one.
        """
        device, view = candidate
        if self.in_use(ask, device) and not (ask.admin and device.shareable):
            return None
        counts = bool(device.counters) and not (device.shareable and self._is_shared(device.id))
        if counts and not self._has_counters(device, view):
            return None
        if any(keeps_away(taint, ask.tolerations) for taint in device.taints):
            return None
        values = self._constrained(ask, device)
        if values is None:
            if ask.takes_all:
                raise ask.error(f"cannot add device {device.id} because a claim constraint would not be satisfied")
            return None
        if not self._has_room(device, amounts):
            return None
        return self._note(ask, candidate, amounts, values, counts)

    def _has_room(self, device: PoolDevice, amounts: Amounts) -> bool:
        taken, more = self._allocated.capacity(device.id), self._amounts.get(device.id, _NOTHING)
        return not (taken or more) or has_room(amounts, device.spec.capacity or {}, taken, more)

    def _is_shared(self, device: DeviceID) -> bool:
        return bool(self._shares[device]) or device in self._allocated.shares

    def _has_counters(self, device: PoolDevice, view: PoolView) -> bool:
        """Whether the pool's counters allow the device. One that is overdrawn allows no device that counts at all."""
        left = self._counters.get(view.id)
        if left is None:
            left = self._counters[view.id] = self._counters_left(view)
        wanted: Counter[CounterKey] = Counter()
        for key, amount in device.counters:
            wanted[key] += amount
        return all(amount >= wanted[key] for key, amount in left.items())

    def _counters_left(self, view: PoolView) -> Counter[CounterKey]:
        left = Counter(view.counters)
        for device in (*view.devices, *view.elsewhere):
            if device.counters and self._allocated.holds(device.id):
                for key, amount in device.counters:
                    left[key] -= amount
        return left

    def _constrained(self, ask: Ask, device: PoolDevice) -> list[AttributeValue | None] | None:
        """The device's value for each constraint, None for those that do not concern it; or None: it breaks one."""
        values: list[AttributeValue | None] = []
        for constraint, chosen in zip(self._question[ask.claim].constraints, self._values[ask.claim], strict=True):
            value = None
            if constraint.applies_to(ask.name, ask.parent):
                value = constraint.value_of(device)
                if value is None or not constraint.allows(value, chosen):
                    return None
            values.append(value)
        return values

    def _note(
        self, ask: Ask, candidate: Candidate, amounts: Amounts, values: list[AttributeValue | None], counts: bool
    ) -> Undo:
        device, view = candidate
        self.picks[ask.claim].append(Pick(ask, device, amounts if device.shareable else None))
        self._tally(ask, device, amounts, 1)
        self._charge(device, view, counts, -1)
        for chosen, value in zip(self._values[ask.claim], values, strict=True):
            if value is not None:
                chosen.append(value)

        def undo() -> None:
            for chosen, value in zip(self._values[ask.claim], values, strict=True):
                if value is not None:
                    chosen.pop()
            self._charge(device, view, counts, 1)
            self._tally(ask, device, amounts, -1)
            self.picks[ask.claim].pop()

        return undo

    def _tally(self, ask: Ask, device: PoolDevice, amounts: Mapping[str, int], sign: int) -> None:
        if device.shareable:
            self._shares[device.id] += sign
            taken = self._amounts.setdefault(device.id, Counter())
            for name, amount in amounts.items():
                taken[name] += sign * amount
        elif sign > 0:
            self._claims_of.setdefault(device.id, set()).add(ask.claim)
        else:
            self._claims_of[device.id].discard(ask.claim)

    def _charge(self, device: PoolDevice, view: PoolView, counts: bool, sign: int) -> None:
        if counts:
            for key, amount in device.counters:
                self._counters[view.id][key] += sign * amount
