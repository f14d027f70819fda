"""The rows of many names at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from extender.table.labels import Rows

_NO_ROW = 1  # the hash of a row that is free


class NameIndex:
    """Finds rows by the hashes of names (SipHash, 64 bits, keyed anew in every process).

    To look 500 names of 5,000 up one after another waits for memory 500 times: keys, entries and values of a dictionary
    lie far apart, and a scheduler's other work has taken the caches meanwhile. These loads do not wait for each other.

    Args:
        row_of: the rows by name; the index is to be thrown away when they change.
        capacity: more than any row.
    """

    def __init__(self, row_of: Mapping[str, int], capacity: int) -> None:
        self._row_of, self._capacity = row_of, capacity
        hashes, rows = _hashes(row_of), np.fromiter(row_of.values(), np.int32, len(row_of))
        self._mask = (1 << (8 * len(rows)).bit_length()) - 1
        self._slots = np.zeros(self._mask + 1, np.int32)  # of names that share a slot the last has it
        self._slots[hashes & self._mask] = rows
        self._hash_of = np.full(capacity, _NO_ROW, np.int64)
        self._hash_of[rows] = hashes
        self._last: tuple[list[str] | None, Rows | None] = None, None

    def rows_of(self, names: list[str]) -> Rows | None:
        """Returns the rows of names that all have one, each once; None where it is not so.

        Prioritize asks, as a rule, for the very list that filter has let through, which is found at once. One of more
        names than there are rows is not kept: a table that is seldom lent would hold a stranger's 100,000 for hours.
        """
        if len(names) > self._capacity:
            return None
        known, rows = self._last
        if names is not known:
            rows = self._find(names)
            self._last = names, rows
        return rows

    def _find(self, names: list[str]) -> Rows | None:
        hashes = _hashes(names)
        rows = self._slots[hashes & self._mask].astype(np.intp)
        for position in np.flatnonzero(self._hash_of[rows] != hashes).tolist():  # shares its slot, or has no row
            row = self._row_of.get(names[position])
            if row is None:
                return None
            rows[position] = row
        met = np.zeros(self._capacity, np.bool_)
        met[rows] = True
        return rows if np.count_nonzero(met) == len(rows) else None


def _hashes(names: Collection[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, names), np.int64, len(names))
