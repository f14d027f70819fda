"""InterPodAffinity: pods require, prefer or avoid topology domains that have certain other pods.

The module has, in this order: functions that count the pods of each domain that match a term, the predicate, the
priority, the queueing hints, and the plugin.

Source: upstream interpodaffinity, mergeAffinityTermNamespacesIfNotEmpty, podMatchesAllAffinityTerms,
getExistingAntiAffinityCounts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.policy_fields import Percentage
from extender.framework.queueing_hints import (
    ANY,
    Interest,
    Interests,
    Reads,
    has_place,
    names_of_labels,
    names_of_selector,
)
from extender.framework.rules import MAX_SCORE, Check, PerTemplate, PodsCheck, Scorer, Scores, Verdict
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import DomainCounts, summed_by_domain
from extender.model.node import Node
from extender.model.selectors import EVERYTHING, NOTHING, Selector
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows
from extender.table.matches import MatchCount
from extender.table.podinfo import AffinityTerm
from extender.table.terms import Effect, IncomingPod, TermCount, TermKind


def incoming(pod: PodInfo, table: Table) -> IncomingPod:
    """Returns the pod as an `IncomingPod`: its namespace and labels, and the labels of its namespace."""
    return IncomingPod(pod.group, table.namespaces.labels(pod.group.namespace))


def effects_on(pod: PodInfo, table: Table) -> Mapping[Effect, TermCount]:
    """Adds up, on each node, the affinity and anti-affinity terms of placed pods that match the pod.

    Returns one TermCount for each Effect, which is a kind of term and a topology key.
    """
    if not table.terms.pods_by_terms:
        return {}
    return table.terms.effects_on(incoming(pod, table), table.deadline).effects


def query_for(term: AffinityTerm, table: Table) -> PodCountQuery:
    """Returns the query for the pods that match the term."""
    return PodCountQuery(_term_namespaces(term, table), term.selector)


def query_for_all(terms: Sequence[AffinityTerm], table: Table) -> PodCountQuery:
    """Returns the query for the pods that match every term; there must be at least one term."""
    namespaces = [names for term in terms if (names := _term_namespaces(term, table)) is not None]
    requirements = dict.fromkeys(requirement for term in terms for requirement in term.selector.requirements)
    selector = Selector(tuple(requirements), any(term.selector.nothing for term in terms))
    return PodCountQuery(frozenset.intersection(*namespaces) if namespaces else None, selector)


def pods_by_domain(topology_key: str, matches: MatchCount, table: Table) -> DomainCounts:
    column = table.nodes.labels[topology_key]
    pods = summed_by_domain(column, matches.by_node)
    return DomainCounts(column.ids, pods, lambda gone: gone.matching(matches.query))


def terms_against(pod: PodInfo, table: Table) -> list[DomainCounts]:
    """Counts, in each domain, the required anti-affinity terms with which placed pods reject the pod.

    Returns one DomainCounts for each topology key.
    """
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
        return gone.sum_by_row(count, lambda: count.amount_by_slot(table.terms.slots)[table.pods.terms])

    return DomainCounts(column.ids, summed_by_domain(column, count.by_node), leaving)


NAME = "InterPodAffinity"
NOT_WITH_WANTED = unresolvable(NAME, "node(s) didn't match pod affinity rules")
WITH_REFUSED = unschedulable(NAME, "node(s) didn't match pod anti-affinity rules")
REFUSED_BY_OTHERS = unschedulable(NAME, "node(s) didn't satisfy existing pods anti-affinity rules")


@dataclass(frozen=True, slots=True)
class InterPodAffinityFilter(PerTemplate):
    """Refuses nodes that violate the pod's affinity or anti-affinity, or a placed pod's anti-affinity."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        others_terms = terms_against(pod, table)
        if not (others_terms or pod.required_affinity or pod.required_anti_affinity):
            return None
        return _InterPodAffinityCheck(_required_pods(pod, table), _forbidden_pods(pod, table), others_terms)


def _forbidden_pods(pod: PodInfo, table: Table) -> list[DomainCounts]:
    """Counts the placed pods that match each anti-affinity term of the pod; omits terms that match no pods."""
    terms = dict.fromkeys((term.topology_key, query_for(term, table)) for term in pod.required_anti_affinity)
    matches_by_term = [(key, table.matching(query)) for key, query in terms]
    return [pods_by_domain(key, matches, table) for key, matches in matches_by_term if matches.total]


def _required_pods(pod: PodInfo, table: Table) -> _RequiredPods | None:
    if not pod.required_affinity:
        return None
    query = query_for_all(pod.required_affinity, table)
    matches = table.matching(query)
    keys = dict.fromkeys(term.topology_key for term in pod.required_affinity)
    return _RequiredPods([pods_by_domain(key, matches, table) for key in keys], query.matches(pod.group))


@dataclass(frozen=True, slots=True)
class _RequiredPods:
    """The placed pods that match the pod's required affinity, counted by domain for each topology key.

    `matches_itself` is True if the pod matches its own terms.
    """

    counts: Sequence[DomainCounts]
    matches_itself: bool

    def lacking(self, rows: Rows, gone: HypotheticalRemovals | None) -> BoolColumn:
        """Returns bool[len(rows)]: True if the node's domain has no matching pod for one of the topology keys.

        If no placed pod matches, a pod that matches its own terms may go to any node that has all topology keys.
        Without this exception, the first replica of a workload could never be placed.
        """
        lacking = np.zeros(len(rows), np.bool_)
        anywhere: IntColumn | int = sum(int(count.pods.sum()) for count in self.counts)
        for count in self.counts:
            removed = 0 if gone is None else count.removed(rows, gone)
            lacking |= count.around(rows) <= removed
            anywhere = anywhere - removed
        if self.matches_itself and np.any(anywhere == 0):
            labelled = np.ones(len(rows), np.bool_)
            for count in self.counts:
                labelled &= count.domain[rows] != ABSENT
            lacking &= ~(labelled & (anywhere == 0))
        return lacking


@dataclass(slots=True, eq=False)
class _InterPodAffinityCheck(PodsCheck):
    _required: _RequiredPods | None
    _forbidden: Sequence[DomainCounts]
    _others_terms: Sequence[DomainCounts]

    def verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        lacking = np.zeros(len(rows), np.bool_) if self._required is None else self._required.lacking(rows, gone)
        clashing = _any_in_domain(self._forbidden, rows, gone) & ~lacking
        refused_by_others = _any_in_domain(self._others_terms, rows, gone) & ~(lacking | clashing)
        return [(lacking, NOT_WITH_WANTED), (clashing, WITH_REFUSED), (refused_by_others, REFUSED_BY_OTHERS)]


def _any_in_domain(counts: Sequence[DomainCounts], rows: Rows, gone: HypotheticalRemovals | None) -> BoolColumn:
    """Returns bool[len(rows)]: True if any of `counts` is above 0 in the node's domain.

    Pods in `gone` that are on the node itself do not count.
    """
    is_around = np.zeros(len(rows), np.bool_)
    for count in counts:
        is_around |= count.around(rows) > (0 if gone is None else count.removed(rows, gone))
    return is_around


@dataclass(frozen=True, slots=True)
class InterPodAffinityScore(PerTemplate):
    """Scores a node by the weights of the affinity terms that match in the node's topology domains.

    Attributes:
        hard_pod_affinity_weight: the weight of a required affinity term of a placed pod, 0 to 100.
        ignore_preferred_terms_of_existing_pods: if True, the terms of placed pods do not count for a pod that has no
            preferred terms.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        weights = list(_own_weights(pod, table))
        if weights or not self.ignore_preferred_terms_of_existing_pods:
            weights += self._others_weights(pod, table)
        return _InterPodAffinityScorer(weights, table) if weights else None

    def _others_weights(self, pod: PodInfo, table: Table) -> Iterator[tuple[str, IntColumn]]:
        """Yields (topology key, weight by node) for those terms of placed pods that match the pod."""
        factors = {TermKind.PREFERRED: 1, TermKind.REQUIRED_AFFINITY: self.hard_pod_affinity_weight}
        for effect, count in effects_on(pod, table).items():
            factor = factors.get(effect.kind, 0)
            if factor and count.amounts:
                yield effect.topology_key, factor * count.by_node


def _own_weights(pod: PodInfo, table: Table) -> Iterator[tuple[str, IntColumn]]:
    """Yields (topology key, weight by node) for the pod's own preferred terms."""
    for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
        for term in terms:
            yield term.topology_key, sign * term.weight * table.matching(query_for(term, table)).by_node


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
    """Returns True if a placed pod now matches the affinity of `pod`, or no longer conflicts with `pod`.

    Two pods conflict if either matches the other's anti-affinity. Also returns True if a match for the affinity is gone
    and `pod` may now go to any node, see `_may_be_first_after`.
    """
    old, new = change.old, change.new
    if not has_place(old) or not has_place(new):
        return False
    affinity, anti_affinity = pod.required_affinity, pod.required_anti_affinity
    if old is None:
        return _matches_all(affinity, new)
    if new is None:
        conflicted = _matches_any(anti_affinity, old) or _matches_any(old.required_anti_affinity, pod)
        return conflicted or _may_be_first_after(pod, old)
    if _matches_all(affinity, new):
        if not _matches_all(affinity, old):
            return True
    elif _may_be_first_after(pod, old):
        return True
    return _matches_any(anti_affinity, old) and not _matches_any(anti_affinity, new)


def _may_be_first_after(pod: PodInfo, gone: PodInfo) -> bool:
    """Returns True if both `gone` and `pod` match the affinity of `pod`.

    `gone` may have been the last match. Then `pod` may go to any node, like the first replica of a workload whose
    replicas must be together. Upstream does not wake the pod for this event.
    """
    return _matches_all(pod.required_affinity, gone) and _matches_all(pod.required_affinity, pod)


def node_changes_domain(pod: PodInfo, change: Change) -> bool:
    """Returns True if a node joined a topology domain of the pod's affinity, or left any domain.

    For a pod without affinity, every new node counts, because no conflicting pods are on it yet. If a node leaves a
    domain, conflicting pods may leave the domain with the node. Upstream looks only at the pod's own terms.
    """
    old, new = change.old, change.new
    keys = {term.topology_key for term in pod.required_affinity}
    if old is None:
        return not keys or not keys.isdisjoint(new.labels)
    if new is None or any(new.labels.get(key) != value for key, value in old.labels.items()):
        return True
    return any(_joins(old, new, key) for key in keys)


def namespace_selectors_match_otherwise(pod: PodInfo, change: Change) -> bool:
    """Returns True if a namespace was added, deleted or relabelled, and namespaceSelectors may now match other pods.

    If the pod's own terms have a namespaceSelector, they may match other placed pods. If the pod is in this namespace,
    terms of placed pods may start or stop matching the pod. Upstream ignores such changes until it retries all pods.
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
    # The labels of namespaces are not available here, so a namespace selector counts as matching.
    reaches = pod.group.namespace in term.namespaces or term.namespace_selector != NOTHING
    return reaches and term.selector.matches(pod.pod.labels)


def terms_about(change: Change) -> list[str] | None:
    """Returns the names by which the queue looks up the waiting pods that a change of a placed pod may help.

    The names are the labels of the placed pod, because terms of waiting pods may mention them. If the placed pod was
    deleted, labels that its anti-affinity terms mention are added. None means all waiting pods.
    """
    names: list[str] = []
    if change.new is not None:
        names += [f"{_AFFINITY} {name}" for name in names_of_labels(change.new.pod.labels)]
    if change.old is not None:
        for prefix in (_AFFINITY, _ANTI_AFFINITY):
            names += [f"{prefix} {name}" for name in names_of_labels(change.old.pod.labels)]
    if change.new is None:
        repelled = [name for term in change.old.required_anti_affinity for name in names_of_selector(term.selector)]
        if ANY in repelled:
            return None
        names += [f"{_LABEL} {name}" for name in repelled]
    return names


_AFFINITY = "affinity"
_ANTI_AFFINITY = "anti-affinity"
_LABEL = "label"


def _names_of_terms(pod: PodInfo) -> Iterator[str]:
    """Yields the names under which the queue indexes the waiting pod: its labels, and labels that its terms mention.

    All anti-affinity terms are indexed, but only the first affinity term, because a placed pod helps only if it matches
    every affinity term.
    """
    for term in pod.required_affinity[:1]:
        yield from _prefixed(_AFFINITY, names_of_selector(term.selector))
    for term in pod.required_anti_affinity:
        yield from _prefixed(_ANTI_AFFINITY, names_of_selector(term.selector))
    yield from _prefixed(_LABEL, names_of_labels(pod.pod.labels))


def _prefixed(prefix: str, names: Iterable[str]) -> Iterator[str]:
    return (f"{prefix} {name}" if name != ANY else ANY for name in names)


def _topology_keys(pod: PodInfo) -> Hashable:
    affinity, anti_affinity = pod.required_affinity, pod.required_anti_affinity
    return frozenset(term.topology_key for term in affinity), frozenset(term.topology_key for term in anti_affinity)


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
        Interest(Resource.NAMESPACE, Action.ALL, namespace_selectors_match_otherwise, Reads(_namespaces)),
    )
)


class InterPodAffinityArgs(Arguments):
    kind: Literal["InterPodAffinityArgs"] = "InterPodAffinityArgs"
    hard_pod_affinity_weight: Percentage = 1
    """The score that a required affinity term of a placed pod adds to that pod's domain if it matches the new pod."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Ignores all affinity terms of placed pods for a pod that has no preferred terms itself."""


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
