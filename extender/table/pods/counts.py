"""A number per node, kept together with their sum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from extender.table.labels import IntColumn

_MOST_KEPT = 512
_KEPT_BYTES = 32 * 1024 * 1024
_FEW = 16  # so many are added one by one before NumPy has begun


def most_kept(capacity: int) -> int:
    """Returns how many counts over so many rows are worth their memory: of 50,000 nodes one takes half a MiB."""
    return min(_MOST_KEPT, _KEPT_BYTES // (capacity * np.dtype(np.int64).itemsize))


class NodeCounts:
    """`by_node`: int64[row]; `total`: their sum."""

    __slots__ = ("by_node", "total")

    def __init__(self, capacity: int) -> None:
        self.by_node: IntColumn = np.zeros(capacity, np.int64)
        self.total = 0

    def add(self, row: int, amount: int) -> None:
        self.by_node[row] += amount
        self.total += amount

    def add_all(self, amounts: Mapping[int, int], factor: int = 1) -> None:
        """Adds `factor` times the amounts, which are by row."""
        if len(amounts) < _FEW:
            for row, amount in amounts.items():
                self.add(row, factor * amount)
        else:
            added = factor * np.fromiter(amounts.values(), np.int64, len(amounts))
            self.by_node[np.fromiter(amounts.keys(), np.intp, len(amounts))] += added
            self.total += int(added.sum())

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` rows."""
        self.by_node = np.pad(self.by_node, (0, capacity - len(self.by_node)))
