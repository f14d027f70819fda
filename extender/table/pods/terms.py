"""What the pods that stand say, by their inter-pod (anti-)affinity terms, of a pod that is to come.

Terms are kept once for all pods that have equal ones. What they say of one kind of asking pod is a standing answer, as
in `matches`: the first time its terms are looked up, later each pod that comes or goes changes the sums.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from extender.table.label_index import LabelIndex, SelectorIndex
from extender.table.labels import IntColumn
from extender.table.podinfo import AffinityTerm, Group, PodInfo
from extender.table.pods.counts import NodeCounts

_KEPT = 512
NO_TERMS = 0


class TermKind(Enum):
    """How much a term asks."""

    REQUIRED_AFFINITY = "required affinity"
    REQUIRED_ANTI_AFFINITY = "required anti-affinity"
    PREFERRED = "preferred"


class Effect(NamedTuple):
    """What terms do where they match: they count, or weigh, for all nodes of a topology domain."""

    kind: TermKind
    topology_key: str


class HeldTerm(NamedTuple):
    """A term of a standing pod. `amount`: 1 if it is required, else its weight, negative in anti-affinity."""

    effect: Effect
    amount: int
    term: AffinityTerm


class Asking(NamedTuple):
    """All that the terms of others can tell of a pod."""

    group: Group
    namespace_labels: frozenset[tuple[str, str]]

    def is_meant_by(self, term: AffinityTerm) -> bool:
        """Whether the term matches the pod (upstream AffinityTerm.Matches)."""
        if self.group.namespace not in term.namespaces and not term.namespace_selector.matches(
            dict(self.namespace_labels)
        ):
            return False
        return term.selector.matches(dict(self.group.labels))


class TermCount(NodeCounts):
    """The sum of the amounts on each node. `amounts`: what one pod adds, by the slot of its terms."""

    __slots__ = ("amounts",)

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.amounts: Counter[int] = Counter()

    def amount_by_slot(self, slots: int) -> IntColumn:
        """What one pod adds: int64[slot of its terms]."""
        by_slot = np.zeros(slots, np.int64)
        by_slot[list(self.amounts)] = list(self.amounts.values())
        return by_slot


@dataclass(slots=True, eq=False)
class TermAnswer:
    """The standing answer about one kind of asking pod: the effects that terms have on it."""

    asking: Asking
    effects: dict[Effect, TermCount] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Holders:
    """The pods with equal terms: the slot of the terms, where they stand (pods by row), the sums that each adds to."""

    slot: int
    terms: tuple[HeldTerm, ...]
    rows: Counter[int] = field(default_factory=Counter)
    told: list[tuple[TermCount, int]] = field(default_factory=list)


class Terms:
    """All distinct sets of terms that standing pods have, and the standing answers about them."""

    def __init__(self, capacity: int) -> None:
        self.slots = NO_TERMS + 1
        self._capacity = capacity
        self._holders: dict[tuple[HeldTerm, ...], Holders] = {}
        self._by_slot: dict[int, Holders] = {}
        self._free: list[int] = []
        self._answers: OrderedDict[Asking, TermAnswer] = OrderedDict()
        self._terms_by_selector: SelectorIndex[tuple[int, HeldTerm]] = SelectorIndex()
        self._answers_by_label: LabelIndex[TermAnswer] = LabelIndex()

    def add(self, info: PodInfo, row: int) -> int:
        """The pod stands on `row` now; returns the slot of its terms, NO_TERMS if it has none."""
        terms = held_terms(info)
        if not terms:
            return NO_TERMS
        holders = self._holders.get(terms) or self._admit(terms)
        self._count(holders, row, 1)
        return holders.slot

    def remove(self, slot: int, row: int) -> None:
        """A pod whose terms have this slot has left `row`."""
        if slot == NO_TERMS:
            return
        holders = self._by_slot[slot]
        self._count(holders, row, -1)
        if not holders.rows:
            self._dismiss(holders)

    def concerning(self, asking: Asking) -> TermAnswer:
        """The effects that the terms of all standing pods have on the asking pod."""
        answer = self._answers.get(asking)
        if answer is None:
            return self._keep(asking)
        self._answers.move_to_end(asking)
        return answer

    def asked(self) -> tuple[Asking, ...]:
        """The asking pods about which there is a standing answer."""
        return tuple(self._answers)

    def holders(self) -> Mapping[tuple[HeldTerm, ...], Holders]:
        """Every set of terms that pods have."""
        return self._holders

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` rows."""
        if capacity != self._capacity:
            self._capacity = capacity
            for answer in self._answers.values():
                for count in answer.effects.values():
                    count.grow(capacity)

    def _keep(self, asking: Asking) -> TermAnswer:
        answer = self._answers[asking] = TermAnswer(asking)
        self._answers_by_label.add(asking.group.labels, answer)
        for slot, held in self._terms_by_selector.candidates(asking.group.labels):
            if asking.is_meant_by(held.term):
                self._connect(answer, self._by_slot[slot], held)
        if len(self._answers) > _KEPT:
            self._drop(self._answers.popitem(last=False)[1])
        return answer

    def _drop(self, answer: TermAnswer) -> None:
        self._answers_by_label.remove(answer.asking.group.labels, answer)
        for count in answer.effects.values():
            for slot in count.amounts:
                holders = self._by_slot[slot]
                holders.told = [told for told in holders.told if told[0] is not count]

    def _admit(self, terms: tuple[HeldTerm, ...]) -> Holders:
        slot = self._free.pop() if self._free else self.slots
        self.slots = max(self.slots, slot + 1)
        holders = self._holders[terms] = self._by_slot[slot] = Holders(slot, terms)
        for held in set(terms):
            self._terms_by_selector.add(held.term.selector, (slot, held))
            for answer in self._answers_by_label.candidates(held.term.selector):
                if answer.asking.is_meant_by(held.term):
                    self._connect(answer, holders, held)
        return holders

    def _dismiss(self, holders: Holders) -> None:
        for held in set(holders.terms):
            self._terms_by_selector.remove(held.term.selector, (holders.slot, held))
        for count, _ in holders.told:
            count.amounts.pop(holders.slot, None)
        del self._holders[holders.terms], self._by_slot[holders.slot]
        self._free.append(holders.slot)

    def _connect(self, answer: TermAnswer, holders: Holders, held: HeldTerm) -> None:
        count = answer.effects.get(held.effect)
        if count is None:
            count = answer.effects[held.effect] = TermCount(self._capacity)
        amount = held.amount * holders.terms.count(held)  # a term may be written twice, and then counts twice
        count.amounts[holders.slot] += amount
        count.add_all(holders.rows.items(), amount)
        holders.told.append((count, amount))

    def _count(self, holders: Holders, row: int, pods: int) -> None:
        holders.rows[row] += pods
        if not holders.rows[row]:
            del holders.rows[row]
        for count, amount in holders.told:
            count.add(row, pods * amount)


def held_terms(info: PodInfo) -> tuple[HeldTerm, ...]:
    """All terms of the pod, as others have to reckon with them."""
    affinity = info.pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return ()
    return (
        *(_held(TermKind.REQUIRED_AFFINITY, term, 1) for term in info.required_affinity),
        *(_held(TermKind.REQUIRED_ANTI_AFFINITY, term, 1) for term in info.required_anti_affinity),
        *(_held(TermKind.PREFERRED, term, term.weight) for term in info.preferred_affinity),
        *(_held(TermKind.PREFERRED, term, -term.weight) for term in info.preferred_anti_affinity),
    )


def _held(kind: TermKind, term: AffinityTerm, amount: int) -> HeldTerm:
    return HeldTerm(Effect(kind, term.topology_key), amount, term)
