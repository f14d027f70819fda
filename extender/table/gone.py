"""Pods thought away from their nodes, on all nodes at once but each node by itself: what preemption asks about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from extender.table.labels import Rows
from extender.table.matches import Question
from extender.table.pods import counted

if TYPE_CHECKING:
    from extender.table.table import Table


class Gone:
    """The pods in `slots` of the table's pod columns, as if they had left; the table itself is not changed."""

    def __init__(self, table: Table, slots: Rows) -> None:
        self.slots = slots
        self._table = table
        self._rows = table.pods.row[slots]

    def freed(self, resource: int) -> NDArray[np.int64]:
        """How much of a resource (index of `NodeColumns.resources`) they give back on each node: int64[row]."""
        freed = np.zeros(self._table.nodes.capacity, np.int64)
        np.add.at(freed, self._rows, self._table.pods.requested[resource, self.slots])
        return freed

    def matching(self, question: Question) -> NDArray[np.int64]:
        """How many of them the question finds on each node: int64[row]."""
        found = self._table.matches.found(question)[self._table.pods.group[self.slots]]
        if not question.terminating:
            found &= ~self._table.pods.terminating[self.slots]
        return counted(self._rows[found], self._table.nodes.capacity)
