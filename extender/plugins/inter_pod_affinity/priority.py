"""InterPodAffinity, Score: the weights of the pod's own preferred terms, and of others' terms about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, PerTemplate, Scorer, Scores
from extender.framework.topology import summed_by_domain
from extender.plugins.inter_pod_affinity.terms import effects_on, pods_meant
from extender.table import PodInfo, Table
from extender.table.labels import IntColumn, Rows
from extender.table.pods.terms import TermKind

NAME = "InterPodAffinity"


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
        return _Scorer(weights, table) if weights else None

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


class _Scorer(Scorer):
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
