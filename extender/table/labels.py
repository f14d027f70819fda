"""Stores node labels in columns, one for each key, and indexes selectors and label sets.

Each cell of a column is the id of a label value, so a rule runs once for each distinct value.

An index compares only selectors and label sets that share a label. A label set is stored under each of its (key, value)
pairs. A selector like `app in (web, api)` is stored under (app, web) and (app, api), and a selector like `app Exists`
under its key. The few other selectors are compared with every label set.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.selectors import Requirement, Selector, whole_number
from extender.table.filing import Filing

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
Rows = NDArray[np.intp]
RowIndex = Rows | slice
"""The indices of some rows, or a slice that means all rows."""

ABSENT = 0


def mask_of(size: int, indices: Rows | list[int]) -> BoolColumn:
    """Returns bool[size]: True at these indices."""
    mask = np.zeros(size, np.bool_)
    mask[indices] = True
    return mask


class LabelColumn:
    """The values of one label key on all nodes. When no node has a value any longer, its id is free for another.

    Attributes:
        ids: intp[row]: the id of each node's value, ABSENT if the node does not have the label.
        values: the label value of each id; "" for ABSENT and for an id that is not in use.
    """

    def __init__(self, capacity: int) -> None:
        self.ids = np.zeros(capacity, np.intp)
        self.values: list[str] = [""]
        self._id_of: dict[str, int] = {}
        self._nodes = [0]  # id of a value -> the number of nodes that have the value
        self._free: list[int] = []
        self._numbers = array("q")  # id of a value -> the value as a number, for Gt and Lt; computed on demand
        self._is_number = array("b")

    def __len__(self) -> int:
        """Returns the number of ids, including ABSENT: the length of an array with one entry for each id."""
        return len(self.values)

    @property
    def is_empty(self) -> bool:
        """Returns True if no node has the label."""
        return not self._id_of

    def write(self, row: int, value: str | None) -> None:
        """Sets the label value of the node on this row; None removes the label."""
        before, after = int(self.ids[row]), ABSENT if value is None else self._intern(value)
        self.ids[row] = after
        self._nodes[after] += 1
        self._nodes[before] -= 1
        if before != ABSENT and not self._nodes[before]:
            del self._id_of[self.values[before]]
            self.values[before] = ""
            self._free.append(before)

    def _intern(self, value: str) -> int:
        number = self._id_of.get(value)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.values[number] = value
            del self._numbers[number:], self._is_number[number:]
        else:
            number = len(self.values)
            self.values.append(value)
            self._nodes.append(0)
        self._id_of[value] = number
        return number

    def find(self, value: str) -> int | None:
        """Returns the id of `value`, or None if no node has it."""
        return self._id_of.get(value)

    def satisfying(self, requirement: Requirement) -> BoolColumn:
        """Returns bool[id]: True if nodes with the value satisfy the requirement. ABSENT represents a missing label."""
        match requirement.operator:
            case "In":
                return self._among(requirement.values)
            case "NotIn":
                return ~self._among(requirement.values)
            case "Exists":
                return ~self._absent()
            case "DoesNotExist":
                return self._absent()
            case "Gt" | "Lt":
                return self._comparing(requirement)
            case _:
                return np.zeros(len(self), np.bool_)

    def _absent(self) -> BoolColumn:
        absent: BoolColumn = np.arange(len(self)) == ABSENT
        return absent

    def _among(self, values: Iterable[str]) -> BoolColumn:
        verdict = np.zeros(len(self), np.bool_)
        verdict[[number for value in values if (number := self._id_of.get(value))]] = True
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
    """The label columns of the nodes, one for each key that a node has.

    Attributes:
        key_changes: the number of times that a key got its first node or lost its last one.
    """

    def __init__(self, capacity: int) -> None:
        self.key_changes = 0
        self._capacity = capacity
        self._columns: dict[str, LabelColumn] = {}
        self._absent = LabelColumn(capacity)

    def __getitem__(self, key: str) -> LabelColumn:
        """Returns the column of `key`; if no node has the key, a column with ABSENT in every row."""
        return self._columns.get(key, self._absent)

    def __iter__(self) -> Iterator[str]:
        """Yields the keys that any node has."""
        return iter(self._columns)

    def __contains__(self, key: str) -> bool:
        return key in self._columns

    def write(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Replaces the labels of the node on this row: `old` becomes `new`."""
        for key in old.keys() - new.keys():
            column = self._columns[key]
            column.write(row, None)
            if column.is_empty:
                del self._columns[key]
                self.key_changes += 1
        for key, value in new.items():
            if old.get(key) != value:
                if key not in self._columns:
                    self._columns[key] = LabelColumn(self._capacity)
                    self.key_changes += 1
                self._columns[key].write(row, value)

    def grow(self, capacity: int) -> None:
        """Enlarges the columns to `capacity` rows."""
        self._capacity = capacity
        for column in (*self._columns.values(), self._absent):
            column.ids = np.concatenate((column.ids, np.zeros(capacity - len(column.ids), np.intp)))

    def satisfying(self, requirement: Requirement, rows: Rows) -> BoolColumn:
        """Returns which of the nodes on `rows` satisfy the requirement: bool[len(rows)]."""
        column = self[requirement.key]
        satisfied: BoolColumn = column.satisfying(requirement)[column.ids[rows]]
        return satisfied


T = TypeVar("T")
Pair = tuple[str, str]


def index_pairs(selector: Selector) -> list[Pair] | None:
    """Returns (key, value) pairs. A label set must contain at least one of them to match the selector.

    Returns None if the selector has no In requirement, and [] if the selector matches nothing.
    """
    if selector.nothing:
        return []
    one_of_some = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    if not one_of_some:
        return None
    narrowest = min(one_of_some, key=lambda requirement: len(requirement.values))
    return [(narrowest.key, value) for value in narrowest.values]


class SelectorIndex(Generic[T]):
    """Stores items, each with a selector, and finds those whose selector may match a label set."""

    def __init__(self) -> None:
        self._by_pair: Filing[Pair, T] = Filing()
        self._by_key: Filing[str, T] = Filing()  # items whose selector has an Exists requirement but no In requirement
        self._unfiled: dict[T, None] = {}

    def __len__(self) -> int:
        """Returns 0 if the index is empty. Otherwise the number is inexact, because it counts keys and not items."""
        return len(self._by_pair) + len(self._by_key) + len(self._unfiled)

    def add(self, selector: Selector, item: T) -> None:
        pairs = index_pairs(selector)
        for pair in pairs or ():
            self._by_pair.add(pair, item)
        if pairs is None:
            key = _required_key(selector)
            if key is None:
                self._unfiled[item] = None
            else:
                self._by_key.add(key, item)

    def remove(self, selector: Selector, item: T) -> None:
        """Removes an item that was added with this selector."""
        pairs = index_pairs(selector)
        for pair in pairs or ():
            self._by_pair.remove(pair, item)
        if pairs is None:
            key = _required_key(selector)
            if key is None:
                del self._unfiled[item]
            else:
                self._by_key.remove(key, item)

    def candidates(self, labels: frozenset[Pair]) -> Iterator[T]:
        """Yields all items whose selector matches `labels`, and possibly others, without duplicates."""
        yield from self._unfiled
        for pair in self._by_pair.among(labels):
            yield from self._by_pair.get(pair)
        if len(self._by_key):
            for key, _ in labels:
                yield from self._by_key.get(key)


def _required_key(selector: Selector) -> str | None:
    keys = (requirement.key for requirement in selector.requirements if requirement.operator == "Exists")
    return next(keys, None)


class LabelIndex(Generic[T]):
    """Stores items, each with a label set, and finds those that a selector may match."""

    def __init__(self) -> None:
        self._by_pair: Filing[Pair, T] = Filing()
        self._all: dict[T, None] = {}

    def add(self, labels: Iterable[Pair], item: T) -> None:
        self._all[item] = None
        for pair in labels:
            self._by_pair.add(pair, item)

    def remove(self, labels: Iterable[Pair], item: T) -> None:
        """Removes an item that was added with these labels."""
        del self._all[item]
        for pair in labels:
            self._by_pair.remove(pair, item)

    def candidates(self, selector: Selector) -> Collection[T]:
        """Returns all items whose labels match the selector, and possibly others, without duplicates."""
        pairs = index_pairs(selector)
        if pairs is None:
            return self._all
        return [item for pair in pairs for item in self._by_pair.get(pair)]
