"""ServiceAntiAffinity: the pods of a service are spread over the values of a node label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, RowScorer, Scorer, Scores
from extender.model.selectors import NOTHING, selector_from_labels
from extender.table import PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, Rows

NAME = "ServiceAffinity"


@dataclass(frozen=True, slots=True)
class ServiceAntiAffinity:
    """Upstream ServiceAntiAffinity, later serviceaffinity.ServiceAffinity, Score, until v1.22.

    Counted are the pods of the first service that selects the pod. Nodes without the label get 0.
    """

    label: str
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        services = table.services.selecting(pod.group)
        selector = selector_from_labels(services[0].spec.selector or {}) if services else NOTHING
        query = PodCountQuery(frozenset((pod.pod.namespace,)), selector, terminating=False)
        pods, domain = table.matching(query).by_node, table.nodes.labels[self.label].ids[rows]

        def reduce(raw: Scores) -> Scores:
            total = int(raw.sum())
            here = np.bincount(domain, weights=raw, minlength=1)[domain]
            scores = MAX_SCORE * ((total - here) / total) if total else np.full(len(raw), float(MAX_SCORE))
            return np.where(domain == ABSENT, 0, scores).astype(np.int64)

        return RowScorer(lambda rows: pods[rows], reduce)
