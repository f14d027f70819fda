"""How many pods a selector finds on each node, kept as a standing answer.

The first question for a selector counts the pods that stand; from then on each pod that comes or goes adds or subtracts
one, so that asking again costs nothing. Pods are counted by group, and a selector is tried once per group that shares a
label with it, never per pod.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from extender.model.selectors import Selector
from extender.table.label_index import LabelIndex, SelectorIndex
from extender.table.labels import BoolColumn
from extender.table.podinfo import Group
from extender.table.pods.counts import NodeCounts

_KEPT = 512


class PodCountQuery(NamedTuple):
    """Which pods are to be counted. `namespaces` None: all of them."""

    namespaces: frozenset[str] | None
    selector: Selector
    terminating: bool = True

    def finds(self, group: Group) -> bool:
        """Whether pods of this group are counted."""
        if self.namespaces is not None and group.namespace not in self.namespaces:
            return False
        return self.selector.matches(dict(group.labels))


class MatchCount(NodeCounts):
    """The standing answer to one question. `groups`: the groups that it counts."""

    __slots__ = ("groups", "question")

    def __init__(self, question: PodCountQuery, capacity: int) -> None:
        super().__init__(capacity)
        self.question = question
        self.groups: set[Group] = set()


@dataclass(slots=True)
class GroupEntry:
    """A group that has pods: its slot, where they stand (pods by row), and the answers that count them."""

    slot: int
    standing: Counter[int] = field(default_factory=Counter)
    terminating: Counter[int] = field(default_factory=Counter)
    answers: list[MatchCount] = field(default_factory=list)


class Matches:
    """All groups with pods, and the standing answers about them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[Group, GroupEntry] = {}
        self._slots = 0
        self._free: list[int] = []
        self._answers: OrderedDict[PodCountQuery, MatchCount] = OrderedDict()
        self._groups_by_label: LabelIndex[Group] = LabelIndex()
        self._answers_by_selector: SelectorIndex[MatchCount] = SelectorIndex()

    def add(self, group: Group, row: int, terminating: bool) -> int:
        """A pod of `group` stands on `row` now; returns the group's slot, which no other group has meanwhile."""
        entry = self._entries.get(group) or self._admit(group)
        self._count(entry, row, terminating, 1)
        return entry.slot

    def remove(self, group: Group, row: int, terminating: bool) -> None:
        """A pod of `group` has left `row`."""
        entry = self._entries[group]
        self._count(entry, row, terminating, -1)
        if not entry.standing and not entry.terminating:
            self._dismiss(group)

    def ask(self, question: PodCountQuery) -> MatchCount:
        """The standing answer, made now if the question was not asked before."""
        answer = self._answers.get(question)
        if answer is None:
            return self._keep(question)
        self._answers.move_to_end(question)
        return answer

    def asked(self) -> tuple[PodCountQuery, ...]:
        """The questions that have a standing answer."""
        return tuple(self._answers)

    def groups(self) -> Mapping[Group, GroupEntry]:
        """Every group that has pods."""
        return self._entries

    def found(self, question: PodCountQuery) -> BoolColumn:
        """Which group slots the question finds: bool[slot]."""
        found = np.zeros(self._slots, np.bool_)
        found[[self._entries[group].slot for group in self.ask(question).groups]] = True
        return found

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` rows."""
        if capacity != self._capacity:
            self._capacity = capacity
            for answer in self._answers.values():
                answer.grow(capacity)

    def _keep(self, question: PodCountQuery) -> MatchCount:
        answer = self._answers[question] = MatchCount(question, self._capacity)
        self._answers_by_selector.add(question.selector, answer)
        for group in self._groups_by_label.candidates(question.selector):
            if question.finds(group):
                self._connect(answer, group)
        if len(self._answers) > _KEPT:
            self._drop(self._answers.popitem(last=False)[1])
        return answer

    def _drop(self, answer: MatchCount) -> None:
        self._answers_by_selector.remove(answer.question.selector, answer)
        for group in answer.groups:
            self._entries[group].answers.remove(answer)

    def _admit(self, group: Group) -> GroupEntry:
        entry = self._entries[group] = GroupEntry(self._free.pop() if self._free else self._slots)
        self._slots = max(self._slots, entry.slot + 1)
        self._groups_by_label.add(group.labels, group)
        for answer in self._answers_by_selector.candidates(group.labels):
            if answer.question.finds(group):
                self._connect(answer, group)
        return entry

    def _dismiss(self, group: Group) -> None:
        entry = self._entries.pop(group)
        self._free.append(entry.slot)
        self._groups_by_label.remove(group.labels, group)
        for answer in entry.answers:
            answer.groups.remove(group)

    def _connect(self, answer: MatchCount, group: Group) -> None:
        entry = self._entries[group]
        entry.answers.append(answer)
        answer.groups.add(group)
        answer.add_all(entry.standing.items())
        if answer.question.terminating:
            answer.add_all(entry.terminating.items())

    def _count(self, entry: GroupEntry, row: int, terminating: bool, pods: int) -> None:
        counts = entry.terminating if terminating else entry.standing
        counts[row] += pods
        if not counts[row]:
            del counts[row]
        for answer in entry.answers:
            if answer.question.terminating or not terminating:
                answer.add(row, pods)
