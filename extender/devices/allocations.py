"""Caches the devices that the allocator chose on each node, until the devices of the node change.

Pods of one workload have equal claims, and placing a pod changes the devices of one node. So for the next pod of the
workload, the allocator searches only that node again.

The allocator searches one node at a time, which is slow when every pod has a different claim. But a claim with a single
request for devices that do not depend on each other needs no search: a node provides them if enough of its devices
match, tolerate and have room. `PlainRequests.enough` compares such a request with columns that have one row for each
device of the cluster. Devices that look alike to a selector share one evaluation. Nodes on which a device cannot be
judged in this way are left to the allocator, which also chooses the devices once the node is known.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.devices.allocator import (
    MAX_RESULTS,
    UNTIMED,
    Allocator,
    DeviceResults,
    NodeTimeLimit,
    consumed_amounts,
    has_counters,
    remaining_counters,
)
from extender.devices.cel.device_selectors import SelectorError, compilation_fault, kind_reader, matches
from extender.devices.device_requests import AllocationError, ClaimsToAllocate, RequestData, claim_data
from extender.devices.device_totals import POOLS, AllocatedState, ClassTotals, Expressions, expressions_of
from extender.devices.inventory import INVENTORIES, Inventories, PoolDevice, PoolID, PoolView, Views
from extender.framework.status import Code
from extender.model.devices import DeviceClass, ResourceClaim
from extender.model.quantity import INT64_MAX, NANO, nano
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import Table
from extender.table.filing import Numbers, cached
from extender.table.journal import BEGINNING, Cursor, Journal
from extender.table.labels import BoolColumn, IntColumn, Rows

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

    text: str
    claim: int | None = None
    code: Code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class Devices:
    """The devices of the cluster, and the cached allocations for recent claims."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._objects = table.objects
        self.inventories = Inventories(table)
        self.allocated = AllocatedState(table)
        self._class_changes = Cursor(table.journal, DeviceClass.__name__)
        self._allocations: OrderedDict[Hashable, Allocations] = OrderedDict()
        self._totals: OrderedDict[Expressions, ClassTotals] = OrderedDict()
        self._position = BEGINNING  # of the journal, after the last refresh
        self.plain_requests = PlainRequests(self.inventories, self.allocated, table.journal)

    def allocations(self, claims: Sequence[ResourceClaim]) -> Allocations:
        """Returns the cache of allocations for these claims of one pod. Equal claims of other pods share the cache."""
        self.refresh()
        if self._class_changes.advance():
            self._allocations.clear()
        key = msgspec.json.encode([(claim.spec.devices.requests, claim.spec.devices.constraints) for claim in claims])
        allocations = cached(self._allocations, key, lambda: self._new_allocations(claims), _MAX_KEPT)
        allocations.refresh()
        return allocations

    def _new_allocations(self, claims: Sequence[ResourceClaim]) -> Allocations:
        classes = self._objects.all(DeviceClass)
        by_meaning = self.allocated.behaviours.attributes_fail_when_read
        to_allocate = (claim_data(index, claim, classes, by_meaning=by_meaning) for index, claim in enumerate(claims))
        return Allocations(tuple(to_allocate), self, self._table.journal)

    def totals(self, device_class: DeviceClass) -> ClassTotals:
        """Returns how many devices of the class each node can access, and how many of these are allocated."""
        self.refresh()
        expressions = expressions_of(device_class)
        totals = cached(
            self._totals, expressions, lambda: ClassTotals(expressions, self._table, self.allocated), _MAX_KEPT
        )
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
        self._failures: Numbers[AllocationFailure] = Numbers()
        self.failures = self._failures.values
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
                    self._outcome[failed] = self._failures.of(AllocationFailure(text))
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
            return self._failures.of(AllocationFailure(f"gather pool information: {gathering}", code=Code.ERROR))
        try:
            results = Allocator(self.claims, views, self._devices.allocated, limit).run()
        except AllocationError as fault:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if fault.of_node else Code.ERROR
            return self._failures.of(AllocationFailure(fault.text, fault.claim, code))
        if results is None:
            text = INVALID_POOLS if any(view.invalid for view in views) else NOT_ALL
            return self._failures.of(AllocationFailure(text))
        self._results[number] = results
        return FITS

    def _score(self, results: DeviceResults) -> int:
        taken = {result.request for of_claim in results for result in of_claim}
        return sum(
            BEST_ALTERNATIVE - place
            for claim in self.claims
            for alternatives in claim.requests
            for place, alternative in enumerate(alternatives)
            if alternative in taken and alternative.is_alternative
        )


Codes = NDArray[np.int8]
_UNDECIDED, _NO, _YES, _FAULT = range(4)
_MAX_KINDS, _MAX_SELECTORS = 16, 128


def plain_request(claims: ClaimsToAllocate) -> RequestData | None:
    """Returns the only request of the claims; None if they need a search because devices depend on each other.

    A request with a fault, which excludes every node, needs the allocator too: it reports the fault.
    """
    if len(claims) != 1 or claims[0].fault or claims[0].constraints or len(claims[0].requests) != 1:
        return None
    request = claims[0].requests[0][0]
    if request.is_alternative or request.fault or request.takes_all or request.admin or request.count > MAX_RESULTS:
        return None
    faulty = any(compilation_fault(expression) is not None for _, _, expression in request.selectors)
    return None if faulty else request


class _Kinds:
    """A column that numbers the kinds of devices: devices with equal keys are of one kind.

    Attributes:
        ids: intp[device]: the kind of each device.
        examples: one device of each kind.
    """

    def __init__(self, key: Callable[[PoolDevice], Hashable]) -> None:
        self._key = key
        self._id_of: dict[Hashable, int] = {}
        self.ids: Rows = np.zeros(0, np.intp)
        self.examples: list[PoolDevice] = []

    def extend(self, devices: Sequence[PoolDevice]) -> None:
        """Numbers the devices that follow those numbered so far."""
        more = [self._id(device) for device in devices[len(self.ids) :]]
        if more:
            self.ids = np.concatenate((self.ids, np.array(more, np.intp)))

    def _id(self, device: PoolDevice) -> int:
        number = self._id_of.setdefault(self._key(device), len(self.examples))
        if number == len(self.examples):
            self.examples.append(device)
        return number


class _SelectorKinds(_Kinds):
    """The kinds of devices that some selectors cannot tell apart, and what these selectors say about each kind."""

    def __init__(self, key: Callable[[PoolDevice], Hashable]) -> None:
        super().__init__(key)
        self._codes: OrderedDict[str, Codes] = OrderedDict()

    def verdicts(self, expression: str, devices: BoolColumn, deadline: Deadline) -> Codes:
        """Returns int8[device]: the selector's verdict about each of these `devices`; undefined for the others."""
        codes = cached(self._codes, expression, lambda: np.zeros(0, np.int8), _MAX_SELECTORS)
        missing = len(self.examples) - len(codes)
        if missing:
            codes = self._codes[expression] = np.pad(codes, (0, missing))
        if not codes.all():
            needed = np.bincount(self.ids[devices], minlength=len(codes)) > 0
            for kind in np.flatnonzero(needed & (codes == _UNDECIDED)).tolist():
                codes[kind] = _verdict(expression, self.examples[kind], deadline)
        of_devices: Codes = codes[self.ids]
        return of_devices


def _verdict(expression: str, device: PoolDevice, deadline: Deadline) -> int:
    deadline.check("a selector of devices")
    try:
        return _YES if matches(expression, device, deadline) else _NO
    except SelectorError:
        return _FAULT


class PlainRequests:
    """Compares plain requests with columns of all devices, which follow the inventories and the allocated devices.

    A device has one row for each view of its pool. The rows of views that no node has any longer stay until the
    inventories start over.
    """

    def __init__(self, inventories: Inventories, allocated: AllocatedState, journal: Journal) -> None:
        self._inventories = inventories
        self._allocated = allocated
        self._changed_pools = Cursor(journal, POOLS)
        self._start_over()

    def _start_over(self) -> None:
        # The inventories replace their list when they start over.
        self._followed: Sequence[Views] = self._inventories.views
        self._known = 0  # the number of inventories that the columns contain
        self._number_of: dict[PoolView, int] = {}
        self._first: list[int] = []  # view -> the row of its first device
        self._views_of: defaultdict[PoolID, list[PoolView]] = defaultdict(list)
        self._devices: list[PoolDevice] = []
        self._view: Rows = np.zeros(0, np.intp)  # [device] -> the number of the view
        self._tried: BoolColumn = np.zeros(0, np.bool_)  # [device]: False if a claim has it as a whole
        self._free: BoolColumn = np.zeros(0, np.bool_)  # [device]: True if a request that matches can get it
        self._draws: BoolColumn = np.zeros(0, np.bool_)  # [device]: True if it still has to draw on shared counters
        self._room: dict[str, IntColumn] = {}  # capacity -> int64[device]: the whole units that are left
        self._taints = _Kinds(lambda device: device.taints)
        self._capacities = _Kinds(lambda device: (device.id.driver, msgspec.json.encode(device.spec.capacity)))
        self._offered: list[dict[str, int]] = []  # kind of capacities -> their amounts in billionths
        self._kinds: OrderedDict[Hashable, _SelectorKinds] = OrderedDict()
        self._pair_inventory: Rows = np.zeros(0, np.intp)
        self._pair_view: Rows = np.zeros(0, np.intp)
        self.invalid: BoolColumn = np.zeros(0, np.bool_)
        """bool[inventory]: True if one of the inventory's pools is invalid."""

    def enough(self, request: RequestData, deadline: Deadline) -> tuple[BoolColumn, BoolColumn]:
        """Returns, for each inventory, whether it satisfies the `plain_request`, and whether this is certain."""
        self._refresh()
        suitable, uncertain = self._tried.copy(), np.zeros(len(self._tried), np.bool_)
        for _, _, expression in request.selectors:
            codes = self._kinds_for(expression).verdicts(expression, suitable, deadline)
            uncertain |= suitable & (codes == _FAULT)
            suitable &= codes == _YES
        self._leave_out_full(request, suitable, uncertain)
        suitable &= self._free
        self._leave_out_tainted(request, suitable)
        if request.count > 1:
            uncertain |= suitable & self._draws
        return self._per_inventory(suitable) >= request.count, self._per_inventory(uncertain) == 0

    def _leave_out_tainted(self, request: RequestData, suitable: BoolColumn) -> None:
        tolerated = [not request.is_repelled_by(example.taints) for example in self._taints.examples]
        if not all(tolerated):
            suitable &= np.array(tolerated, np.bool_)[self._taints.ids]

    def _leave_out_full(self, request: RequestData, suitable: BoolColumn, uncertain: BoolColumn) -> None:
        """Leaves out the devices that lack capacity for the request."""
        examples, ids = self._capacities.examples, self._capacities.ids
        codes: Codes = np.full(len(examples), _YES, np.int8)
        least = {name: np.full(len(examples), -INT64_MAX) for name in self._room}
        for kind in np.flatnonzero(np.bincount(ids[suitable], minlength=len(examples))).tolist():
            try:
                amounts = consumed_amounts(request, examples[kind], self._allocated)
            except AllocationError:
                codes[kind] = _FAULT
                continue
            if amounts is None:
                codes[kind] = _NO
            elif any(amount % NANO or amount > INT64_MAX * NANO for amount in amounts.values()):
                codes[kind] = _FAULT
            else:
                for name, amount in amounts.items():
                    least[name][kind] = amount // NANO
        of_devices = codes[ids]
        uncertain |= suitable & (of_devices == _FAULT)
        suitable &= of_devices == _YES
        for name, room in self._room.items():
            suitable &= room >= least[name][ids]

    def _per_inventory(self, devices: BoolColumn) -> Rows:
        """Returns intp[inventory]: how many of these devices each inventory has."""
        of_views = np.bincount(self._view[devices], minlength=len(self._first))
        counts = np.bincount(self._pair_inventory, of_views[self._pair_view], minlength=self._known)
        return counts.astype(np.intp)

    def _kinds_for(self, expression: str) -> _SelectorKinds:
        reads, key = kind_reader(expression)
        kinds = cached(self._kinds, reads, lambda: _SelectorKinds(key), _MAX_KINDS)
        kinds.extend(self._devices)
        return kinds

    # ---- follows the inventories

    def _refresh(self) -> None:
        if self._inventories.views is not self._followed:
            self._start_over()
        followed = self._followed
        self._followed = []  # an error half-way makes the columns start over
        changed = self._changed_pools.read()
        stale = self._number_of if changed is None else [v for pool in changed for v in self._views_of.get(pool, ())]
        for view in stale:
            self._read(view)
        if self._known < len(followed):
            self._add(followed)
        self._followed = followed

    def _add(self, inventories: Sequence[Views]) -> None:
        """Adds the inventories that are not known yet."""
        numbers = range(self._known, len(inventories))
        views = [(number, view) for number in numbers for view in inventories[number]]
        new = [view for view in dict.fromkeys(view for _, view in views) if view not in self._number_of]
        for view in new:
            self._number_of[view] = len(self._first)
            self._first.append(len(self._devices))
            self._views_of[view.id].append(view)
            self._devices += view.devices
        self._widen(new)
        pairs = np.array([(number, self._number_of[view]) for number, view in views], np.intp).reshape(-1, 2)
        self._pair_inventory = np.concatenate((self._pair_inventory, pairs[:, 0]))
        self._pair_view = np.concatenate((self._pair_view, pairs[:, 1]))
        invalid = [any(view.invalid for view in inventories[number]) for number in numbers]
        self.invalid = np.concatenate((self.invalid, np.array(invalid, np.bool_)))
        self._known = len(inventories)
        for view in new:
            self._read(view)

    def _widen(self, views: Sequence[PoolView]) -> None:
        """Adds rows for the devices of new views."""
        numbers = [self._number_of[view] for view in views for _ in view.devices]
        self._view = np.concatenate((self._view, np.array(numbers, np.intp)))
        self._tried = np.pad(self._tried, (0, len(numbers)))
        self._free = np.pad(self._free, (0, len(numbers)))
        self._draws = np.pad(self._draws, (0, len(numbers)))
        self._taints.extend(self._devices)
        self._capacities.extend(self._devices)
        for example in self._capacities.examples[len(self._offered) :]:
            capacity = example.spec.capacity or {}
            self._offered.append({name: nano(offered.value) for name, offered in capacity.items()})
        for name in {name for offered in self._offered for name in offered}:
            room = self._room.get(name, np.zeros(0, np.int64))
            self._room[name] = np.pad(room, (0, len(self._devices) - len(room)))

    def _read(self, view: PoolView) -> None:
        """Reads what is left of the view's devices."""
        allocated, first = self._allocated, self._first[self._number_of[view]]
        remaining = remaining_counters(view, allocated)
        for row, device in enumerate(view.devices, first):
            is_shared = device.id in allocated.shares
            draws = bool(device.counters) and not (device.shareable and is_shared)
            self._draws[row] = draws
            self._tried[row] = device.id not in allocated.devices
            self._free[row] = self._tried[row] and not (
                device.id in view.unreachable
                or (is_shared and not device.shareable and allocated.behaviours.shares_prevent_exclusive_use)
                or (draws and not has_counters(device, remaining))
            )
            taken = allocated.capacity(device.id)
            for name, amount in self._offered[self._capacities.ids[row]].items():
                left = (amount - taken.get(allocated.capacity_key(device.id, name), 0)) // NANO
                self._room[name][row] = max(-INT64_MAX, min(left, INT64_MAX))
