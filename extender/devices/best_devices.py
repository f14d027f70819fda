"""Finds the devices on one node that a policy likes best, within a budget of choices.

The search is the allocator's, so that every rule about devices is the same. It tries devices in the order of their
scores instead of their positions, and continues after it has found devices for all claims, until none can be better
or the budget is spent. Under the policy FirstFit all scores are equal, so that the result is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from extender.devices.allocator import UNTIMED, Allocator, DeviceResults, Search
from extender.devices.device_columns import DeviceColumns, Layout
from extender.devices.device_nodes import WHOLE, DeviceAsk, Ints
from extender.devices.device_requests import AllocationError, ClaimsToAllocate, RequestData
from extender.devices.device_totals import AllocatedState
from extender.devices.inventory import PoolDevice, Views
from extender.devices.policies import Weighted

_BUDGET = 200
"""Choices of devices, after which the best that was found is taken."""


class _BudgetSpentError(Exception):
    pass


class _Scored(NamedTuple):
    """The candidates of a request in the order in which they are tried: their positions and scores."""

    positions: Sequence[int]
    scores: Sequence[int]

    @property
    def differs(self) -> bool:
        return self.scores[0] != self.scores[-1] if self.scores else False


class BestDevices(Allocator):
    """One search on one node. `resources`: the CPU and memory that the pod requests."""

    def __init__(
        self,
        claims: ClaimsToAllocate,
        views: Views,
        allocated: AllocatedState,
        columns: DeviceColumns,
        row: int,
        resources: tuple[int, int],
        parts: Sequence[Weighted],
    ) -> None:
        super().__init__(claims, views, allocated, UNTIMED)
        self._columns = columns
        self._row = row
        self._resources = resources
        self._parts = parts
        self._layout: Layout | None = columns.layout_of(row)
        self._orders: dict[RequestData, _Scored] = {}
        self._sum = 0
        self._differing = 0
        self._best: DeviceResults | None = None
        self._best_sum = 0

    def find(self) -> DeviceResults | None:
        """Returns the devices of each claim; None if the budget ends before any are found."""
        if self._layout is None:
            return None
        with suppress(_BudgetSpentError, AllocationError):
            self.run()
        return self._best

    def _accepts(self) -> bool:
        if self._best is None or self._sum > self._best_sum:
            self._best = tuple(map(tuple, self._allocating.results))
            self._best_sum = self._sum
        # The first devices found are the best if the policy had a preference at one choice only.
        return self._differing <= 1

    def _check_time(self) -> None:
        super()._check_time()
        if self._steps > _BUDGET:
            raise _BudgetSpentError

    def _any_of(  # the base class stops early by `wanted`
        self,
        index: int,
        request: RequestData,
        got: int,
        start: int,
        wanted: int,  # noqa: ARG002  see above
    ) -> Search:
        """Tries each candidate from `start` on, in the order that was made for the request's first device."""
        if not got:
            self._orders[request] = self._order(request)
        order = self._orders[request]
        self._differing += order.differs
        for place in range(start, len(order.positions)):
            candidate = self._candidates[order.positions[place]]
            if self._allocating.in_use(request, candidate[0]) or not self._is_selectable(request, candidate):
                continue
            undo = self._taken(request, candidate)
            if undo is not None:
                self._sum += order.scores[place]
                try:
                    yield self._devices(index, request, got + 1, place + 1)
                finally:
                    self._sum -= order.scores[place]
                    undo()
        self._differing -= order.differs

    def _order(self, request: RequestData) -> _Scored:
        """Returns the candidates that are free, the best first; of equals, the first in kube-scheduler's order."""
        free = self._free()
        scored: list[tuple[int, int]] = []
        by_size: dict[int, Ints] = {}
        for position in range(len(self._candidates)):
            slot, size = self._place(request, self._candidates[position][0])
            if size and free[slot] >= size:
                if size not in by_size:
                    by_size[size] = self._scores(free, size, request.count)
                scored.append((-int(by_size[size][slot]), position))
        scored.sort()
        return _Scored([position for _, position in scored], [-score for score, _ in scored])

    def _place(self, request: RequestData, device: PoolDevice) -> tuple[int, int]:
        """Returns the device's slot, and the thousandths of it that the request takes; 0 if it cannot use it."""
        assert self._layout is not None
        slot, part = self._layout.place_of.get(device.id, (0, 0))
        if not part:
            return 0, 0
        number = self._layout.classes[slot]
        if not device.counters:  # all devices of the class are of one size
            return slot, int(self._columns.sizes(request)[number])
        return slot, self._columns.size(request, device, part, self._columns.classes[number].resource)

    def _free(self) -> Ints:
        """Returns int64[slot]: the thousandths that the claims leave free with the devices chosen so far."""
        free: Ints = self._columns.nodes.free[self._row].copy()
        for results in self._allocating.results:
            for result in results:
                slot, size = self._place(result.request, result.device)
                free[slot] -= size
        return free

    def _scores(self, free: Ints, size: int, count: int) -> Ints:
        """Returns int64[slot]: the weighted sum of the policies' scores for a device of this size on each slot."""
        nodes = self._columns.nodes.take(np.array([self._row]))
        if not np.array_equal(nodes.free[0], free):
            nodes.free[0] = free
            nodes.touch()
        ask = DeviceAsk(*self._resources, size, count if size == WHOLE else 1)
        scores = [part.weight * part.policy.score(nodes, ask)[0] for part in self._parts]
        by_slot = [each for each in scores if each.ndim]
        result: Ints = np.sum(by_slot, axis=0) if by_slot else -free
        return result
