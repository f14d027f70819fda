"""InterPodAffinity, Filter: required affinity and anti-affinity, of the pod and of the pods that stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, PerTemplate, Verdict
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import DomainCounts
from extender.plugins.inter_pod_affinity.terms import pods_by_domain, pods_meant, pods_meant_by_all, terms_against
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows

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
        return _Check(_wanted(pod, table), _refused(pod, table), refusing)


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
            left = 0 if gone is None else count.left(rows, gone)
            lacking |= count.around(rows) <= left
            anywhere = anywhere - left
        if self.wants_itself and np.any(anywhere == 0):
            labelled = np.ones(len(rows), np.bool_)
            for count in self.counts:
                labelled &= count.domain[rows] != ABSENT
            lacking &= ~(labelled & (anywhere == 0))
        return lacking


class _Check(Check):
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
        found |= count.around(rows) > (0 if gone is None else count.left(rows, gone))
    return found
