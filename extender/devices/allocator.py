"""Finds the first devices that satisfy all claims of a pod on one node, by an exhaustive search.

The input is the requests of claims, the pools of a node, the devices that are already allocated, and a time limit; the
output is the devices for each claim, or None. Nothing here depends on tables or pods. Start reading at `Allocator.run`.

Requests are satisfied one after another. For each request, devices are tried in the order of their pools, slices and
positions. If the remaining requests cannot be satisfied, the last choice is undone. The search skips choices that
cannot lead to a solution: too few devices remain, or an equivalent device has already failed at the same step.

Source: k8s.io/dynamic-resource-allocation/structured, "incubating": Allocate, allocateOne, allocateDevice,
checkAvailableCounters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from extender.devices.cel.device_selectors import SelectorError, matches
from extender.devices.device_requests import (
    AllocationError,
    AttributeValue,
    CapacityError,
    ClaimsToAllocate,
    RequestData,
    consumed,
    has_room,
)
from extender.devices.device_totals import AllocatedState
from extender.devices.inventory import Amounts, CounterKey, DeviceID, PoolDevice, PoolID, PoolView, Views
from extender.runtime.clock import NO_DEADLINE, Deadline

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
        if not (request.admin or device.shareable) and self._has_a_share(device):
            return None
        shared = device.shareable and (self._shares[device.id] or device.id in self._allocated.shares)
        counts = bool(device.counters) and not shared
        if counts and not self._has_counters(device, view):
            return None
        if request.is_repelled_by(device.taints):
            return None
        values = self._constrained(request, device)
        if values is None:
            if request.takes_all:
                raise request.error(f"cannot add device {device.id} because a claim constraint would not be satisfied")
            return None
        if not self._has_room(device, amounts):
            return None
        return self._note(request, candidate, amounts, values, counts)

    def _has_a_share(self, device: PoolDevice) -> bool:
        """Returns True if a claim holds a share of the device, and this prevents its allocation as a whole."""
        return self._allocated.behaviours.shares_prevent_exclusive_use and device.id in self._allocated.shares

    def _has_room(self, device: PoolDevice, amounts: Amounts) -> bool:
        taken, more = self._allocated.capacity(device.id), self._amounts.get(device.id, _NOTHING)
        if not (taken or more):
            return True
        key_of = self._allocated.capacity_key
        of_others = {name: taken.get(key_of(device.id, name), 0) for name in amounts}
        return has_room(amounts, device.spec.capacity or {}, of_others, more)

    def _has_counters(self, device: PoolDevice, view: PoolView) -> bool:
        remaining = self._counters.get(view.id)
        if remaining is None:
            remaining = self._counters[view.id] = remaining_counters(view, self._allocated)
        return has_counters(device, remaining)

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


def remaining_counters(view: PoolView, allocated: AllocatedState) -> Counter[CounterKey]:
    """Returns what the devices that claims have leave of the pool's shared counters, in billionths."""
    remaining = Counter(view.counters)
    for device in (*view.devices, *view.elsewhere):
        if device.counters and allocated.holds(device.id):
            for key, amount in device.counters:
                remaining[key] -= amount
    return remaining


def has_counters(device: PoolDevice, remaining: Counter[CounterKey]) -> bool:
    """Returns True if the pool's shared counters suffice for the device.

    If any counter is below 0, no device that consumes counters of the pool is available.
    """
    wanted: Counter[CounterKey] = Counter()
    for key, amount in device.counters:
        wanted[key] += amount
    return all(amount >= wanted[key] for key, amount in remaining.items())


MAX_RESULTS = 32  # the most devices in one claim (upstream AllocationResultsMaxSize)
FILTER_TIMEOUT_SECONDS = 10.0  # the time limit for one node (upstream DynamicResourcesArgs.filterTimeout)
TIMED_OUT = "timed out trying to allocate devices"
_STEPS_BETWEEN_CHECKS = 256
_EASY_STEPS = 64  # a search of up to this many steps is faster if it does not look for choices to skip

DeviceResults = tuple[tuple[DeviceResult, ...], ...]  # the devices that each claim gets


class NodeTimeLimit(NamedTuple):
    """The time limit of the search on one node.

    Attributes:
        monotonic: a clock that returns seconds.
        seconds: the time for this node.
        decision: the deadline of the whole decision, which may end the search earlier.
    """

    monotonic: Callable[[], float]
    seconds: float = FILTER_TIMEOUT_SECONDS
    decision: Deadline = NO_DEADLINE


UNTIMED = NodeTimeLimit(count(0, 0.005).__next__)
"""A limit whose clock advances by 5 ms at each check, so that the same search always has the same result."""


class _TooManyDevicesError(Exception):
    """Raised if a claim would get more than MAX_RESULTS devices. Another alternative of a request may need fewer."""


Search = Generator["Search | None", None, None]
"""A part of the search: yields a later part for each choice, and None when all devices are chosen.

When it is resumed, the part that it has yielded has failed, and it tries its next choice.
"""


class Allocator:
    """One search for the devices of some claims on one node."""

    def __init__(self, claims: ClaimsToAllocate, views: Views, allocated: AllocatedState, limit: NodeTimeLimit) -> None:
        self._claims = claims
        self._views = views
        self._limit = limit
        self._allocated = allocated
        self._allocating = AllocatingDevices(claims, allocated)
        self._candidates: list[Candidate] = [
            (device, view) for view in views if not view.incomplete and not view.invalid for device in view.devices
        ]
        self._all: dict[RequestData, list[Candidate]] = {}
        self._eligible: dict[RequestData, list[bool]] = {}
        self._likeness: dict[int, Hashable] = {}
        self._steps = 0
        self._deadline: float | None = None
        self._found: DeviceResults | None = None

    def run(self) -> DeviceResults | None:
        """Returns the devices for each claim, or None if there are not enough devices.

        Raises:
            AllocationError: a claim, a class or a pool is wrong, or the time limit was reached.
            DeadlineExceeded: the decision's deadline has passed.
        """
        for index, claim in enumerate(self._claims):
            fewest = 0
            for alternatives in claim.requests:
                least = min(map(self._count, alternatives))
                if fewest + least > MAX_RESULTS:
                    raise AllocationError(_too_many(alternatives[0], least, fewest), index)
                fewest += least
            if claim.fault:
                raise AllocationError(claim.fault, index)
        try:
            self._search(self._request(0, 0) if self._claims else None)
        except _TooManyDevicesError:
            raise AllocationError("allocation max size exceeded") from None
        return self._found

    def _accepts(self) -> bool:
        """Keeps the devices that are chosen now; returns True to end the search, False to look for others."""
        self._found = tuple(map(tuple, self._allocating.results))
        return True

    def _search(self, search: Search | None) -> None:
        """Searches until a part of the search yields None, and `_accepts` returns True for the choices made until then.

        If `_accepts` returns False, the search continues as if the last choice had failed. The parts are not calls
        inside calls, because a pod decides how many devices it requests.
        """
        if search is None:
            self._accepts()
            return
        parts: list[Search] = [search]
        error: _TooManyDevicesError | None = None
        while parts:
            part = parts[-1]
            try:
                later = next(part) if error is None else part.throw(error)
            except (StopIteration, _TooManyDevicesError) as ended:
                parts.pop()
                error = ended if isinstance(ended, _TooManyDevicesError) else None
                continue
            error = None
            if later is not None:
                parts.append(later)
            elif self._accepts():
                return
        if error is not None:
            raise error

    # ---- the search, one request after another

    def _later_claim(self, index: int) -> Search:
        """Chooses the devices of this claim and of those after it."""
        with suppress(_TooManyDevicesError):  # an earlier claim may leave other devices
            yield self._request(index, 0)

    def _request(self, claim: int, index: int) -> Search | None:
        """Chooses the devices of this request of the claim, and all later devices; None if there are none to choose."""
        requests = self._claims[claim].requests
        if index == len(requests):
            return self._later_claim(claim + 1) if claim + 1 < len(self._claims) else None
        alternatives = requests[index]
        if alternatives[0].is_alternative:
            return self._first_available(index, alternatives)
        return self._devices(index, alternatives[0], 0, 0)

    def _first_available(self, index: int, alternatives: tuple[RequestData, ...]) -> Search:
        any_ended = False
        for request in alternatives:
            try:
                yield self._devices(index, request, 0, 0)
            except _TooManyDevicesError:
                continue
            any_ended = True
        if not any_ended:
            raise _TooManyDevicesError

    def _devices(self, index: int, request: RequestData, got: int, start: int) -> Search | None:
        """Chooses all devices that the request still needs, and all later devices; None if there are none to choose.

        `index`: the index of the request in its claim. `got`: the number of devices that the request has already.
        `start`: the index of the first candidate to try.
        """
        self._check_time()
        wanted = len(self._all[request]) if request.takes_all else request.count
        if got >= wanted:
            return self._request(request.claim, index + 1) if got else self._no_device(index, request)
        if wanted - got > MAX_RESULTS - len(self._allocating.results[request.claim]):
            raise _TooManyDevicesError
        # The request must get exactly these devices, so the search tries no others.
        if request.takes_all:
            return self._with(index, request, got, self._all[request][got])
        return self._any_of(index, request, got, start, wanted - got)

    def _no_device(self, index: int, request: RequestData) -> Search:
        """Chooses all later devices for a request of 0 devices; a request for all devices fails if there are none."""
        if not request.takes_all:
            yield self._request(request.claim, index + 1)

    def _with(self, index: int, request: RequestData, got: int, candidate: Candidate, start: int = 0) -> Search:
        """Takes the candidate, if the request can get it, and chooses all later devices."""
        amounts = self._consumed(request, candidate[0])
        undo = None if amounts is None else self._allocating.take(request, candidate, amounts)
        if undo is not None:
            try:
                yield self._devices(index, request, got + 1, start)
            finally:
                undo()

    def _any_of(self, index: int, request: RequestData, got: int, start: int, wanted: int) -> Search:
        """Tries each candidate from `start` on as the request's next device, with all later devices.

        `wanted`: how many devices the request still needs.
        """
        failed: set[Hashable] = set()
        stop = len(self._candidates)
        for position in range(start, stop):
            if position >= stop:
                break
            candidate = self._candidates[position]
            if self._allocating.in_use(request, candidate[0]) or not self._is_selectable(request, candidate):
                continue
            if failed and self._likeness_of(position) in failed:
                continue
            yield from self._with(index, request, got, candidate, position + 1)
            if self._steps > _EASY_STEPS:
                stop = self._stop(request, position + 1, wanted)
                failed.add(self._likeness_of(position))

    def _stop(self, request: RequestData, start: int, wanted: int) -> int:
        """Returns the index at which `_any_of` can stop: from there on, fewer than `wanted` candidates remain."""
        eligible = self._eligible_for(request)
        if eligible is None:
            return len(self._candidates)
        remaining = [
            position
            for position in range(start, len(self._candidates))
            if eligible[position] and not self._allocating.in_use(request, self._candidates[position][0])
        ]
        return remaining[-wanted] + 1 if len(remaining) >= wanted else start

    def _check_time(self) -> None:
        self._steps += 1
        if self._steps % _STEPS_BETWEEN_CHECKS:
            return
        self._limit.decision.check("a choice of devices")
        now = self._limit.monotonic()
        if self._deadline is None:
            self._deadline = now + self._limit.seconds
        elif now > self._deadline:
            raise AllocationError(TIMED_OUT)

    # ---- the devices that a request may get

    def _count(self, request: RequestData) -> int:
        """Returns the number of devices that the request needs.

        For a request for all devices, finds these devices and stores them in `_all`.
        """
        if request.fault:
            raise request.error(request.fault)
        if not request.takes_all:
            return request.count
        self._all[request] = [candidate for view in self._views for candidate in self._all_of(request, view)]
        return len(self._all[request])

    def _all_of(self, request: RequestData, view: PoolView) -> list[Candidate]:
        """Returns the devices of the pool that satisfy the request, which asks for all devices."""
        if view.incomplete or view.invalid:
            state = "being updated" if view.incomplete else "invalid"
            text = f"asks for all devices, but resource pool {view.id} is currently {state}"
            raise request.error(text, of_node=self._allocated.behaviours.incomplete_pools_refuse_the_node)
        return [
            (device, view)
            for device in view.devices
            if self._is_selectable(request, (device, view)) and self._consumed(request, device) is not None
        ]

    def _eligible_for(self, request: RequestData) -> list[bool] | None:
        """Returns a list with True for each candidate that suits the request, even if a claim already has it.

        Returns None if a selector fails with an error for any candidate.
        """
        if request not in self._eligible:
            try:
                self._eligible[request] = [
                    self._is_selectable(request, candidate) and self._consumed(request, candidate[0]) is not None
                    for candidate in self._candidates
                ]
            except AllocationError:  # not raised here, because the search may never reach the device
                self._eligible[request] = []
        return self._eligible[request] or None

    def _likeness_of(self, position: int) -> Hashable:
        """Returns a key for the candidate at `position`. Every request treats candidates with equal keys alike."""
        if position not in self._likeness:
            device, view = self._candidates[position]
            requests = [
                request for claim in self._claims for alternatives in claim.requests for request in alternatives
            ]
            special = device.shareable or self._allocated.holds(device.id)
            if special or any(r.takes_all or r.admin or self._eligible_for(r) is None for r in requests):
                self._likeness[position] = device.id
            else:
                selected = tuple(self._eligible_for(r)[position] for r in requests)  # type: ignore[index]
                values = tuple(c.value_of(device) for claim in self._claims for c in claim.constraints)
                counters = (view.id, device.counters) if device.counters else ()
                self._likeness[position] = selected, values, device.taints, counters
        return self._likeness[position]

    def _is_selectable(self, request: RequestData, candidate: Candidate) -> bool:
        """Returns True if the node can access the device, and the selectors of class and request match it."""
        device, view = candidate
        self._limit.decision.check("a selector of devices")
        for of_class, index, expression in request.selectors:
            try:
                if not matches(expression, device, self._limit.decision):
                    return False
            except SelectorError as error:
                where = f" on device {device.id}" if error.at_run_time else ""
                text = f": selector #{index}{where}: {error}"
                if of_class:
                    raise AllocationError(f"class {of_class}{text}") from None
                raise AllocationError(text, request.claim) from None
        return device.id not in view.unreachable

    def _consumed(self, request: RequestData, device: PoolDevice) -> Amounts | None:
        return consumed_amounts(request, device, self._allocated)


def consumed_amounts(request: RequestData, device: PoolDevice, allocated: AllocatedState) -> Amounts | None:
    """Returns the amounts of the device's capacity that the request takes; None if the capacity is too small.

    What claims have already is not subtracted.

    Raises:
        AllocationError: an amount cannot be used in a calculation.
    """
    if device.amounts is not None and not request.capacity:
        return device.amounts[0]
    capacity = device.spec.capacity or {}
    try:
        domain = device.id.driver if allocated.behaviours.capacities_have_domains else None
        amounts = consumed(request.capacity, capacity, fractional=allocated.fractional, domain=domain)
    except CapacityError as error:
        raise request.error(f"checking capacity for device {device.id}: {error}") from None
    if amounts is not None and not has_room(amounts, capacity):
        amounts = None
    if not request.capacity:
        device.amounts = (amounts,)
    return amounts


def _too_many(request: RequestData, devices: int, before: int) -> str:
    limit = f"exceeds the claim limit of {MAX_RESULTS}, with {before} already accounted for"
    return f", request {request.parent}: adding {devices} devices {limit}"
