"""Hypothetical removals of pods, on all nodes at once but each node by itself, as preemption tries them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.pods.matches import PodCountQuery
from extender.table.pods.nominated import NOBODY, AwaitedPods

if TYPE_CHECKING:
    from extender.table.table import Table


class RemovalSum(NamedTuple):
    """A number per pod (int64[slot]) and its sum over the pods that are removed from each node (int64[row])."""

    each: IntColumn
    by_row: IntColumn


class HypotheticalRemovals:
    """The pods in `slots` of the table's pod columns, as if they were removed; the table itself is not changed.

    Some of them may be reprieved, and removed again; every sum that was made once is kept up to date.

    Attributes:
        initial: the slots that it was made with, reprieved or not.
        removed: bool[slot]: those that are removed at this moment.
        nominated: the nominated pods, as if they had come. Only `freed` counts them: what is free for good.
    """

    def __init__(self, table: Table, slots: Rows, nominated: AwaitedPods = NOBODY) -> None:
        self.nominated = nominated
        self._table = table
        self.initial = slots
        self._rows = table.pods.row
        self.removed: BoolColumn = np.zeros(len(self._rows), np.bool_)
        self.removed[slots] = True
        self._sums: dict[Hashable, RemovalSum] = {}

    @property
    def slots(self) -> Rows:
        """Returns the pods that are removed at this moment, ascending."""
        return np.flatnonzero(self.removed)

    def reprieve(self, slots: Rows) -> None:
        """Puts these of the pods back on their nodes."""
        self.removed[slots] = False
        for each, by_row in self._sums.values():
            np.subtract.at(by_row, self._rows[slots], each[slots])

    def remove(self, slots: Rows) -> None:
        """Removes pods again that were reprieved."""
        self.removed[slots] = True
        for each, by_row in self._sums.values():
            np.add.at(by_row, self._rows[slots], each[slots])

    def freed(self, resource: int) -> IntColumn:
        """Returns the amount of a resource (index of `NodeColumns.resources`) that they free on each node: int64[row].

        What nominated pods will take of it is taken off.
        """
        return self.sum_by_row(
            resource,
            lambda slots: self._requested(resource, slots),
            lambda: -self.nominated.taken(resource, self._table.nodes.capacity),
        )

    def matching(self, query: PodCountQuery) -> IntColumn:
        """Counts those of them that the query matches on each node: int64[row]."""
        return self.sum_by_row(query, lambda slots: self._found(query, slots))

    def sum_by_row(
        self, key: Hashable, each: Callable[[Rows], IntColumn], begin: Callable[[], IntColumn] | None = None
    ) -> IntColumn:
        """Returns the sum over the pods that are removed from each node: int64[row].

        Asked once per `key`: `each` gives a number for each of the slots it is handed, int64[n], and `begin` what the
        sums start from, int64[row].
        """
        known = self._sums.get(key)
        if known is None:
            numbers = np.zeros(len(self._rows), np.int64)
            numbers[self.initial] = each(self.initial)
            by_row = begin() if begin else np.zeros(self._table.nodes.capacity, np.int64)
            np.add.at(by_row, self._rows[self.slots], numbers[self.slots])
            known = self._sums[key] = RemovalSum(numbers, by_row)
        return known.by_row

    def _requested(self, resource: int, slots: Rows) -> IntColumn:
        requested: IntColumn = self._table.pods.requested[resource, slots]
        return requested

    def _found(self, query: PodCountQuery, slots: Rows) -> IntColumn:
        pods = self._table.pods
        found = self._table.matches.matching_groups(query)[pods.group[slots]]
        if not query.terminating:
            found &= ~pods.terminating[slots]
        return found.astype(np.int64)
