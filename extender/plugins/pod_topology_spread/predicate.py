"""PodTopologySpread, Filter: no domain may exceed the emptiest one by more than maxSkew pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, PerTemplate, Verdict
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import DomainCounts, domains_in, summed_by_domain
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    NAME,
    SYSTEM_DEFAULTS,
    Constraint,
    constraints_of,
    nodes_counted,
    nodes_with_all_keys,
)
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows

_REASON = "node(s) didn't match pod topology spread constraints"
TOO_SKEWED = unschedulable(NAME, _REASON)
NO_DOMAIN = unresolvable(NAME, f"{_REASON} (missing required label)")


@dataclass(frozen=True, slots=True)
class PodTopologySpreadFilter(PerTemplate):
    """Refuses domains with too many pods. `defaults`: for pods that have no constraints."""

    defaults: Sequence[TopologySpreadConstraint] = SYSTEM_DEFAULTS
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        constraints = constraints_of(pod, table, DO_NOT_SCHEDULE, self.defaults)
        if not constraints:
            return None
        counted = nodes_counted(constraints, pod.pod, table, nodes_with_all_keys(constraints, table))
        return _Check([_Spread(constraint, pod, table, counted[constraint.policies]) for constraint in constraints])


class _Spread:
    """One constraint: the pods in each domain, and the number that there may be."""

    def __init__(self, constraint: Constraint, pod: PodInfo, table: Table, counted: BoolColumn) -> None:
        namespace = pod.pod.namespace
        column = table.nodes.labels[constraint.topology_key]
        domain = np.where(counted, column.ids, ABSENT)
        pods = summed_by_domain(column, _counted(constraint, namespace, table), domain)
        domains = domains_in(column, domain)
        domains[ABSENT] = False
        leaving = constraint.leaving(namespace)
        self._pods = DomainCounts(column.ids, pods, lambda gone: gone.matching(leaving) * counted)
        too_few = np.count_nonzero(domains) < constraint.min_domains
        fewest = 0 if too_few else int(pods[domains].min())
        self._most = fewest + constraint.max_skew - leaving.selector.matches(pod.pod.labels)

    def refuse(self, rows: Rows) -> tuple[BoolColumn, BoolColumn]:
        """Returns the rows, of `rows`, that are in no domain, and those in one that has too many."""
        crowded = self._pods.pods > self._most
        domain = self._pods.domain[rows]
        return domain == ABSENT, crowded[domain]

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> tuple[BoolColumn, BoolColumn]:
        """Returns the same, once each node's own among `gone` have left.

        Should its domain come to be the one with the fewest, then nothing stands against the pod there, and that
        of all others is not asked.
        """
        absent = self._pods.domain[rows] == ABSENT
        return absent, ~absent & (self._pods.around(rows) - self._pods.left(rows, gone) > self._most)


def _counted(constraint: Constraint, namespace: str, table: Table) -> IntColumn:
    """Returns the number of pods on each node that count: int64[row].

    Pods that are only supposed to stand there count as those that leave: upstream adds and removes them alike.
    """
    standing, supposed = constraint.counted(namespace), constraint.leaving(namespace)
    by_node = table.matching(standing).by_node
    if table.hypothetical:
        by_node = by_node.copy()
        for info, row in table.hypothetical.values():
            counts = standing.matches(info.group) and not info.pod.terminating
            by_node[row] += int(supposed.matches(info.group)) - counts
    return by_node


class _Check(Check):
    sees_pods = True

    def __init__(self, spreads: Sequence[_Spread]) -> None:
        self._spreads = spreads

    def refuse(self, rows: Rows) -> Verdict:
        return _verdict(spread.refuse(rows) for spread in self._spreads)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        return _verdict(spread.filter_with_pods_removed(rows, gone) for spread in self._spreads)


def _verdict(refused: Iterable[tuple[BoolColumn, BoolColumn]]) -> Verdict:
    """Returns the verdict; the first constraint that a node fails gives the reason."""
    (missing, crowded), *others = refused
    for absent, over in others:
        missing = missing | (absent & ~crowded)
        crowded = crowded | (over & ~missing)
    return [(missing, NO_DOMAIN), (crowded, TOO_SKEWED)]
