"""Inter-pod (anti-)affinity terms: a pod's own as queries about standing pods, those of others as sums.

Source: upstream interpodaffinity, mergeAffinityTermNamespacesIfNotEmpty, podMatchesAllAffinityTerms,
getExistingAntiAffinityCounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.framework.topology import DomainCounts, summed_by_domain
from extender.model.selectors import EVERYTHING, Selector
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.labels import IntColumn
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
    return PodCountQuery(_namespaces(term, table), term.selector)


def pods_meant_by_all(terms: Sequence[AffinityTerm], table: Table) -> PodCountQuery:
    """Returns the query for the pods that every one of the terms matches; there must be at least one term."""
    named = [names for term in terms if (names := _namespaces(term, table)) is not None]
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


def _namespaces(term: AffinityTerm, table: Table) -> frozenset[str] | None:
    if term.namespace_selector == EVERYTHING:
        return None
    return term.namespaces | table.namespaces.matching(term.namespace_selector)


def _terms_by_domain(topology_key: str, count: TermCount, table: Table) -> DomainCounts:
    column = table.nodes.labels[topology_key]

    def leaving(gone: HypotheticalRemovals) -> IntColumn:
        return gone.sum_by_row(count, lambda slots: count.amount_by_slot(table.terms.slots)[table.pods.terms[slots]])

    return DomainCounts(column.ids, summed_by_domain(column, count.by_node), leaving)
