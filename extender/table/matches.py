"""Counts the pods on each node that match a selector, and keeps the counts up to date.

The first query for a selector counts the placed pods. From then on, each pod that is placed or removed changes the
counts, so repeating the query costs nothing.

Pods with the same namespace and labels form a `Group`, and a selector is compared with each group, and not with each
pod. A group's slot is stored under its namespace, its keys and its (key, value) pairs, so a requirement reads only the
groups that have its key or pair, and a selector like `key Exists` or `NotIn` over 20,000 groups is one NumPy operation.
A group with very many labels is not stored under them, because that would take 100 times as long as adding its pod.
Selectors are evaluated on such groups one by one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.model.selectors import Requirement, Selector
from extender.table.filing import Filing, ShrinkingDict, adjust
from extender.table.labels import BoolColumn, IntColumn, Pair, Rows, SelectorIndex, index_pairs
from extender.table.podinfo import Group

_FIRST_CAPACITY = 64
_MAX_FILED_LABELS = 256
_MAX_KEPT = 512
_KEPT_BYTES = 32 * 1024 * 1024
MOST_KEY_BYTES = 4 * 1024 * 1024
"""The most bytes that the stored queries may take in total. The labels of one pod may take 3 MiB."""
LARGEST_KEY_BYTES = MOST_KEY_BYTES // 8
"""The counts for a query larger than this are not stored, because they would replace many others."""
_TEXT_BYTES = 50  # the size in bytes of a string object without its characters
_FEW_AMOUNTS = 16  # up to this many numbers, Python adds faster than NumPy
_FEW = 64
"""Up to this number of groups, a query is compared with each group; above it, with all groups in one operation."""


class GroupLabels:
    """Stores the Groups (namespace and labels) that have pods, and finds those that match a selector.

    Attributes:
        capacity: the length of the arrays that `matching` returns.
    """

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._groups: dict[int, Group] = {}
        self._taken = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._by_namespace: Filing[str, int] = Filing()
        self._by_key: Filing[str, int] = Filing()
        self._by_pair: Filing[Pair, int] = Filing()
        self._unfiled: dict[int, Group] = {}

    def add(self, slot: int, group: Group) -> None:
        while slot >= self.capacity:
            self._taken = np.pad(self._taken, (0, self.capacity))
            self.capacity *= 2
        self._groups[slot] = group
        self._taken[slot] = True
        self._by_namespace.add(group.namespace, slot)
        if len(group.labels) > _MAX_FILED_LABELS:
            self._unfiled[slot] = group
            return
        for pair in group.labels:
            self._by_key.add(pair[0], slot)
            self._by_pair.add(pair, slot)

    def remove(self, slot: int) -> None:
        group = self._groups.pop(slot)
        self._taken[slot] = False
        self._by_namespace.remove(group.namespace, slot)
        if self._unfiled.pop(slot, None) is not None:
            return
        for pair in group.labels:
            self._by_key.remove(pair[0], slot)
            self._by_pair.remove(pair, slot)

    def group(self, slot: int) -> Group:
        return self._groups[slot]

    def candidates(self, selector: Selector) -> Collection[Group]:
        """Returns all groups that match the selector, and possibly others, without duplicates."""
        pairs = index_pairs(selector)
        if pairs is not None:
            filed = [self._groups[slot] for pair in pairs for slot in self._by_pair.get(pair)]
            return [*filed, *self._unfiled.values()]
        keys = [requirement.key for requirement in selector.requirements if requirement.operator == "Exists"]
        having = min((self._by_key.get(key) for key in keys), key=len, default=None)
        if having is None:
            return self._groups.values()
        return [*(self._groups[slot] for slot in having), *self._unfiled.values()]

    def matching(self, namespaces: Collection[str] | None, selector: Selector) -> BoolColumn:
        """Returns bool[capacity]: True for the slots of groups in `namespaces` that match the selector.

        `namespaces`: None means all namespaces.
        """
        if selector.nothing:
            return np.zeros(self.capacity, np.bool_)
        mask = self._taken.copy()
        for requirement in selector.requirements:
            self._require(requirement, mask)
        for slot, group in self._unfiled.items():
            mask[slot] = selector.matches(group.mapping)
        if namespaces is not None:
            mask &= self._mask(self._by_namespace.get(namespace) for namespace in namespaces)
        return mask

    def _require(self, requirement: Requirement, mask: BoolColumn) -> None:
        key = requirement.key
        having = [self._by_pair.get((key, value)) for value in requirement.values]
        match requirement.operator:
            case "In":
                mask &= self._mask(having)
            case "Exists":
                mask &= self._mask((self._by_key.get(key),))
            case "NotIn":
                mask &= ~self._mask(having)
            case "DoesNotExist":
                mask &= ~self._mask((self._by_key.get(key),))
            case _:
                # Gt and Lt need no index, because selectors for pods cannot contain them.
                for slot in np.flatnonzero(mask).tolist():
                    mask[slot] = requirement.matches(self._groups[slot].mapping)

    def _mask(self, slots: Iterable[Collection[int]]) -> BoolColumn:
        mask = np.zeros(self.capacity, np.bool_)
        for filed in slots:
            if filed:
                mask[np.fromiter(filed, np.intp, len(filed))] = True
        return mask


def max_results(capacity: int) -> int:
    """Returns the largest number of results to store, if each result takes 8 bytes for each of `capacity` rows."""
    return min(_MAX_KEPT, _KEPT_BYTES // (capacity * np.dtype(np.int64).itemsize))


def key_bytes(texts: Iterable[str]) -> int:
    """Returns the approximate size of these texts in memory, in bytes."""
    lengths = [*map(len, texts)]
    return _TEXT_BYTES * len(lengths) + sum(lengths)


class NodeCounts:
    """A count for each node (`by_node`: int64[row]) and the sum of these counts (`total`)."""

    __slots__ = ("by_node", "total")

    def __init__(self, capacity: int) -> None:
        self.by_node: IntColumn = np.zeros(capacity, np.int64)
        self.total = 0

    def add(self, row: int, amount: int) -> None:
        self.by_node[row] += amount
        self.total += amount

    def add_all(self, amounts: Mapping[int, int], factor: int = 1) -> None:
        """Adds `factor * amounts[row]` to the count of the node on each row in `amounts`."""
        if len(amounts) < _FEW_AMOUNTS:
            for row, amount in amounts.items():
                self.add(row, factor * amount)
        else:
            added = factor * np.fromiter(amounts.values(), np.int64, len(amounts))
            self.by_node[np.fromiter(amounts.keys(), np.intp, len(amounts))] += added
            self.total += int(added.sum())

    def grow(self, capacity: int) -> None:
        """Enlarges the counts to `capacity` rows."""
        self.by_node = np.pad(self.by_node, (0, capacity - len(self.by_node)))


class PodCountQuery(NamedTuple):
    """Describes which pods to count: pods in these namespaces that match the selector.

    Attributes:
        namespaces: None means all namespaces.
        terminating: True if pods that are being deleted count too.
    """

    namespaces: frozenset[str] | None
    selector: Selector
    terminating: bool = True

    @property
    def key_bytes(self) -> int:
        """The approximate size of this query in memory, in bytes."""
        conditions = self.selector.requirements
        return key_bytes(
            chain(self.namespaces or (), *((condition.key, *condition.values) for condition in conditions))
        )

    def matches(self, group: Group) -> bool:
        if self.namespaces is not None and group.namespace not in self.namespaces:
            return False
        return self.selector.matches(group.mapping)


class MatchCount(NodeCounts):
    """The number of pods on each node that match one query.

    Attributes:
        groups: the groups that match the query, if there are few; else empty.
        index: the row of the query in the matrix `Matches._wide`, if many groups match; else -1.
    """

    __slots__ = ("groups", "index", "query")

    def __init__(self, query: PodCountQuery, capacity: int) -> None:
        super().__init__(capacity)
        self.query = query
        self.index = -1
        self.groups: set[Group] = set()


@dataclass(slots=True)
class GroupEntry:
    """The pods of one Group, that is, the pods with one namespace and the same labels.

    Attributes:
        slot: the index of the group in the arrays of `Matches`.
        standing: row -> how many pods of the group are on this node and are not being deleted.
        terminating: row -> how many pods of the group are on this node and are being deleted.
        answers: the stored results that count these pods, except results in `Matches._wide`.
    """

    slot: int
    standing: dict[int, int] = field(default_factory=dict)
    terminating: dict[int, int] = field(default_factory=dict)
    answers: list[MatchCount] = field(default_factory=list)


class _Places(NamedTuple):
    """The number of pods of each group on each row, as arrays of equal length.

    For each index i, there are `pods[i]` pods of the group in `slot[i]` on `row[i]`. `terminating[i]` is True if these
    pods are being deleted.
    """

    slot: Rows
    row: Rows
    pods: NDArray[np.int64]
    terminating: BoolColumn


class Matches:
    """Stores how many pods each Group has on each node, and the results of recent queries.

    When a pod is placed or removed, the results of all queries that match its group change. A query that few groups
    match is found in `GroupEntry.answers` of these groups. A query that many groups match has a row in the matrix
    `_wide`, bool[query, slot of the group]. So a query like `key Exists` over 20,000 groups costs one NumPy operation.

    Attributes:
        groups: the entry of every Group (namespace and labels) that has pods.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.groups: ShrinkingDict[Group, GroupEntry] = ShrinkingDict()
        self._slots = 0
        self._free: list[int] = []
        self._labels = GroupLabels()
        self._answers: OrderedDict[PodCountQuery, MatchCount] = OrderedDict()
        self._answers_by_selector: SelectorIndex[MatchCount] = SelectorIndex()
        self._wide = np.zeros((0, self._labels.capacity), np.bool_)
        self._wide_answers: dict[int, MatchCount] = {}
        self._places: _Places | None = None
        self._key_bytes = 0  # the total size of all queries in `_answers`

    def add(self, group: Group, row: int, terminating: bool) -> int:
        """Counts a pod of `group` on `row`. Returns the group's slot, which is in use until its last pod is removed."""
        entry = self.groups.get(group) or self._admit(group)
        self._count(entry, row, terminating, 1)
        return entry.slot

    def remove(self, group: Group, row: int, terminating: bool) -> None:
        """Removes a pod of `group` on `row` from all counts."""
        entry = self.groups[group]
        self._count(entry, row, terminating, -1)
        if not entry.standing and not entry.terminating:
            self._dismiss(group)

    def count(self, query: PodCountQuery) -> MatchCount:
        """Returns how many pods on each node match the query. Stores the result, unless the query is too large."""
        answer = self._answers.get(query)
        if answer is None:
            return self._count_once(query) if query.key_bytes > LARGEST_KEY_BYTES else self._keep(query)
        self._answers.move_to_end(query)
        return answer

    def queries(self) -> tuple[PodCountQuery, ...]:
        """Returns the queries whose results are stored."""
        return tuple(self._answers)

    def matching_groups(self, query: PodCountQuery) -> BoolColumn:
        """Returns which groups match the query: bool[slot]; the values of unused slots are arbitrary."""
        answer = self.count(query)
        if answer.index >= 0:
            wide: BoolColumn = self._wide[answer.index]
            return wide
        matching = np.zeros(self._slots, np.bool_)
        matching[[self.groups[group].slot for group in answer.groups]] = True
        return matching

    def grow(self, capacity: int) -> None:
        """Enlarges all counts to `capacity` rows."""
        if capacity != self._capacity:
            self._capacity = capacity
            for answer in self._answers.values():
                answer.grow(capacity)

    def _count_once(self, query: PodCountQuery) -> MatchCount:
        """Returns the result of a query that is too large to be stored."""
        answer = MatchCount(query, self._capacity)
        for slot in np.flatnonzero(self._labels.matching(query.namespaces, query.selector)).tolist():
            self._include(answer, self._labels.group(slot))
        return answer

    def _keep(self, query: PodCountQuery) -> MatchCount:
        answer = self._answers[query] = MatchCount(query, self._capacity)
        self._answers_by_selector.add(query.selector, answer)
        candidates = self._labels.candidates(query.selector)
        if len(candidates) <= _FEW:
            for group in candidates:
                if query.matches(group):
                    self._connect(answer, group)
        else:
            self._evaluate(answer)
        self._key_bytes += query.key_bytes
        most = max_results(self._capacity)
        while len(self._answers) > 1 and (len(self._answers) > most or self._key_bytes > MOST_KEY_BYTES):
            self._drop(self._answers.popitem(last=False)[1])
        return answer

    def _evaluate(self, answer: MatchCount) -> None:
        """Compares the query with every Group (namespace and labels), and adds the pods of the groups that match."""
        mask = self._labels.matching(answer.query.namespaces, answer.query.selector)
        slots = np.flatnonzero(mask)
        if len(slots) <= _FEW:
            for slot in slots.tolist():
                self._connect(answer, self._labels.group(slot))
            return
        rows = len(self._wide)
        answer.index = next((row for row in range(rows) if row not in self._wide_answers), rows)
        if answer.index == rows:
            self._wide = np.pad(self._wide, ((0, max(rows, 4)), (0, 0)))
        self._wide[answer.index] = mask
        self._wide_answers[answer.index] = answer
        self._count_everywhere(answer, mask)

    def _connect(self, answer: MatchCount, group: Group) -> None:
        self.groups[group].answers.append(answer)
        self._include(answer, group)

    def _include(self, answer: MatchCount, group: Group) -> None:
        entry = self.groups[group]
        answer.groups.add(group)
        answer.add_all(entry.standing)
        if answer.query.terminating:
            answer.add_all(entry.terminating)

    def _count_everywhere(self, answer: MatchCount, mask: BoolColumn) -> None:
        places = self._places = self._places or self._all_places()
        counted = mask[places.slot]
        if not answer.query.terminating:
            counted &= ~places.terminating
        by_node = np.bincount(places.row[counted], places.pods[counted], self._capacity)
        answer.by_node = by_node.astype(np.int64)
        answer.total = int(places.pods[counted].sum())

    def _all_places(self) -> _Places:
        places = [
            (entry.slot, row, pods, terminating)
            for entry in self.groups.values()
            for terminating, counts in ((False, entry.standing), (True, entry.terminating))
            for row, pods in counts.items()
        ]
        columns = np.array(places, np.int64).reshape(-1, 4).T
        return _Places(columns[0], columns[1], columns[2], columns[3].astype(np.bool_))

    def _drop(self, answer: MatchCount) -> None:
        self._key_bytes -= answer.query.key_bytes
        self._answers_by_selector.remove(answer.query.selector, answer)
        for group in answer.groups:
            self.groups[group].answers.remove(answer)
        if answer.index >= 0:
            del self._wide_answers[answer.index]
            self._wide[answer.index] = False

    def _admit(self, group: Group) -> GroupEntry:
        entry = self.groups[group] = GroupEntry(self._free.pop() if self._free else self._slots)
        self._slots = max(self._slots, entry.slot + 1)
        self._labels.add(entry.slot, group)
        if self._labels.capacity > self._wide.shape[1]:
            self._wide = np.pad(self._wide, ((0, 0), (0, self._labels.capacity - self._wide.shape[1])))
        for answer in self._answers_by_selector.candidates(group.labels):
            if answer.query.matches(group):
                if answer.index >= 0:
                    self._wide[answer.index, entry.slot] = True
                else:
                    self._connect(answer, group)
        return entry

    def _dismiss(self, group: Group) -> None:
        entry = self.groups.pop(group)
        for answer in entry.answers:
            answer.groups.remove(group)
        self._wide[:, entry.slot] = False
        self._labels.remove(entry.slot)
        self._free.append(entry.slot)

    def _count(self, entry: GroupEntry, row: int, terminating: bool, pods: int) -> None:
        self._places = None
        adjust(entry.terminating if terminating else entry.standing, row, pods)
        answers = entry.answers
        if self._wide_answers:
            answers = [*answers, *(self._wide_answers[i] for i in np.flatnonzero(self._wide[:, entry.slot]).tolist())]
        for answer in answers:
            if answer.query.terminating or not terminating:
                answer.add(row, pods)
