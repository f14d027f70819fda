"""The first devices that satisfy all claims of a pod on one node: an exhaustive search that stops at a solution.

Requests are taken one after another, and for each the devices in the order of their pools, slices and places there;
where the rest cannot be satisfied, the last choice is taken back. Two branches are left out that cannot lead to a
solution: fewer devices left than wanted, and a device just like one that was tried in this place in vain.
Source: structured allocator Allocate, allocateOne.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count
from typing import NamedTuple

from extender.devices.allocator.allocating import AllocatingDevices, Candidate, DeviceResult, Undo
from extender.devices.allocator.consumable_capacity import CapacityError, consumed, has_room
from extender.devices.allocator.requests import AllocationError, ClaimsToAllocate, RequestData
from extender.devices.cel.selectors import SelectorError, matches
from extender.devices.device import Amounts, PoolDevice
from extender.devices.inventory.allocated import AllocatedState
from extender.devices.inventory.inventory import Views
from extender.devices.inventory.pools import PoolView
from extender.runtime.clock import NO_DEADLINE, Deadline

MAX_RESULTS = 32  # devices in one claim (upstream AllocationResultsMaxSize)
FILTER_TIMEOUT_SECONDS = 10.0  # for one node (upstream DynamicResourcesArgs.filterTimeout)
TIMED_OUT = "timed out trying to allocate devices"
_STEPS_BETWEEN_LOOKS = 256
_EASY_STEPS = 64  # searches up to this long end sooner without looking for branches to leave out

DeviceResults = tuple[tuple[DeviceResult, ...], ...]  # by claim


class NodeTimeLimit(NamedTuple):
    """The time that a node may take, by a clock that gives seconds; no node goes on beyond the end of the decision."""

    monotonic: Callable[[], float]
    seconds: float = FILTER_TIMEOUT_SECONDS
    decision: Deadline = NO_DEADLINE


UNTIMED = NodeTimeLimit(count(0, 0.005).__next__)
"""Counts five milliseconds for each look at the clock, so that the same search always ends alike."""


class _TooManyDevicesError(Exception):
    """A claim would get more devices than it can hold; another alternative may do with fewer."""


def allocate(
    claims: ClaimsToAllocate, views: Views, allocated: AllocatedState, limit: NodeTimeLimit
) -> DeviceResults | None:
    """The devices for each claim, None if there are not enough.

    Raises:
        AllocationError: something is wrong with a claim, a class or a pool; or nothing was found within the time limit.
        DeadlineExceeded: the decision's time is over.
    """
    return _Allocator(claims, views, allocated, limit).run()


class _Allocator:
    def __init__(self, claims: ClaimsToAllocate, views: Views, allocated: AllocatedState, limit: NodeTimeLimit) -> None:
        self._claims, self._views, self._limit = claims, views, limit
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

    def run(self) -> DeviceResults | None:
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
            found = self._claim(0)
        except _TooManyDevicesError:
            raise AllocationError("allocation max size exceeded") from None
        return tuple(map(tuple, self._allocating.results)) if found else None

    # ---- one request after another

    def _claim(self, index: int) -> bool:
        return index == len(self._claims) or self._request(index, 0)

    def _request(self, claim: int, index: int) -> bool:
        requests = self._claims[claim].requests
        if index == len(requests):
            try:
                return self._claim(claim + 1)
            except _TooManyDevicesError:
                return False
        alternatives = requests[index]
        if alternatives[0].is_alternative:
            return self._first_available(index, alternatives)
        return self._devices(index, alternatives[0], 0, 0)

    def _first_available(self, index: int, alternatives: tuple[RequestData, ...]) -> bool:
        tried = False
        for request in alternatives:
            try:
                if self._devices(index, request, 0, 0):
                    return True
            except _TooManyDevicesError:
                continue
            tried = True
        if not tried:
            raise _TooManyDevicesError
        return False

    def _devices(self, index: int, request: RequestData, got: int, start: int) -> bool:
        """Finds the devices of a request from the `got`-th on, among the candidates from `start` on; then the rest."""
        self._check_time()
        wanted = len(self._all[request]) if request.takes_all else request.count
        if request.takes_all and not wanted:
            return False
        if got >= wanted:
            return self._request(request.claim, index + 1)
        if wanted - got > MAX_RESULTS - len(self._allocating.results[request.claim]):
            raise _TooManyDevicesError
        if request.takes_all:  # which they are is known: if one cannot be had, there is nothing else to try
            return self._try(index, request, got, self._all[request][got], 0)
        return self._any_of(index, request, got, start, wanted - got)

    def _any_of(self, index: int, request: RequestData, got: int, start: int, wanted: int) -> bool:
        """Tries one candidate after another for the next device of a request that wants some more."""
        in_vain: set[Hashable] = set()
        stop = len(self._candidates)
        for position in range(start, stop):
            if position >= stop:
                break
            candidate = self._candidates[position]
            if self._allocating.in_use(request, candidate[0]) or not self._is_selectable(request, candidate):
                continue
            if in_vain and self._likeness_of(position) in in_vain:
                continue
            if self._try(index, request, got, candidate, position + 1):
                return True
            if self._steps > _EASY_STEPS:
                stop = self._stop(request, position + 1, wanted)
                in_vain.add(self._likeness_of(position))
        return False

    def _stop(self, request: RequestData, start: int, wanted: int) -> int:
        """The position from which fewer devices than wanted are left."""
        eligible = self._eligible_for(request)
        if eligible is None:
            return len(self._candidates)
        left = [
            position
            for position in range(start, len(self._candidates))
            if eligible[position] and not self._allocating.in_use(request, self._candidates[position][0])
        ]
        return left[-wanted] + 1 if len(left) >= wanted else start

    def _try(self, index: int, request: RequestData, got: int, candidate: Candidate, start: int) -> bool:
        """Takes the device and finds all the rest, else puts it back."""
        amounts = self._consumed(request, candidate[0])
        undo: Undo | None = None if amounts is None else self._allocating.take(request, candidate, amounts)
        if undo is None:
            return False
        done = False
        try:
            done = self._devices(index, request, got + 1, start)
        finally:
            if not done:
                undo()
        return done

    def _check_time(self) -> None:
        self._steps += 1
        if self._steps % _STEPS_BETWEEN_LOOKS:
            return
        self._limit.decision.check("a choice of devices")
        now = self._limit.monotonic()
        if self._deadline is None:
            self._deadline = now + self._limit.seconds
        elif now > self._deadline:
            raise AllocationError(TIMED_OUT)

    # ---- which devices a request is for

    def _count(self, request: RequestData) -> int:
        """The number of devices that the request is for; for all, they are looked up."""
        if request.fault:
            raise request.error(request.fault)
        if not request.takes_all:
            return request.count
        self._all[request] = [candidate for view in self._views for candidate in self._all_of(request, view)]
        return len(self._all[request])

    def _all_of(self, request: RequestData, view: PoolView) -> list[Candidate]:
        """The devices of one pool that a request for all devices is for."""
        if view.incomplete or view.invalid:
            state = "being updated" if view.incomplete else "invalid"
            raise request.error(f"asks for all devices, but resource pool {view.id} is currently {state}")
        return [
            (device, view)
            for device in view.devices
            if self._is_selectable(request, (device, view)) and self._consumed(request, device) is not None
        ]

    def _eligible_for(self, request: RequestData) -> list[bool] | None:
        """Tells the candidates that the request could have were they idle: by position. None: one of them fails."""
        if request not in self._eligible:
            try:
                self._eligible[request] = [
                    self._is_selectable(request, candidate) and self._consumed(request, candidate[0]) is not None
                    for candidate in self._candidates
                ]
            except AllocationError:  # raised again when the search comes to the device, if it does
                self._eligible[request] = []
        return self._eligible[request] or None

    def _likeness_of(self, position: int) -> Hashable:
        """Equal for candidates that are interchangeable for all requests of all claims."""
        if position not in self._likeness:
            device, view = self._candidates[position]
            data = [each for claim in self._claims for alternatives in claim.requests for each in alternatives]
            special = device.shareable or self._allocated.holds(device.id)
            if special or any(each.takes_all or each.admin or self._eligible_for(each) is None for each in data):
                self._likeness[position] = device.id
            else:
                selected = tuple(self._eligible_for(each)[position] for each in data)  # type: ignore[index] # see above
                values = tuple(each.value_of(device) for claim in self._claims for each in claim.constraints)
                taints = tuple((taint.key, taint.value, taint.effect) for taint in device.taints)
                counters = (view.id, device.counters) if device.counters else ()
                self._likeness[position] = selected, values, taints, counters
        return self._likeness[position]

    def _is_selectable(self, request: RequestData, candidate: Candidate) -> bool:
        """Tells whether the selectors of class and request match, and the device is for this node."""
        device, view = candidate
        self._limit.decision.check("a selector of devices")  # each of which may take a second or more
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
        """The amounts of the device's capacity for the request; None where even an idle device has not enough."""
        if device.amounts is not None and not request.capacity:
            return device.amounts[0]
        capacity = device.spec.capacity or {}
        try:
            amounts = consumed(request.capacity, capacity, fractional=self._allocated.fractional)
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
