"""ServiceAffinity: the pods of a service stand on nodes alike in some labels, or are spread over the values of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.node_affinity import nodes_with_labels
from extender.framework.rules import MAX_SCORE, Check, RowCheck, RowScorer, Scorer, Scores
from extender.framework.status import unschedulable
from extender.model.selectors import NOTHING, selector_from_labels
from extender.table import PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, Rows

NAME = "ServiceAffinity"
REASON = "node(s) didn't match service affinity"


@dataclass(frozen=True, slots=True)
class ServiceAffinity:
    """Upstream serviceaffinity.ServiceAffinity, Filter, until v1.22.

    The pod's nodeSelector says what values the labels must have; what it leaves open is taken from the node of a pod
    like it, if any stands already. Upstream takes the first that it comes upon; here it is the one on the lowest row.
    """

    labels: tuple[str, ...]
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        selector = pod.pod.spec.node_selector or {}
        wanted = {label: selector[label] for label in self.labels if label in selector}
        if len(wanted) < len(self.labels) and table.services.selecting(pod.group):
            wanted = {**self._labels_of_likes_node(pod, table), **wanted}
        refusal = unschedulable(self.name, REASON)
        check = RowCheck(lambda rows: [(~nodes_with_labels(wanted, table, rows), refusal)], sees_pods=True)
        return check if wanted else None

    def _labels_of_likes_node(self, pod: PodInfo, table: Table) -> dict[str, str]:
        likes = table.matching(PodCountQuery(frozenset((pod.pod.namespace,)), selector_from_labels(pod.pod.labels)))
        rows = np.flatnonzero((likes.by_node > 0) & table.nodes.present)
        if not len(rows):
            return {}
        node = table.nodes.node(int(rows[0]))
        return {label: node.labels[label] for label in self.labels if label in node.labels}


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
