"""The first devices that satisfy all claims of a pod on one node: an exhaustive search that stops at a solution.

Requests are taken one after another, and for each the devices in the order of their pools, slices and places there;
where the rest cannot be satisfied, the last choice is taken back. Source: structured allocator Allocate, allocateOne.
"""

from __future__ import annotations

from extender.devices.cel.device import Amounts, PoolDevice
from extender.devices.cel.selectors import SelectorError, matches
from extender.devices.inventory.allocated import Allocated
from extender.devices.inventory.inventory import Views
from extender.devices.inventory.pools import PoolView
from extender.devices.search.capacity import CapacityError, consumed, has_room
from extender.devices.search.choice import Candidate, Choice, Pick, Undo
from extender.devices.search.questions import AllocationError, Ask, Question

MAX_RESULTS = 32  # devices in one claim (upstream AllocationResultsMaxSize)
MAX_STEPS = 50_000  # upstream gives up after ten seconds; steps are counted here, so that the answer is always the same

Picks = tuple[tuple[Pick, ...], ...]  # by claim


class ExhaustedError(Exception):
    """The search has taken too many steps."""


class _TooManyDevicesError(Exception):
    """A claim would get more devices than it can hold; another alternative may do with fewer."""


def search(question: Question, views: Views, allocated: Allocated, max_steps: int = MAX_STEPS) -> Picks | None:
    """The devices for each claim, None if there are not enough.

    Raises:
        AllocationError: something is wrong with a claim, a class or a pool.
        ExhaustedError: nothing was found within `max_steps`.
    """
    return _Search(question, views, allocated, max_steps).run()


class _Search:
    def __init__(self, question: Question, views: Views, allocated: Allocated, max_steps: int) -> None:
        self._question, self._views, self._max_steps = question, views, max_steps
        self._choice = Choice(question, allocated)
        self._candidates: list[Candidate] = [
            (device, view) for view in views if not view.incomplete and not view.invalid for device in view.devices
        ]
        self._all: dict[Ask, list[Candidate]] = {}
        self._steps = 0

    def run(self) -> Picks | None:
        for index, claim in enumerate(self._question):
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
        return tuple(map(tuple, self._choice.picks)) if found else None

    # ---- one request after another

    def _claim(self, index: int) -> bool:
        return index == len(self._question) or self._request(index, 0)

    def _request(self, claim: int, index: int) -> bool:
        requests = self._question[claim].requests
        if index == len(requests):
            try:
                return self._claim(claim + 1)
            except _TooManyDevicesError:
                return False
        alternatives = requests[index]
        if alternatives[0].is_alternative:
            return self._first_available(index, alternatives)
        return self._devices(index, alternatives[0], 0, 0)

    def _first_available(self, index: int, alternatives: tuple[Ask, ...]) -> bool:
        tried = False
        for ask in alternatives:
            try:
                if self._devices(index, ask, 0, 0):
                    return True
            except _TooManyDevicesError:
                continue
            tried = True
        if not tried:
            raise _TooManyDevicesError
        return False

    def _devices(self, index: int, ask: Ask, got: int, start: int) -> bool:
        """Finds the devices of a request from the `got`-th on, among the candidates from `start` on; then the rest."""
        self._steps += 1
        if self._steps > self._max_steps:
            raise ExhaustedError
        wanted = len(self._all[ask]) if ask.takes_all else ask.count
        if ask.takes_all and not wanted:
            return False
        if got >= wanted:
            return self._request(ask.claim, index + 1)
        if wanted - got > MAX_RESULTS - len(self._choice.picks[ask.claim]):
            raise _TooManyDevicesError
        if ask.takes_all:  # which they are is known: if one cannot be had, there is nothing else to try
            return self._try(index, ask, got, self._all[ask][got], 0)
        for position in range(start, len(self._candidates)):
            candidate = self._candidates[position]
            if self._choice.in_use(ask, candidate[0]) or not self._selectable(ask, candidate):
                continue
            if self._try(index, ask, got, candidate, position + 1):
                return True
        return False

    def _try(self, index: int, ask: Ask, got: int, candidate: Candidate, start: int) -> bool:
        """Takes the device and finds all the rest, else puts it back."""
        amounts = self._takes(ask, candidate[0])
        undo: Undo | None = None if amounts is None else self._choice.take(ask, candidate, amounts)
        if undo is None:
            return False
        done = False
        try:
            done = self._devices(index, ask, got + 1, start)
        finally:
            if not done:
                undo()
        return done

    # ---- which devices a request is for

    def _count(self, ask: Ask) -> int:
        """How many devices the request is for; for all, they are looked up."""
        if ask.fault:
            raise ask.error(ask.fault)
        if not ask.takes_all:
            return ask.count
        self._all[ask] = [candidate for view in self._views for candidate in self._all_of(ask, view)]
        return len(self._all[ask])

    def _all_of(self, ask: Ask, view: PoolView) -> list[Candidate]:
        """The devices of one pool that a request for all devices is for."""
        if view.incomplete or view.invalid:
            state = "being updated" if view.incomplete else "invalid"
            raise ask.error(f"asks for all devices, but resource pool {view.id} is currently {state}")
        return [
            (device, view)
            for device in view.devices
            if self._selectable(ask, (device, view)) and self._takes(ask, device) is not None
        ]

    def _selectable(self, ask: Ask, candidate: Candidate) -> bool:
        """Whether the selectors of class and request match, and the device is for this node."""
        device, view = candidate
        for of_class, index, expression in ask.selectors:
            try:
                if not matches(expression, device):
                    return False
            except SelectorError as error:
                where = f" on device {device.id}" if error.at_run_time else ""
                text = f": selector #{index}{where}: {error}"
                if of_class:
                    raise AllocationError(f"class {of_class}{text}") from None
                raise AllocationError(text, ask.claim) from None
        return device.id not in view.unreachable

    def _takes(self, ask: Ask, device: PoolDevice) -> Amounts | None:
        """What the request takes of the device's capacity; None where it cannot have it, even of an idle device."""
        if device.amounts is not None and not ask.capacity:
            return device.amounts[0]
        capacity = device.spec.capacity or {}
        try:
            amounts = consumed(ask.capacity, capacity)
        except CapacityError as error:
            raise ask.error(f"checking capacity for device {device.id}: {error}") from None
        if amounts is not None and not has_room(amounts, capacity):
            amounts = None
        if not ask.capacity:
            device.amounts = (amounts,)
        return amounts


def _too_many(ask: Ask, devices: int, before: int) -> str:
    limit = f"exceeds the claim limit of {MAX_RESULTS}, with {before} already accounted for"
    return f", request {ask.parent}: adding {devices} devices {limit}"
