"""Caches the devices that the allocator chose on each node, until the devices of the node change.

Pods of one workload have equal claims, and placing a pod changes the devices of one node. So for the next pod of the
workload, the allocator searches only that node again. A new claim that is plain enough is compared with the columns of
all devices, and the allocator searches only the node that is chosen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from extender.devices.allocator import UNTIMED, DeviceResults, NodeTimeLimit, allocate
from extender.devices.device_requests import AllocationError, ClaimsToAllocate, claim_data
from extender.devices.device_totals import POOLS, AllocatedState, ClassTotals, Expressions, expressions_of
from extender.devices.inventory import INVENTORIES, Inventories, Views
from extender.devices.plain_requests import PlainRequests, plain_request
from extender.framework.status import Code
from extender.model.devices import DeviceClass, ResourceClaim
from extender.runtime.clock import NO_DEADLINE
from extender.table import Table
from extender.table.journal import BEGINNING, Cursor, Journal
from extender.table.labels import IntColumn, Rows

FITS, _UNKNOWN = -1, -2
NOT_ALL = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"
BEST_ALTERNATIVE = 8  # the score of the first alternative of a request (upstream FirstAvailableDeviceRequestMaxSize)
_MAX_KEPT = 64
FindBest = Callable[[ClaimsToAllocate, Views, AllocatedState], DeviceResults | None]
"""Searches the devices for claims that are the best in some way; None if it finds none."""


class AllocationFailure(NamedTuple):
    """The reason why a node cannot provide the devices.

    Attributes:
        claim: the index of the claim at fault. Before showing `text`, the caller puts "claim NAMESPACE/NAME" in
            front. None if `text` is already complete.
    """

    code: Code
    text: str
    claim: int | None = None


class Devices:
    """The devices of the cluster, and the cached allocations for recent claims."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._objects = table.objects
        self.inventories = Inventories(table)
        self.allocated = AllocatedState(table)
        self._class_changes = Cursor(table.journal, DeviceClass.__name__)
        self._allocations: OrderedDict[Hashable, Allocations] = OrderedDict()
        self._totals: dict[Expressions, ClassTotals] = {}
        self._position = BEGINNING  # of the journal, after the last refresh
        self.plain_requests = PlainRequests(self.inventories, self.allocated, table.journal)

    def allocations(self, claims: Sequence[ResourceClaim]) -> Allocations:
        """Returns the cache of allocations for these claims of one pod. Equal claims of other pods share the cache."""
        self.refresh()
        if self._class_changes.advance():
            self._allocations.clear()
        key = msgspec.json.encode([(claim.spec.devices.requests, claim.spec.devices.constraints) for claim in claims])
        allocations = self._allocations.get(key)
        if allocations is None:
            classes = self._objects.all(DeviceClass)
            by_meaning = self._table.features.behaviours.attributes_fail_when_read
            to_allocate = tuple(
                claim_data(index, claim, classes, by_meaning=by_meaning) for index, claim in enumerate(claims)
            )
            allocations = self._allocations[key] = Allocations(to_allocate, self, self._table.journal)
            if len(self._allocations) > _MAX_KEPT:
                self._allocations.popitem(last=False)
        self._allocations.move_to_end(key)
        allocations.refresh()
        return allocations

    def totals(self, device_class: DeviceClass) -> ClassTotals:
        """Returns how many devices of the class each node can access, and how many of these are allocated."""
        self.refresh()
        expressions = expressions_of(device_class)
        if expressions not in self._totals:
            if len(self._totals) >= _MAX_KEPT:
                self._totals.clear()
            self._totals[expressions] = ClassTotals(expressions, self._table, self.allocated)
        totals = self._totals[expressions]
        with self._table.until(NO_DEADLINE):  # an interruption would lose changes that are already marked as read
            totals.refresh(self.inventories.pools)
        return totals

    def refresh(self) -> None:
        """Updates the devices after changes of slices, nodes and claims.

        The decision's deadline is ignored. Changes are first marked as read, so an interruption would lose them.
        """
        journal = self._table.journal
        if self._position == journal.now:
            return
        with self._table.until(NO_DEADLINE):
            changed = self.inventories.refresh()
            claimed = self.allocated.refresh()
        for pool in changed | claimed:
            note = journal.note if pool in self.inventories.pools else journal.note_removed
            note(POOLS, pool)
        for pool in claimed:
            for number in self.inventories.reaching.get(pool, ()):
                journal.note(INVENTORIES, number)
        self._position = journal.now


def devices_of(table: Table) -> Devices:
    """Returns the `Devices` of this table, which are created once."""
    return table.reader(Devices)


class Allocations:
    """Caches the allocations for one list of claims, by inventory (the device pools that a node can access).

    Attributes:
        claims: the claims, prepared for the allocator.
        failures: the distinct failures; `outcomes` returns indices of this list.
    """

    def __init__(self, claims: ClaimsToAllocate, devices: Devices, journal: Journal) -> None:
        self.failures: list[AllocationFailure] = []
        self._index_of: dict[AllocationFailure, int] = {}
        self.claims = claims
        self._plain = plain_request(claims)
        self._devices = devices
        self._outcome: Rows = np.zeros(0, np.intp)
        self._results: dict[int, DeviceResults] = {}
        self._touched = Cursor(journal, INVENTORIES)

    def refresh(self) -> None:
        """Drops the cached results for nodes whose device pools have changed."""
        touched = self._touched.read()
        if touched is None:
            self._outcome[:] = _UNKNOWN
            self._results.clear()
        else:
            self._outcome[[number for number in touched if number < len(self._outcome)]] = _UNKNOWN
            for number in touched:
                self._results.pop(number, None)
        missing = len(self._devices.inventories.views) - len(self._outcome)
        if missing > 0:
            self._outcome = np.pad(self._outcome, (0, missing), constant_values=_UNKNOWN)

    def outcomes(self, rows: Rows, limit: NodeTimeLimit) -> Rows:
        """Returns intp[len(rows)]: FITS if the node can provide the devices, or else an index of `failures`.

        `limit`: the time limit for each search; nodes that can access the same pools share one search.
        """
        numbers = self._devices.inventories.number[rows]
        outcomes = self._outcome[numbers]
        unknown = outcomes == _UNKNOWN
        if unknown.any():
            missing = np.zeros(len(self._outcome), np.bool_)
            missing[numbers[unknown]] = True
            self._learn(np.flatnonzero(missing), limit)
            outcomes = self._outcome[numbers]
        return outcomes

    def _learn(self, numbers: Rows, limit: NodeTimeLimit) -> None:
        """Finds the outcomes for these inventories."""
        if self._plain is not None and len(numbers) > 1 and not self._devices.inventories.fault:
            enough, is_certain = self._devices.plain_requests.enough(self._plain, limit.decision)
            certain = numbers[is_certain[numbers]]
            lacking = certain[~enough[certain]]
            self._outcome[certain] = FITS
            for text, of_text in ((NOT_ALL, False), (INVALID_POOLS, True)):
                failed = lacking[self._devices.plain_requests.invalid[lacking] == of_text]
                if len(failed):
                    self._outcome[failed] = self._failure(_lack(text))
            numbers = numbers[~is_certain[numbers]]
        for number in numbers.tolist():
            self._outcome[number] = self._find(number, limit)

    def results(self, row: int) -> DeviceResults:
        """Returns the devices that each claim gets on the node in `row`, whose outcome must be FITS."""
        number = int(self._devices.inventories.number[row])
        if number not in self._results:  # the columns have shown that the devices are there, but have not chosen any
            self._outcome[number] = self._find(number, UNTIMED)
        return self._results[number]

    def best(self, row: int, find: FindBest) -> DeviceResults:
        """Returns what `find` prefers on the node in `row`, or else the same as `results`."""
        views = self._devices.inventories.views[int(self._devices.inventories.number[row])]
        return find(self.claims, views, self._devices.allocated) or self.results(row)

    def scores(self, rows: Rows) -> IntColumn:
        """Returns int64[len(rows)]: a row scores higher if its devices satisfy earlier alternatives of the requests.

        All rows must have the outcome FITS.
        """
        if self._plain is not None:
            return np.zeros(len(rows), np.int64)
        numbers, positions = np.unique(self._devices.inventories.number[rows], return_inverse=True)
        scores = np.array([self._score(self._results[number]) for number in numbers.tolist()], np.int64)
        return scores[positions]

    def _find(self, number: int, limit: NodeTimeLimit) -> int:
        views = self._devices.inventories.views[number]
        if gathering := self._devices.inventories.fault:
            return self._failure(AllocationFailure(Code.ERROR, f"gather pool information: {gathering}"))
        try:
            results = allocate(self.claims, views, self._devices.allocated, limit)
        except AllocationError as fault:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if fault.of_node else Code.ERROR
            return self._failure(AllocationFailure(code, fault.text, fault.claim))
        if results is None:
            text = INVALID_POOLS if any(view.invalid for view in views) else NOT_ALL
            return self._failure(_lack(text))
        self._results[number] = results
        return FITS

    def _failure(self, failure: AllocationFailure) -> int:
        index = self._index_of.setdefault(failure, len(self.failures))
        if index == len(self.failures):
            self.failures.append(failure)
        return index

    def _score(self, results: DeviceResults) -> int:
        taken = {result.request for of_claim in results for result in of_claim}
        return sum(
            BEST_ALTERNATIVE - place
            for claim in self.claims
            for alternatives in claim.requests
            for place, alternative in enumerate(alternatives)
            if alternative in taken and alternative.is_alternative
        )


def _lack(text: str) -> AllocationFailure:
    return AllocationFailure(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
