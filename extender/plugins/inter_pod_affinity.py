"""InterPodAffinity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import (
    ANY,
    Interest,
    Interests,
    Reads,
    has_place,
    names_of_labels,
    names_of_selector,
)
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.rules import MAX_SCORE, Check, PerTemplate, Scorer, Scores, Verdict
from extender.framework.schema import Percentage
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import DomainCounts, summed_by_domain
from extender.model.node import Node
from extender.model.selectors import EVERYTHING, NOTHING, Selector
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows
from extender.table.podinfo import AffinityTerm
from extender.table.pods.matches import MatchCount
from extender.table.pods.terms import Effect, IncomingPod, TermCount, TermKind


def asking(pod: PodInfo, table: Table) -> IncomingPod:
    """Returns the pod as the terms of others see it."""
    return IncomingPod(pod.group, table.namespaces.labels(pod.group.namespace))


def effects_on(pod: PodInfo, table: Table) -> Mapping[Effect, TermCount]:
    """Returns the effects that the terms of all standing pods have on the pod."""
    return table.terms.effects_on(asking(pod, table)).effects if table.terms.holders() else {}


def pods_meant(term: AffinityTerm, table: Table) -> PodCountQuery:
    """Returns the query for the pods that the term matches."""
    return PodCountQuery(_term_namespaces(term, table), term.selector)


def pods_meant_by_all(terms: Sequence[AffinityTerm], table: Table) -> PodCountQuery:
    """Returns the query for the pods that every one of the terms matches; there must be at least one term."""
    named = [names for term in terms if (names := _term_namespaces(term, table)) is not None]
    requirements = dict.fromkeys(requirement for term in terms for requirement in term.selector.requirements)
    selector = Selector(tuple(requirements), any(term.selector.nothing for term in terms))
    return PodCountQuery(frozenset.intersection(*named) if named else None, selector)


def pods_by_domain(topology_key: str, found: MatchCount, table: Table) -> DomainCounts:
    column = table.nodes.labels[topology_key]
    pods = summed_by_domain(column, found.by_node)
    return DomainCounts(column.ids, pods, lambda gone: gone.matching(found.query))


def terms_against(pod: PodInfo, table: Table) -> list[DomainCounts]:
    """Returns the anti-affinity terms that standing pods have against the pod, for each topology key."""
    counts = [
        _terms_by_domain(effect.topology_key, count, table)
        for effect, count in effects_on(pod, table).items()
        if effect.kind is TermKind.REQUIRED_ANTI_AFFINITY and count.amounts
    ]
    return [count for count in counts if count.pods.any()]


def _term_namespaces(term: AffinityTerm, table: Table) -> frozenset[str] | None:
    if term.namespace_selector == EVERYTHING:
        return None
    return term.namespaces | table.namespaces.matching(term.namespace_selector)


def _terms_by_domain(topology_key: str, count: TermCount, table: Table) -> DomainCounts:
    column = table.nodes.labels[topology_key]

    def leaving(gone: HypotheticalRemovals) -> IntColumn:
        return gone.sum_by_row(count, lambda slots: count.amount_by_slot(table.terms.slots)[table.pods.terms[slots]])

    return DomainCounts(column.ids, summed_by_domain(column, count.by_node), leaving)


NAME = "InterPodAffinity"
NOT_WITH_WANTED = unresolvable(NAME, "node(s) didn't match pod affinity rules")
WITH_REFUSED = unschedulable(NAME, "node(s) didn't match pod anti-affinity rules")
REFUSED_BY_OTHERS = unschedulable(NAME, "node(s) didn't satisfy existing pods anti-affinity rules")


@dataclass(frozen=True, slots=True)
class InterPodAffinityFilter(PerTemplate):
    """Requires the pod's affinity, and no anti-affinity between it and pods that stand."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        refusing = terms_against(pod, table)
        if not (refusing or pod.required_affinity or pod.required_anti_affinity):
            return None
        return _InterPodAffinityCheck(_wanted(pod, table), _refused(pod, table), refusing)


def _refused(pod: PodInfo, table: Table) -> list[DomainCounts]:
    """Returns the pods that must not be there, for each distinct term that finds any."""
    terms = dict.fromkeys((term.topology_key, pods_meant(term, table)) for term in pod.required_anti_affinity)
    found = [(key, table.matching(question)) for key, question in terms]
    return [pods_by_domain(key, pods, table) for key, pods in found if pods.total]


def _wanted(pod: PodInfo, table: Table) -> _Wanted | None:
    if not pod.required_affinity:
        return None
    question = pods_meant_by_all(pod.required_affinity, table)
    found = table.matching(question)
    keys = dict.fromkeys(term.topology_key for term in pod.required_affinity)
    return _Wanted([pods_by_domain(key, found, table) for key in keys], question.matches(pod.group))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The pods that must be there, for each topology key; `wants_itself`: the pod matches its own terms."""

    counts: Sequence[DomainCounts]
    wants_itself: bool

    def lacking(self, rows: Rows, gone: HypotheticalRemovals | None) -> BoolColumn:
        """Returns bool[len(rows)]: a key has no pod in the row's domain.

        The first pod of a group that has affinity to itself may stand anywhere."""
        lacking = np.zeros(len(rows), np.bool_)
        anywhere: IntColumn | int = sum(int(count.pods.sum()) for count in self.counts)
        for count in self.counts:
            left = 0 if gone is None else count.removed(rows, gone)
            lacking |= count.around(rows) <= left
            anywhere = anywhere - left
        if self.wants_itself and np.any(anywhere == 0):
            labelled = np.ones(len(rows), np.bool_)
            for count in self.counts:
                labelled &= count.domain[rows] != ABSENT
            lacking &= ~(labelled & (anywhere == 0))
        return lacking


class _InterPodAffinityCheck(Check):
    sees_pods = True

    def __init__(
        self, wanted: _Wanted | None, refused: Sequence[DomainCounts], refusing: Sequence[DomainCounts]
    ) -> None:
        self._wanted, self._refused, self._refusing = wanted, refused, refusing

    def refuse(self, rows: Rows) -> Verdict:
        return self._verdict(rows, None)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        return self._verdict(rows, gone)

    def _verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        lacking = np.zeros(len(rows), np.bool_) if self._wanted is None else self._wanted.lacking(rows, gone)
        clashing = _any_around(self._refused, rows, gone) & ~lacking
        refused = _any_around(self._refusing, rows, gone) & ~(lacking | clashing)
        return [(lacking, NOT_WITH_WANTED), (clashing, WITH_REFUSED), (refused, REFUSED_BY_OTHERS)]


def _any_around(counts: Sequence[DomainCounts], rows: Rows, gone: HypotheticalRemovals | None) -> BoolColumn:
    """Returns bool[len(rows)]: any of the counts has a pod in the row's domain."""
    found = np.zeros(len(rows), np.bool_)
    for count in counts:
        found |= count.around(rows) > (0 if gone is None else count.removed(rows, gone))
    return found


@dataclass(frozen=True, slots=True)
class InterPodAffinityScore(PerTemplate):
    """Prefers nodes by the weights of the terms that hold there.

    `hard_pod_affinity_weight`: what a required affinity term of a standing pod weighs, 0 to 100.
    `ignore_preferred_terms_of_existing_pods`: terms of others count only for pods that have preferred terms themselves.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        weights = list(_own(pod, table))
        if weights or not self.ignore_preferred_terms_of_existing_pods:
            weights += self._others(pod, table)
        return _InterPodAffinityScorer(weights, table) if weights else None

    def _others(self, pod: PodInfo, table: Table) -> Iterator[tuple[str, IntColumn]]:
        """(topology key, weight by node) of the terms that standing pods have about the pod."""
        factors = {TermKind.PREFERRED: 1, TermKind.REQUIRED_AFFINITY: self.hard_pod_affinity_weight}
        for effect, count in effects_on(pod, table).items():
            factor = factors.get(effect.kind, 0)
            if factor and count.amounts:
                yield effect.topology_key, factor * count.by_node


def _own(pod: PodInfo, table: Table) -> Iterator[tuple[str, IntColumn]]:
    """(topology key, weight by node) of the pod's preferred terms."""
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for term in terms:
            yield term.topology_key, sign * term.weight * table.matching(pods_meant(term, table)).by_node


class _InterPodAffinityScorer(Scorer):
    normalises = True

    def __init__(self, weights: Iterable[tuple[str, IntColumn]], table: Table) -> None:
        by_key: dict[str, IntColumn] = {}
        for key, by_node in weights:
            by_key[key] = by_key[key] + by_node if key in by_key else by_node
        columns = [(table.nodes.labels[key], by_node) for key, by_node in by_key.items()]
        self._by_domain = [(column.ids, summed_by_domain(column, by_node)) for column, by_node in columns]

    def map(self, rows: Rows) -> Scores:
        scores = np.zeros(len(rows), np.int64)
        for domain, weights in self._by_domain:
            scores += weights[domain[rows]]
        return scores

    def reduce(self, raw: Scores) -> Scores:
        if not raw.any():
            return raw
        least = int(raw.min())
        share = (raw - least) / max(int(raw.max()) - least, 1)
        return np.multiply(MAX_SCORE, share).astype(np.int64)


def terms_are_met(pod: PodInfo, change: Change) -> bool:
    """Returns True if a placed pod came to match the affinity, or ceased to stand against the pod.

    It stands against the pod by anti-affinity on either side, or as the one that the pod must be near.
    """
    old, new = change.old, change.new
    if not has_place(old) or not has_place(new):
        return False
    wanted, unwanted = pod.required_affinity, pod.required_anti_affinity
    if old is None:
        return _matches_all(wanted, new)
    if new is None:
        minded = _matches_any(unwanted, old) or _matches_any(old.required_anti_affinity, pod)
        return minded or _may_be_first_after(pod, old)
    if _matches_all(wanted, new):
        if not _matches_all(wanted, old):
            return True
    elif _may_be_first_after(pod, old):
        return True
    return _matches_any(unwanted, old) and not _matches_any(unwanted, new)


def _may_be_first_after(pod: PodInfo, gone: PodInfo) -> bool:
    """Returns True if the pod needs nobody to be near once the last such pod is gone, for it is one itself.

    Upstream has such a pod wait until all pods are tried again.
    """
    return _matches_all(pod.required_affinity, gone) and _matches_all(pod.required_affinity, pod)


def node_changes_domain(pod: PodInfo, change: Change) -> bool:
    """Returns True if a node joined a topology domain of one of the pod's terms, or left any.

    A pod without terms is one that placed pods stand against, by theirs: they are on no new node, and on one that
    leaves a domain they stand elsewhere. Upstream looks at the terms of the pod alone.
    """
    old, new = change.old, change.new
    wanted = {term.topology_key for term in pod.required_affinity}
    if old is None:
        return not wanted or not wanted.isdisjoint(new.labels)
    if new is None or any(new.labels.get(key) != value for key, value in old.labels.items()):
        return True
    return any(_joins(old, new, key) for key in wanted)


def namespace_is_selected_otherwise(pod: PodInfo, change: Change) -> bool:
    """Returns True if the labels of a namespace changed which terms of the pod, or others' about the pod, may select.

    Upstream registers for no namespaces: such a pod waits there until all pods are tried again.
    """
    old, new = change.old, change.new
    if old is not None and new is not None and old.labels == new.labels:
        return False
    own = (*pod.required_affinity, *pod.required_anti_affinity)
    return (new or old).name == pod.group.namespace or any(term.namespace_selector != NOTHING for term in own)


def _joins(old: Node, new: Node, topology_key: str) -> bool:
    domain = new.labels.get(topology_key)
    return domain is not None and domain != old.labels.get(topology_key)


def _matches_all(terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
    return bool(terms) and all(_matches(term, pod) for term in terms)


def _matches_any(terms: Iterable[AffinityTerm], pod: PodInfo) -> bool:
    return any(_matches(term, pod) for term in terms)


def _matches(term: AffinityTerm, pod: PodInfo) -> bool:
    # The labels of namespaces are not at hand, so a term that selects namespaces may mean any.
    reaches = pod.group.namespace in term.namespaces or term.namespace_selector != NOTHING
    return reaches and term.selector.matches(pod.pod.labels)


def terms_about(change: Change) -> list[str] | None:
    """Returns the names of the terms that a placed pod may match now, or did; None where it objects to any pod."""
    names: list[str] = []
    if change.new is not None:
        names += map(_WANTED.format, names_of_labels(change.new.pod.labels))
    if change.old is not None:
        for named in (_WANTED, _UNWANTED):
            names += map(named.format, names_of_labels(change.old.pod.labels))
    if change.new is None:
        refused = [name for term in change.old.required_anti_affinity for name in names_of_selector(term.selector)]
        if ANY in refused:
            return None
        names += map(_OWN.format, refused)
    return names


_WANTED, _UNWANTED, _OWN = "affinity {}", "anti-affinity {}", "label {}"


def _names_of_terms(pod: PodInfo) -> Iterator[str]:
    """Yields names of one term of the affinity, as all must be met, of each of the anti-affinity, and of own labels."""
    for term in pod.required_affinity[:1]:
        yield from _prefixed(_WANTED, names_of_selector(term.selector))
    for term in pod.required_anti_affinity:
        yield from _prefixed(_UNWANTED, names_of_selector(term.selector))
    yield from _prefixed(_OWN, names_of_labels(pod.pod.labels))


def _prefixed(prefix: str, names: Iterable[str]) -> Iterator[str]:
    return (prefix.format(name) if name else ANY for name in names)


def _topology_keys(pod: PodInfo) -> Hashable:
    wanted, unwanted = pod.required_affinity, pod.required_anti_affinity
    return frozenset(term.topology_key for term in wanted), frozenset(term.topology_key for term in unwanted)


def _namespaces(pod: PodInfo) -> Hashable:
    own = (*pod.required_affinity, *pod.required_anti_affinity)
    return pod.group.namespace, any(term.namespace_selector != NOTHING for term in own)


INTERESTS = Interests(
    (
        Interest(
            Resource.ASSIGNED_POD,
            Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE,
            terms_are_met,
            Reads(lambda pod: (pod.group, pod.required_affinity, pod.required_anti_affinity), _names_of_terms),
            terms_about,
        ),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
        Interest(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL,
            node_changes_domain,
            Reads(_topology_keys),
        ),
        Interest(Resource.NAMESPACE, Action.ALL, namespace_is_selected_otherwise, Reads(_namespaces)),
    )
)


class InterPodAffinityArgs(Arguments):
    kind: Literal["InterPodAffinityArgs"] = "InterPodAffinityArgs"
    hard_pod_affinity_weight: Percentage = 1
    """The weight of required affinity of other pods when nodes are scored."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Counts what placed pods prefer only for pods that prefer something themselves."""


PLUGIN = Plugin(
    NAME,
    InterPodAffinityArgs,
    lambda _: InterPodAffinityFilter(),
    lambda args: InterPodAffinityScore(args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    needs=((FILTER, PRE_FILTER), (SCORE, PRE_SCORE)),
    interests=INTERESTS,
)
