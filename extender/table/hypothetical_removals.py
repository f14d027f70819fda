"""Computes, for preemption, what each node would gain if certain pods were removed from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from extender.model.quantity import INT64_MAX
from extender.table.labels import IntColumn, Rows, mask_of
from extender.table.matches import PodCountQuery
from extender.table.nominated import NOBODY, AwaitedPods

if TYPE_CHECKING:
    from extender.table.table import Table


class RemovalSum(NamedTuple):
    """A number for each pod (int64[slot]), and its sum over the removed pods of each node (int64[row])."""

    by_slot: IntColumn
    by_row: IntColumn


class HypotheticalRemovals:
    """Shows the cluster as if the pods in some slots were removed; the table itself does not change.

    Preemption puts back pods that need not go (`reprieve`), and may remove them again. A sum over the removed pods is
    computed once, and then updated.

    Attributes:
        initial: the slots of all pods that were removed at first, including those that were put back.
        removed: bool[slot]: the pods that are removed at present.
        nominated: nominated pods, which will take some of the freed resources. Only `freed` subtracts them.
    """

    def __init__(self, table: Table, slots: Rows, nominated: AwaitedPods = NOBODY) -> None:
        self.nominated = nominated
        self._table = table
        self.initial = slots
        self._rows = table.pods.row
        self.removed = mask_of(len(self._rows), slots)
        self._sums: dict[Hashable, RemovalSum] = {}

    @property
    def has_capped_sums(self) -> bool:
        """True if the sum of requests of any node may be capped, so that nothing can be subtracted from it."""
        return bool(self._table.capped_rows)

    @property
    def slots(self) -> Rows:
        """Returns the slots of the pods that are removed at present, in ascending order."""
        return np.flatnonzero(self.removed)

    def reprieve(self, slots: Rows) -> None:
        """Puts the pods in these slots back on their nodes."""
        self.removed[slots] = False
        for by_slot, by_row in self._sums.values():
            np.subtract.at(by_row, self._rows[slots], by_slot[slots])

    def remove(self, slots: Rows) -> None:
        """Undoes `reprieve` for the pods in these slots."""
        self.removed[slots] = True
        for by_slot, by_row in self._sums.values():
            np.add.at(by_row, self._rows[slots], by_slot[slots])

    def free(self, resource: int, rows: Rows) -> IntColumn:
        """Returns how much of a resource the nodes on these rows would have free: int64[len(rows)]; see `freed`."""
        table, nodes = self._table, self._table.nodes
        free: IntColumn = nodes.allocatable[resource][rows] - nodes.requested[resource][rows]
        free += self.freed(resource)[rows]
        for row in table.capped_rows:
            slots = table.pods.on(row)
            remaining = int(table.pods.capped_sum(slots[~self.removed[slots]])[resource])
            taken = sum(self.nominated.requested[resource, self.nominated.rows == row].tolist())
            free[rows == row] = int(nodes.allocatable[resource, row]) - min(remaining + taken, INT64_MAX)
        return free

    def free_beside(self, resource: int, slots: Rows) -> IntColumn:
        """Returns how much would be free on each removed pod's node if only that pod came back: int64[len(slots)]."""
        free = self.free(resource, np.arange(self._table.nodes.capacity))
        left: IntColumn = free[self._rows[slots]] - self._table.pods.requested[resource][slots]
        return left

    def freed(self, resource: int) -> IntColumn:
        """Returns how much of a resource the removed pods free on each node: int64[row].

        The amount that nominated pods will take is subtracted. `resource`: an index from `NodeColumns.resources`.
        """
        return self.sum_by_row(
            resource,
            lambda: self._table.pods.requested[resource],
            lambda: -self.nominated.taken(resource, self._table.nodes.capacity),
        )

    def matching(self, query: PodCountQuery) -> IntColumn:
        """Returns how many removed pods on each node match the query: int64[row]."""
        return self.sum_by_row(query, lambda: self._matches(query))

    def sum_by_row(
        self, key: Hashable, numbers: Callable[[], IntColumn], start: Callable[[], IntColumn] | None = None
    ) -> IntColumn:
        """Returns, for each node, the sum of a number over the pods that are removed from the node: int64[row].

        Args:
            key: identifies the sum, which is computed once and then updated.
            numbers: returns the number of each pod, int64[slot]; those of pods that are not removed do not matter.
            start: returns what the numbers are added to, int64[row]; 0 by default.
        """
        removal_sum = self._sums.get(key)
        if removal_sum is None:
            removal_sum = self._sums[key] = RemovalSum(
                numbers(), start() if start else np.zeros(self._table.nodes.capacity, np.int64)
            )
            slots = self.slots
            np.add.at(removal_sum.by_row, self._rows[slots], removal_sum.by_slot[slots])
        return removal_sum.by_row

    def _matches(self, query: PodCountQuery) -> IntColumn:
        pods, slots = self._table.pods, self.initial
        matches = np.zeros(len(pods.row), np.bool_)
        matches[slots] = self._table.matches.matching_groups(query)[pods.group[slots]]
        if not query.terminating:
            matches &= ~pods.terminating
        return matches.astype(np.int64)
