"""Pods thought away from their nodes, on all nodes at once but each node by itself: what preemption asks about."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.podinfo import PodInfo
from extender.table.pods.matches import PodCountQuery

if TYPE_CHECKING:
    from extender.table.table import Table


class Tally(NamedTuple):
    """A number per pod (int64[slot]) and its sum over the pods that are gone from each node (int64[row])."""

    each: IntColumn
    by_row: IntColumn


class HypotheticalRemovals:
    """The pods in `slots` of the table's pod columns, as if they had left; the table itself is not changed.

    Some of them may come back, and leave again; every sum that was asked for once is kept up to date.

    Attributes:
        concerned: the slots that it was made with, whether or not they have come back.
        awaited: (pod, row) of nominated pods, as if they had come. Only `freed` counts them: what is free for good.
    """

    def __init__(self, table: Table, slots: Rows, awaited: Sequence[tuple[PodInfo, int]] = ()) -> None:
        self.awaited = awaited
        self._table = table
        self.concerned = slots
        self._rows = table.pods.row
        self._gone: BoolColumn = np.zeros(len(self._rows), np.bool_)
        self._gone[slots] = True
        self._tallies: dict[Hashable, Tally] = {}

    @property
    def slots(self) -> Rows:
        """The pods that are gone at this moment, ascending."""
        return np.flatnonzero(self._gone)

    def come_back(self, slots: Rows) -> None:
        """These of the pods stand on their nodes again."""
        self._gone[slots] = False
        for each, by_row in self._tallies.values():
            np.subtract.at(by_row, self._rows[slots], each[slots])

    def leave(self, slots: Rows) -> None:
        """Pods that came back have left again."""
        self._gone[slots] = True
        for each, by_row in self._tallies.values():
            np.add.at(by_row, self._rows[slots], each[slots])

    def freed(self, resource: int) -> IntColumn:
        """How much of a resource (index of `NodeColumns.resources`) they give back on each node: int64[row].

        What awaited pods will take of it is taken off.
        """
        return self.tally(resource, lambda slots: self._requested(resource, slots), lambda: self._withheld(resource))

    def matching(self, question: PodCountQuery) -> IntColumn:
        """How many of them the question finds on each node: int64[row]."""
        return self.tally(question, lambda slots: self._found(question, slots))

    def tally(
        self, key: Hashable, each: Callable[[Rows], IntColumn], begin: Callable[[], IntColumn] | None = None
    ) -> IntColumn:
        """The sum over the pods that are gone from each node: int64[row].

        Asked once per `key`: `each` gives a number for each of the slots it is handed, int64[n], and `begin` what the
        sums start from, int64[row].
        """
        known = self._tallies.get(key)
        if known is None:
            numbers = np.zeros(len(self._rows), np.int64)
            numbers[self.concerned] = each(self.concerned)
            by_row = begin() if begin else np.zeros(self._table.nodes.capacity, np.int64)
            np.add.at(by_row, self._rows[self.slots], numbers[self.slots])
            known = self._tallies[key] = Tally(numbers, by_row)
        return known.by_row

    def _requested(self, resource: int, slots: Rows) -> IntColumn:
        requested = self._table.pods.requested
        known = resource < len(requested)  # else nodes offer it, but no pod has ever asked for it
        amounts: IntColumn = requested[resource, slots] if known else np.zeros(len(slots), np.int64)
        return amounts

    def _withheld(self, resource: int) -> IntColumn:
        nodes = self._table.nodes
        withheld = np.zeros(nodes.capacity, np.int64)
        for info, row in self.awaited:
            withheld[row] -= nodes.vector(info.footprint)[resource]
        return withheld

    def _found(self, question: PodCountQuery, slots: Rows) -> IntColumn:
        pods = self._table.pods
        found = self._table.matches.found(question)[pods.group[slots]]
        if not question.terminating:
            found &= ~pods.terminating[slots]
        return found.astype(np.int64)
