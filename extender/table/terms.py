"""Computes how the inter-pod affinity and anti-affinity terms of placed pods affect an incoming pod.

An incoming pod is a pod that needs a node. Equal lists of terms are stored once. For an incoming pod, the terms of all
placed pods are compared with it, and the amounts of matching terms are added up by node. When a second pod with the
same namespace and labels comes, these sums are stored for the next ones, and each pod that is placed or removed changes
the sums, as in `matches`.

A pod may have 25,000 terms. Three things save time. A term whose topology key no node has is ignored, because it has no
effect. The terms of one pod with the same Effect are added up. If a pod with many terms is placed, the stored sums are
dropped, and computed again when they are needed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

import numpy as np

from extender.model.selectors import Selector
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table.filing import Filing, adjust
from extender.table.labels import IntColumn, LabelColumns, LabelIndex, SelectorIndex
from extender.table.matches import LARGEST_KEY_BYTES, MOST_KEY_BYTES, NodeCounts, key_bytes, max_results
from extender.table.podinfo import AffinityTerm, Group, PodInfo

NO_TERMS = 0
_TERMS_BETWEEN_CHECKS = 256
_MOST_ASKED = 4096  # of so many incoming pods at most, it is remembered that one has come
_MAX_PAIRS_TO_MATCH = 10_000
"""When terms are added, each is compared with the query of each stored sum, up to this number of pairs.

If there are more pairs, the stored sums are dropped, and computed again when they are needed.
"""


class TermKind(StrEnum):
    REQUIRED_AFFINITY = "required affinity"
    REQUIRED_ANTI_AFFINITY = "required anti-affinity"
    PREFERRED = "preferred"


class Effect(NamedTuple):
    """A kind of affinity term and a topology key. The amounts of terms with the same Effect are added up."""

    kind: TermKind
    topology_key: str


class HeldTerm(NamedTuple):
    """An affinity or anti-affinity term of a placed pod.

    Attributes:
        amount: 1 if the term is required, else its weight, which is negative for anti-affinity.
    """

    effect: Effect
    amount: int
    term: AffinityTerm


class IncomingPod(NamedTuple):
    """The properties of an incoming pod that decide which affinity terms match it."""

    group: Group
    namespace_labels: frozenset[tuple[str, str]]

    @property
    def key_bytes(self) -> int:
        """The approximate size of the namespace and labels in memory, in bytes."""
        return key_bytes((self.group.namespace, *chain.from_iterable(self.group.labels)))

    def is_matched_by(self, term: AffinityTerm) -> bool:
        """Returns True if the term matches the pod (upstream AffinityTerm.Matches)."""
        return self.is_in(term.namespaces, term.namespace_selector) and term.selector.matches(self.group.mapping)

    def is_in(self, namespaces: frozenset[str], selector: Selector) -> bool:
        """Returns True if the pod's namespace is in `namespaces`, or if the namespace's labels match `selector`."""
        if self.group.namespace in namespaces:
            return True
        return not selector.nothing and selector.matches(dict(self.namespace_labels))


class TermCount(NodeCounts):
    """Adds up, on each node, the terms with one Effect that match an incoming pod.

    A term matches if it selects the incoming pod. It adds its `HeldTerm.amount` to the node of the pod that has it.

    Attributes:
        amounts: `PodsWithTerms.slot` of a list of terms -> how much each pod with this list adds to its node.
    """

    __slots__ = ("amounts",)

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.amounts: dict[int, int] = {}

    def amount_by_slot(self, slots: int) -> IntColumn:
        """Returns `amounts` as an array with one entry for each slot: int64[slots]."""
        by_slot = np.zeros(slots, np.int64)
        by_slot[list(self.amounts)] = list(self.amounts.values())
        return by_slot


@dataclass(slots=True, eq=False)
class TermEffects:
    """For one incoming pod, the matching affinity terms of placed pods, added up on each node for each Effect.

    The sums are the same for all incoming pods with one namespace and labels.
    """

    incoming: IncomingPod
    effects: dict[Effect, TermCount] = field(default_factory=dict)


_NOBODY = TermEffects(IncomingPod(Group("", frozenset()), frozenset()))


@dataclass(slots=True, eq=False)
class PodsWithTerms:
    """The placed pods that have the same list of affinity and anti-affinity terms.

    Attributes:
        slot: the index that identifies this list of terms. It is used again after the last such pod is removed.
        terms: the list of terms.
        filed: how often each term is in the list. Terms whose topology key no node has are left out.
        rows: row -> how many of these pods are on this node.
        sums: the stored sums that these pods add to -> the amount that one pod adds.
        excluding: (Effect, namespaces, namespace selector) -> the total amount of the list's excluding terms with these
            three values (see `_is_excluding`).
    """

    slot: int
    terms: tuple[HeldTerm, ...]
    filed: Counter[HeldTerm]
    rows: dict[int, int] = field(default_factory=dict)
    sums: dict[TermCount, int] = field(default_factory=dict)
    excluding: Counter[tuple[Effect, frozenset[str], Selector]] = field(default_factory=Counter)


class Terms:
    """Stores the affinity and anti-affinity terms of placed pods, and their effects on incoming pods.

    Attributes:
        slots: the number of slots, in use or free. Each distinct list of terms has a slot.
        pods_by_terms: for each distinct list of terms, the placed pods that have it.
        changes: the number of times that a pod with terms was placed or removed.
    """

    def __init__(self, capacity: int, labels: LabelColumns) -> None:
        self.slots = NO_TERMS + 1
        self.changes = 0
        self._capacity = capacity
        self._labels = labels
        self._topology_keys = frozenset(labels)
        self._key_changes = labels.key_changes
        self.pods_by_terms: dict[tuple[HeldTerm, ...], PodsWithTerms] = {}
        self._by_slot: dict[int, PodsWithTerms] = {}
        self._free: list[int] = []
        self._answers: OrderedDict[IncomingPod, TermEffects] = OrderedDict()
        self._last = _NOBODY  # the last sums that were not stored
        self._last_as_of = 0  # the value of `changes` at that time
        self._asked: set[int] = set()  # hashes of incoming pods whose sums were not stored
        self._counts = 0  # the number of TermCounts in all of `_answers`
        self._key_bytes = 0
        self._terms_by_selector: SelectorIndex[tuple[int, HeldTerm]] = SelectorIndex()
        self._excluding_by_key: Filing[str, tuple[int, HeldTerm]] = Filing()
        self._with_excluding: dict[int, PodsWithTerms] = {}
        self._answers_by_label: LabelIndex[TermEffects] = LabelIndex()

    def add(self, info: PodInfo, row: int) -> int:
        """Adds the terms of a pod on `row`. Returns the slot of the pod's list of terms; NO_TERMS for an empty list."""
        terms = held_terms(info)
        if not terms:
            return NO_TERMS
        pods = self.pods_by_terms.get(terms) or self._admit(terms)
        self._count(pods, row, 1)
        return pods.slot

    def remove(self, slot: int, row: int) -> None:
        """Removes the terms of a pod on `row`. `slot`: the slot of its list of terms."""
        if slot == NO_TERMS:
            return
        pods = self._by_slot[slot]
        self._count(pods, row, -1)
        if not pods.rows:
            self._dismiss(pods)

    def follow_labels(self) -> None:
        """Decides again which terms count, if a label key got its first node or lost its last one.

        A term counts only if a node has its topology key. All stored sums are dropped.
        """
        if self._key_changes == self._labels.key_changes:
            return
        self._key_changes = self._labels.key_changes
        self._drop_answers()
        self._topology_keys = frozenset(self._labels)
        for pods in self._by_slot.values():
            filed = self._with_domains(pods.terms)
            self._unfile(pods)
            pods.filed = filed
            self._file(pods)

    def effects_on(self, incoming: IncomingPod, deadline: Deadline = NO_DEADLINE) -> TermEffects:
        """Returns how the affinity and anti-affinity terms of all placed pods affect the incoming pod.

        Raises:
            DeadlineExceeded: comparing the terms took too long; nothing was stored.
        """
        answer = self._answers.get(incoming)
        if answer is not None:
            self._answers.move_to_end(incoming)
            return answer
        if self._last_as_of != self.changes or self._last.incoming != incoming:
            amounts = self._amounts(incoming, deadline)
            if self._was_asked_before(incoming) and incoming.key_bytes <= LARGEST_KEY_BYTES:
                return self._keep(incoming, amounts)
            self._last = self._sums(incoming, amounts)
            self._last_as_of = self.changes
        return self._last

    def incoming_pods(self) -> tuple[IncomingPod, ...]:
        """Returns the incoming pods for which `effects_on` has stored a result."""
        return tuple(self._answers)

    def grow(self, capacity: int) -> None:
        """Enlarges all sums to `capacity` rows."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._last = _NOBODY
            for answer in self._answers.values():
                for count in answer.effects.values():
                    count.grow(capacity)

    def _was_asked_before(self, incoming: IncomingPod) -> bool:
        """Returns True if another pod with the same namespace and labels was incoming not long ago."""
        if len(self._asked) > _MOST_ASKED:
            self._asked.clear()
        before = len(self._asked)
        self._asked.add(hash(incoming))
        return len(self._asked) == before

    def _amounts(self, incoming: IncomingPod, deadline: Deadline) -> Mapping[tuple[int, Effect], int]:
        """Returns how much each pod with a matching term adds to its node: {(`PodsWithTerms.slot`, Effect): amount}."""
        amounts: defaultdict[tuple[int, Effect], int] = defaultdict(int)
        for number, (slot, held_term) in enumerate(self._terms_by_selector.candidates(incoming.group.labels)):
            if not number % _TERMS_BETWEEN_CHECKS:
                deadline.check("the affinity terms of other pods")
            if incoming.is_matched_by(held_term.term):
                amounts[slot, held_term.effect] += held_term.amount * self._by_slot[slot].filed[held_term]
        for pods in self._with_excluding.values():
            deadline.check("the affinity terms of other pods")
            for (effect, namespaces, selector), amount in pods.excluding.items():
                if incoming.is_in(namespaces, selector):
                    amounts[pods.slot, effect] += amount
        for slot, held_term in self._excluded(incoming) if self._with_excluding else ():
            amounts[slot, held_term.effect] -= held_term.amount * self._by_slot[slot].filed[held_term]
        return {where: amount for where, amount in amounts.items() if amount}

    def _excluded(self, incoming: IncomingPod) -> set[tuple[int, HeldTerm]]:
        """Returns (slot, term) of the excluding terms that match the incoming pod's namespace, but not its labels.

        An excluding term selects pods without certain labels, like `team DoesNotExist` (see `_is_excluding`).
        """
        labels = incoming.group.mapping
        keys = self._excluding_by_key.among(frozenset(labels))
        return {
            (slot, held_term)
            for key in keys
            for slot, held_term in self._excluding_by_key.get(key)
            if incoming.is_in(held_term.term.namespaces, held_term.term.namespace_selector)
            and not held_term.term.selector.matches(labels)
        }

    def _sums(self, incoming: IncomingPod, amounts: Mapping[tuple[int, Effect], int]) -> TermEffects:
        answer = TermEffects(incoming)
        for (slot, effect), amount in amounts.items():
            self._include(answer, self._by_slot[slot], effect, amount)
        return answer

    def _keep(self, incoming: IncomingPod, amounts: Mapping[tuple[int, Effect], int]) -> TermEffects:
        answer = self._answers[incoming] = self._sums(incoming, amounts)
        self._answers_by_label.add(incoming.group.labels, answer)
        self._counts += len(answer.effects)
        for count in answer.effects.values():
            for slot, amount in count.amounts.items():
                self._by_slot[slot].sums[count] = amount
        self._key_bytes += incoming.key_bytes
        most = max_results(self._capacity)
        while len(self._answers) > 1 and (
            max(len(self._answers), self._counts) > most or self._key_bytes > MOST_KEY_BYTES
        ):
            self._drop(self._answers.popitem(last=False)[1])
        return answer

    def _drop(self, answer: TermEffects) -> None:
        self._answers_by_label.remove(answer.incoming.group.labels, answer)
        self._counts -= len(answer.effects)
        self._key_bytes -= answer.incoming.key_bytes
        for count in answer.effects.values():
            for slot in count.amounts:
                del self._by_slot[slot].sums[count]

    def _admit(self, terms: tuple[HeldTerm, ...]) -> PodsWithTerms:
        slot = self._free.pop() if self._free else self.slots
        self.slots = max(self.slots, slot + 1)
        filed = self._with_domains(terms)
        pods = self.pods_by_terms[terms] = self._by_slot[slot] = PodsWithTerms(slot, terms, filed)
        self._file(pods)
        amounts: dict[TermEffects, Counter[Effect]] = {}
        candidates = {held_term: self._answers_by_label.candidates(held_term.term.selector) for held_term in filed}
        if sum(map(len, candidates.values())) > _MAX_PAIRS_TO_MATCH:
            self._drop_answers()
            return pods
        for held_term, answers in candidates.items():
            for answer in answers:
                if answer.incoming.is_matched_by(held_term.term):
                    amounts.setdefault(answer, Counter())[held_term.effect] += held_term.amount * filed[held_term]
        for answer, by_effect in amounts.items():
            before = len(answer.effects)
            for effect, amount in by_effect.items():
                pods.sums[self._include(answer, pods, effect, amount)] = amount
            self._counts += len(answer.effects) - before
        return pods

    def _dismiss(self, pods: PodsWithTerms) -> None:
        self._unfile(pods)
        for count in pods.sums:
            del count.amounts[pods.slot]
        del self.pods_by_terms[pods.terms], self._by_slot[pods.slot]
        self._free.append(pods.slot)

    def _file(self, pods: PodsWithTerms) -> None:
        for held_term, times in pods.filed.items():
            entry, term = (pods.slot, held_term), held_term.term
            if not _is_excluding(term.selector):
                self._terms_by_selector.add(term.selector, entry)
                continue
            pods.excluding[held_term.effect, term.namespaces, term.namespace_selector] += held_term.amount * times
            self._with_excluding[pods.slot] = pods
            for key in {requirement.key for requirement in term.selector.requirements}:
                self._excluding_by_key.add(key, entry)

    def _unfile(self, pods: PodsWithTerms) -> None:
        for held_term in pods.filed:
            entry, term = (pods.slot, held_term), held_term.term
            if not _is_excluding(term.selector):
                self._terms_by_selector.remove(term.selector, entry)
                continue
            for key in {requirement.key for requirement in term.selector.requirements}:
                self._excluding_by_key.remove(key, entry)
        pods.excluding.clear()
        self._with_excluding.pop(pods.slot, None)

    def _with_domains(self, terms: tuple[HeldTerm, ...]) -> Counter[HeldTerm]:
        """Counts how often each term is in `terms`. Leaves out terms whose topology key no node has."""
        return Counter(held_term for held_term in terms if held_term.effect.topology_key in self._topology_keys)

    def _drop_answers(self) -> None:
        self._last = _NOBODY
        for answer in self._answers.values():
            self._drop(answer)
        self._answers.clear()

    def _include(self, answer: TermEffects, pods: PodsWithTerms, effect: Effect, amount: int) -> TermCount:
        count = answer.effects.get(effect)
        if count is None:
            count = answer.effects[effect] = TermCount(self._capacity)
        count.amounts[pods.slot] = amount
        count.add_all(pods.rows, amount)
        return count

    def _count(self, pods: PodsWithTerms, row: int, change: int) -> None:
        self.changes += 1
        adjust(pods.rows, row, change)
        for count, amount in pods.sums.items():
            count.add(row, change * amount)


def _is_excluding(selector: Selector) -> bool:
    """Returns True if the selector has only NotIn and DoesNotExist requirements.

    Most pods match such a selector. So the terms with such selectors are added up in advance, and the few that do not
    match the incoming pod are subtracted.
    """
    return bool(selector.requirements) and all(
        requirement.operator in ("NotIn", "DoesNotExist") for requirement in selector.requirements
    )


def held_terms(info: PodInfo) -> tuple[HeldTerm, ...]:
    """Returns the pod's affinity and anti-affinity terms, each with its Effect and amount."""
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
