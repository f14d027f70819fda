"""PodTopologySpread, Score: domains with fewer matching pods are preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from extender.framework.rules import MAX_SCORE, PerTemplate, Scorer, Scores
from extender.framework.topology import HOSTNAME, domains_in, summed_by_domain
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread.constraints import (
    NAME,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    Constraint,
    constraints_of,
    nodes_counted,
    nodes_with_all_keys,
)
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, LabelColumn, Rows

Floats = NDArray[np.float64]
_IGNORED = -1


@dataclass(frozen=True, slots=True)
class PodTopologySpreadScore(PerTemplate):
    """Prefers domains with fewer matching pods. `defaults`: for pods that have no constraints.

    By the system's own defaults a node counts even if it lacks a topology key, by all others it is ignored.
    """

    defaults: Sequence[TopologySpreadConstraint] = SYSTEM_DEFAULTS
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        constraints = constraints_of(pod, table, SCHEDULE_ANYWAY, self.defaults)
        if not constraints:
            return None
        by_system = not pod.pod.spec.topology_spread_constraints and self.defaults is SYSTEM_DEFAULTS
        among = table.nodes.present if by_system else nodes_with_all_keys(constraints, table)
        counted = nodes_counted(constraints, pod.pod, table, among)
        scored = rows[among[rows]]
        score = sum(_share(each, pod, table, scored, counted[each.policies]) for each in constraints)
        return _Scorer(np.where(among, np.floor(score + 0.5), _IGNORED).astype(np.int64))


class _Scorer(Scorer):
    """`score`: int64[row], _IGNORED where the node is not scored (upstream invalidScore)."""

    def __init__(self, score: Scores) -> None:
        self._score = score

    def map(self, rows: Rows) -> Scores:
        return self._score[rows]

    def reduce(self, raw: Scores) -> Scores:
        scored = raw != _IGNORED
        most = int(raw.max(initial=0))
        if most == 0:
            return np.where(scored, MAX_SCORE, 0)
        least = int(raw.min(where=scored, initial=most))
        return np.where(scored, MAX_SCORE * (most + least - raw) // most, 0)


def _share(constraint: Constraint, pod: PodInfo, table: Table, scored: Rows, counted: BoolColumn) -> Floats:
    """Returns what one constraint adds to the score of each node: float64[row]."""
    column = table.nodes.labels[constraint.topology_key]
    pods = table.matching(constraint.counted(pod.pod.namespace)).by_node
    if constraint.topology_key == HOSTNAME:  # each node by itself, whatever the label says
        return np.where(column.ids != ABSENT, _worth(pods, constraint, len(scored)), 0.0)
    domain = _domains(column)
    domains = int(domains_in(column, domain[scored]).sum())
    worth = _worth(summed_by_domain(column, pods, np.where(counted, domain, ABSENT)), constraint, domains)
    worth[ABSENT] = 0
    share: Floats = worth[column.ids]
    return share


def _domains(column: LabelColumn) -> Rows:
    """The domain of each node; upstream takes a missing label here for one whose value is empty."""
    empty = column.find("")
    return column.ids if empty is None else np.where(column.ids == ABSENT, empty, column.ids)


def _worth(pods: IntColumn, constraint: Constraint, domains: int) -> Floats:
    # The logarithm keeps a topology of few large domains from drowning one of many small ones.
    worth: Floats = np.add(pods * log(domains + 2), constraint.max_skew - 1, dtype=np.float64)
    return worth
