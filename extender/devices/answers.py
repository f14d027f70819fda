"""What the search found for a question on each node: kept, and looked for again only where something has changed.

Pods of one workload ask the same question, and a pod that is placed changes the devices of one node; so the next
decision searches that node alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from extender.devices.inventory.allocated import Allocated
from extender.devices.inventory.class_totals import POOLS, ClassTotals, Expressions, expressions_of
from extender.devices.inventory.inventory import INVENTORIES, Inventories
from extender.devices.search.questions import AllocationError, Question, key_of, question_of
from extender.devices.search.search import MAX_STEPS, ExhaustedError, Picks, search
from extender.framework.status import Code
from extender.model.devices.claims import ResourceClaim
from extender.model.devices.slices import DeviceClass
from extender.table import Table
from extender.table.journal import Cursor, Journal
from extender.table.labels import IntColumn, Rows

FITS, _UNKNOWN = -1, -2
NOT_ALL = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"
TIMED_OUT = "timed out trying to allocate devices"
BEST_ALTERNATIVE = 8  # the score of the first of a prioritized list (upstream FirstAvailableDeviceRequestMaxSize)
_KEPT = 64
_PATIENCE, _SHORT_STEPS = 4, 128


class Failure(NamedTuple):
    """Why the devices cannot be had. `claim`: the index of the claim that the text goes on about, if any."""

    code: Code
    text: str
    claim: int | None = None


class Devices:
    """The devices of a table's cluster, and the questions about them."""

    def __init__(self, table: Table) -> None:
        self._table, self._objects = table, table.objects
        self.inventories = Inventories(table)
        self.allocated = Allocated(table)
        self._class_changes = Cursor(table.journal, DeviceClass.__name__)
        self._answers: OrderedDict[Hashable, Answers] = OrderedDict()
        self._totals: dict[Expressions, ClassTotals] = {}

    def ask(self, claims: Sequence[ResourceClaim]) -> Answers:
        """What comes out for these claims together."""
        self.refresh()
        if self._class_changes.advance():
            self._answers.clear()
        key = key_of(claims)
        answers = self._answers.get(key)
        if answers is None:
            question = question_of(claims, self._objects.all(DeviceClass))
            answers = self._answers[key] = Answers(question, self, self._table.journal)
            if len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        self._answers.move_to_end(key)
        answers.refresh()
        return answers

    def totals(self, device_class: DeviceClass) -> ClassTotals:
        """How many devices of the class there are on each node, and how many of them are taken."""
        self.refresh()
        expressions = expressions_of(device_class)
        if expressions not in self._totals:
            if len(self._totals) >= _KEPT:
                self._totals.clear()
            self._totals[expressions] = ClassTotals(expressions, self._table, self.allocated)
        totals = self._totals[expressions]
        totals.refresh(self.inventories.pools)
        return totals

    def refresh(self) -> None:
        """Takes in what has changed of slices, nodes and claims."""
        changed = self.inventories.refresh()
        claimed = self.allocated.refresh()
        journal = self._table.journal
        for pool in changed | claimed:
            note = journal.note if pool in self.inventories.pools else journal.note_removed
            note(POOLS, pool)
        for pool in claimed:
            for number in self.inventories.reaching(pool):
                journal.note(INVENTORIES, number)


def devices_of(table: Table) -> Devices:
    """The devices of a table's cluster; there is one of these for each table."""
    return table.reader(Devices)


class Answers:
    """The answers to one question, by inventory.

    Attributes:
        failures: the distinct failures; `outcomes` gives indices of them.
    """

    def __init__(self, question: Question, devices: Devices, journal: Journal) -> None:
        self.failures: list[Failure] = []
        self._index_of: dict[Failure, int] = {}
        self._question, self._devices = question, devices
        self._outcome: Rows = np.zeros(0, np.intp)
        self._picks: dict[int, Picks] = {}
        self._touched = Cursor(journal, INVENTORIES)
        self._exhausted = 0

    def refresh(self) -> None:
        """Forgets what is no longer true."""
        touched = self._touched.read()
        if touched is None:
            self._outcome[:] = _UNKNOWN
        else:
            self._outcome[[number for number in touched if number < len(self._outcome)]] = _UNKNOWN
        missing = len(self._devices.inventories.views) - len(self._outcome)
        if missing > 0:
            self._outcome = np.pad(self._outcome, (0, missing), constant_values=_UNKNOWN)

    def outcomes(self, rows: Rows) -> Rows:
        """FITS, or the index of the failure, for each of `rows`: intp[len(rows)]."""
        numbers = self._devices.inventories.number[rows]
        outcomes = self._outcome[numbers]
        unknown = outcomes == _UNKNOWN
        if unknown.any():
            for number in np.unique(numbers[unknown]).tolist():
                self._outcome[number] = self._find(number)
            outcomes = self._outcome[numbers]
        return outcomes

    def picks(self, row: int) -> Picks:
        """The devices for a row that fits."""
        return self._picks[int(self._devices.inventories.number[row])]

    def scores(self, rows: Rows) -> IntColumn:
        """How far forward in their lists the alternatives stand that were taken: int64[len(rows)], all of them fit."""
        numbers, positions = np.unique(self._devices.inventories.number[rows], return_inverse=True)
        scores = np.array([self._score(self._picks[number]) for number in numbers.tolist()], np.int64)
        return scores[positions]

    def _find(self, number: int) -> int:
        views = self._devices.inventories.views[number]
        self._picks.pop(number, None)
        try:
            picks = search(self._question, views, self._devices.allocated, self._max_steps())
        except AllocationError as fault:
            return self._failure(Failure(Code.ERROR, fault.text, fault.claim))
        except ExhaustedError:
            self._exhausted += 1
            return self._failure(Failure(Code.ERROR, TIMED_OUT))
        if picks is None:
            text = INVALID_POOLS if any(view.invalid for view in views) else NOT_ALL
            return self._failure(Failure(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text))
        self._picks[number] = picks
        return FITS

    def _max_steps(self) -> int:
        """A question that has been too hard on several nodes is not tried as hard on the others: there may be many."""
        return MAX_STEPS if self._exhausted < _PATIENCE else _SHORT_STEPS

    def _failure(self, failure: Failure) -> int:
        index = self._index_of.setdefault(failure, len(self.failures))
        if index == len(self.failures):
            self.failures.append(failure)
        return index

    def _score(self, picks: Picks) -> int:
        taken = {pick.ask for of_claim in picks for pick in of_claim}
        return sum(
            BEST_ALTERNATIVE - place
            for claim in self._question
            for alternatives in claim.requests
            for place, ask in enumerate(alternatives)
            if ask in taken and ask.is_alternative
        )
