"""Assigns a row in the resource matrices to each resource that a node offers.

A resource that no node offers gets no row, even if pods request it. Anyone who may create pods can invent thousands of
resource names, and each row takes memory for every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# The first rows of each matrix. In the last two, a container without a request counts with a default amount.
CPU, MEMORY, EPHEMERAL_STORAGE, PODS, NONZERO_CPU, NONZERO_MEMORY = range(6)
BUILT_IN = ("cpu", "memory", "ephemeral-storage", "pods", "nonzero-cpu", "nonzero-memory")
DERIVED = frozenset((PODS, NONZERO_CPU, NONZERO_MEMORY))
"""The rows that the scheduler computes. A pod cannot request these resources by name."""


class OfferedResources:
    """The built-in resources, and those that at least one node offers.

    Attributes:
        index_of: resource -> its row in the matrices.
        free: rows that are not in use, which the next new resources get.
        size: the number of rows, in use or free.
        changes: the number of times that a resource got or lost a row.
    """

    def __init__(self) -> None:
        self.index_of = {name: index for index, name in enumerate(BUILT_IN)}
        self.free: list[int] = []
        self.size = len(BUILT_IN)
        self.changes = 0
        self._offering_nodes = Counter(BUILT_IN)  # built-in resources begin at 1, so they are never removed

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Updates the rows for a node whose offered resources change from `before` to `after`."""
        for name in after:
            self._offering_nodes[name] += 1
            if name not in self.index_of:
                self.index_of[name] = self._new_index()
                self.changes += 1
        for name in before:
            self._offering_nodes[name] -= 1
            if not self._offering_nodes[name]:
                del self._offering_nodes[name]
                self.free.append(self.index_of.pop(name))
                self.changes += 1

    def _new_index(self) -> int:
        if self.free:
            return self.free.pop()
        self.size += 1
        return self.size - 1
