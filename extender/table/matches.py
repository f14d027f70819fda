"""How many pods a selector finds on each node, kept as a standing answer.

The first question for a selector counts the pods that stand; from then on each pod that comes or goes adds or subtracts
one, so that asking again costs nothing. Selectors are tried once per group of alike pods, never per pod.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.model.selectors import Selector
from extender.table.podinfo import Group

_KEPT = 512


class Question(NamedTuple):
    """Which pods are to be counted. `namespaces` None: all of them."""

    namespaces: frozenset[str] | None
    selector: Selector
    terminating: bool = True

    def finds(self, group: Group) -> bool:
        """Whether pods of this group are counted."""
        if self.namespaces is not None and group.namespace not in self.namespaces:
            return False
        return self.selector.matches(dict(group.labels))


class MatchCount:
    """The standing answer to one question: `by_node` int64[row], and their sum."""

    __slots__ = ("by_node", "question", "total")

    def __init__(self, question: Question, capacity: int) -> None:
        self.question = question
        self.by_node: NDArray[np.int64] = np.zeros(capacity, np.int64)
        self.total = 0

    def add(self, row: int, pods: int) -> None:
        self.by_node[row] += pods
        self.total += pods


@dataclass(slots=True)
class GroupEntry:
    """A group that has pods: its slot in `Matches.groups`, how many pods, and the answers that count them."""

    slot: int
    pods: int
    answers: list[MatchCount]


class Matches:
    """All groups with pods, and the standing answers about them."""

    def __init__(self) -> None:
        self.groups: list[Group | None] = []
        self._entries: dict[Group, GroupEntry] = {}
        self._free: list[int] = []
        self._answers: OrderedDict[Question, MatchCount] = OrderedDict()

    def add(self, group: Group, row: int, terminating: bool) -> int:
        """A pod of `group` stands on `row` now; returns the group's slot."""
        entry = self._entries.get(group) or self._admit(group)
        entry.pods += 1
        self._tell(entry, row, terminating, 1)
        return entry.slot

    def remove(self, group: Group, row: int, terminating: bool) -> None:
        """A pod of `group` has left `row`."""
        entry = self._entries[group]
        entry.pods -= 1
        self._tell(entry, row, terminating, -1)
        if not entry.pods:
            del self._entries[group]
            self.groups[entry.slot] = None
            self._free.append(entry.slot)

    def found(self, question: Question) -> NDArray[np.bool_]:
        """Which group slots the question finds: bool[slot]."""
        return np.fromiter(
            (group is not None and question.finds(group) for group in self.groups), np.bool_, len(self.groups)
        )

    def answer(self, question: Question) -> MatchCount | None:
        """The standing answer, if the question was asked before."""
        known = self._answers.get(question)
        if known is not None:
            self._answers.move_to_end(question)
        return known

    def keep(self, answer: MatchCount) -> None:
        """Lets `answer` stand: it is kept up to date until many others have been asked for since."""
        self._answers[answer.question] = answer
        for group, entry in self._entries.items():
            if answer.question.finds(group):
                entry.answers.append(answer)
        if len(self._answers) > _KEPT:
            self._drop(self._answers.popitem(last=False)[1])

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` rows."""
        for answer in self._answers.values():
            answer.by_node = np.pad(answer.by_node, (0, capacity - len(answer.by_node)))

    def _admit(self, group: Group) -> GroupEntry:
        slot = self._free.pop() if self._free else len(self.groups)
        self.groups[slot : slot + 1] = [group]
        answers = [answer for question, answer in self._answers.items() if question.finds(group)]
        entry = self._entries[group] = GroupEntry(slot, 0, answers)
        return entry

    def _tell(self, entry: GroupEntry, row: int, terminating: bool, pods: int) -> None:
        for answer in entry.answers:
            if answer.question.terminating or not terminating:
                answer.add(row, pods)

    def _drop(self, answer: MatchCount) -> None:
        for entry in self._entries.values():
            entry.answers = [kept for kept in entry.answers if kept is not answer]
