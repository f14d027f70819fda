"""Node labels as columns, one per key: each cell is the id of an interned value, and a rule runs once per value.

A selector that wants one of some values of a label is filed under those (key, value) pairs, and a label set under all
its pairs; only what shares a pair is worth trying. Few selectors want nothing of the kind, and those are always tried.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.selectors import Requirement, Selector, whole_number

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
Rows = NDArray[np.intp]
RowIndex = Rows | slice
"""Rows, or all of them."""

ABSENT = 0


class LabelColumn:
    """The values of one label key over all rows.

    `ids`: intp[capacity], 0 where the node has no such label. `values[id]` is the text; `values[0]` stands for absence.
    """

    def __init__(self, capacity: int) -> None:
        self.ids = np.zeros(capacity, np.intp)
        self.values: list[str] = [""]
        self._id_of: dict[str, int] = {}
        self._numbers, self._is_number = array("q"), array("b")  # of the values that Gt and Lt have been asked about

    def __len__(self) -> int:
        """Returns the number of ids, absence included: the width of a per-domain array."""
        return len(self.values)

    def intern(self, value: str) -> int:
        """Returns the id of `value`, a new one if it was never seen."""
        known = self._id_of.get(value)
        if known is None:
            known = self._id_of[value] = len(self.values)
            self.values.append(value)
        return known

    def find(self, value: str) -> int | None:
        """Returns the id of `value`, or None if no row ever had it."""
        return self._id_of.get(value)

    def satisfying(self, requirement: Requirement) -> BoolColumn:
        """Tells for each value if it satisfies `requirement`: bool[len(self)], absence at index 0."""
        match requirement.operator:
            case "In":
                return self._among(requirement.values)
            case "NotIn":
                return ~self._among(requirement.values)
            case "Exists":
                return self._having(True)
            case "DoesNotExist":
                return self._having(False)
            case "Gt" | "Lt":
                return self._comparing(requirement)
            case _:
                return np.zeros(len(self), np.bool_)

    def _having(self, any_value: bool) -> BoolColumn:
        verdict = np.full(len(self), any_value)
        verdict[ABSENT] = not any_value
        return verdict

    def _among(self, values: Iterable[str]) -> BoolColumn:
        verdict = np.zeros(len(self), np.bool_)
        verdict[[known for value in values if (known := self._id_of.get(value))]] = True
        return verdict

    def _comparing(self, requirement: Requirement) -> BoolColumn:
        bound = requirement.bound()
        if bound is None:
            return np.zeros(len(self), np.bool_)
        for value in self.values[len(self._numbers) :]:
            number = whole_number(value)
            self._numbers.append(0 if number is None else number)
            self._is_number.append(number is not None)
        numbers = np.array(self._numbers, np.int64)
        return np.array(self._is_number, np.bool_) & (
            numbers > bound if requirement.operator == "Gt" else numbers < bound
        )


class LabelColumns:
    """All label columns of the nodes, made when a key is first seen."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._columns: dict[str, LabelColumn] = {}
        self._absent = LabelColumn(capacity)

    def __getitem__(self, key: str) -> LabelColumn:
        """Returns the column of `key`; one of absences if no node has it."""
        return self._columns.get(key, self._absent)

    def seen_keys(self) -> tuple[str, ...]:
        """Returns the keys that any node has had."""
        return tuple(self._columns)

    def write(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for key in old.keys() - new.keys():
            self._columns[key].ids[row] = ABSENT
        for key, value in new.items():
            if old.get(key) != value:
                column = self._columns.get(key) or self._columns.setdefault(key, LabelColumn(self._capacity))
                column.ids[row] = column.intern(value)

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` rows."""
        self._capacity = capacity
        for column in (*self._columns.values(), self._absent):
            column.ids = np.concatenate((column.ids, np.zeros(capacity - len(column.ids), np.intp)))

    def satisfying(self, requirement: Requirement, rows: Rows) -> BoolColumn:
        """Tells for each of the nodes if it satisfies `requirement`: bool[len(rows)]."""
        column = self[requirement.key]
        satisfied: BoolColumn = column.satisfying(requirement)[column.ids[rows]]
        return satisfied


T = TypeVar("T")
Pair = tuple[str, str]


def filing_pairs(selector: Selector) -> list[Pair] | None:
    """Pairs of one key of which a label set must have one for the selector to match; None: no such pairs are known."""
    if selector.nothing:
        return []
    wanted = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    if not wanted:
        return None
    narrowest = min(wanted, key=lambda requirement: len(requirement.values))
    return [(narrowest.key, value) for value in narrowest.values]


class SelectorIndex(Generic[T]):
    """Items by the selector that they go with; asked with labels."""

    def __init__(self) -> None:
        self._filed: dict[Pair, dict[T, None]] = {}
        self._unfiled: dict[T, None] = {}

    def add(self, selector: Selector, item: T) -> None:
        pairs = filing_pairs(selector)
        if pairs is None:
            self._unfiled[item] = None
        for pair in pairs or ():
            self._filed.setdefault(pair, {})[item] = None

    def remove(self, selector: Selector, item: T) -> None:
        """Takes back an `add`."""
        pairs = filing_pairs(selector)
        if pairs is None:
            del self._unfiled[item]
        for pair in pairs or ():
            _unfile(self._filed, pair, item)

    def candidates(self, labels: Iterable[Pair]) -> Iterator[T]:
        """Every item whose selector matches `labels`, and some whose selector does not; each once."""
        yield from self._unfiled
        for pair in labels:
            yield from self._filed.get(pair, ())


class LabelIndex(Generic[T]):
    """Items by the labels that they have; asked with a selector."""

    def __init__(self) -> None:
        self._filed: dict[Pair, dict[T, None]] = {}
        self._all: dict[T, None] = {}

    def add(self, labels: Iterable[Pair], item: T) -> None:
        self._all[item] = None
        for pair in labels:
            self._filed.setdefault(pair, {})[item] = None

    def remove(self, labels: Iterable[Pair], item: T) -> None:
        """Takes back an `add`."""
        del self._all[item]
        for pair in labels:
            _unfile(self._filed, pair, item)

    def candidates(self, selector: Selector) -> Collection[T]:
        """Every item whose labels the selector matches, and some that it does not match; each once."""
        pairs = filing_pairs(selector)
        if pairs is None:
            return self._all
        return [item for pair in pairs for item in self._filed.get(pair, ())]


def _unfile(filed: dict[Pair, dict[T, None]], pair: Pair, item: T) -> None:
    del filed[pair][item]
    if not filed[pair]:
        del filed[pair]
