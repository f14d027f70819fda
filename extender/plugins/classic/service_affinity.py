"""Defines classic rules on services: ServiceAffinity and SelectorSpread, for example."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.framework.node_selectors import nodes_with_labels
from extender.framework.rules import MAX_SCORE, Check, RowCheck, RowScorer, Scorer, Scores
from extender.framework.status import unschedulable
from extender.framework.topology import default_selector
from extender.model.node import Node
from extender.model.selectors import EVERYTHING, NOTHING, Selector, selector_from_labels
from extender.table import PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, Rows

REASON = "node(s) didn't match service affinity"
Floats = NDArray[np.float64]
ZONE_WEIGHT = 2.0 / 3.0
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


@dataclass(frozen=True, slots=True)
class ServiceAffinity:
    """Requires all pods of a service to be on nodes with the same values of `labels`.

    The pod's nodeSelector may give the values. If a service selects the pod, missing values are read from a node with a
    similar pod: a pod of the namespace with all labels of this pod. Upstream uses the first similar pod that it finds;
    this class uses the one on the lowest row.

    Source: upstream serviceaffinity, Filter, until v1.22.
    """

    labels: tuple[str, ...]
    name: str = "ServiceAffinity"

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        selector = pod.pod.spec.node_selector or {}
        labels = {label: selector[label] for label in self.labels if label in selector}
        if len(labels) < len(self.labels) and table.services.selecting(pod.group):
            labels = {**self._labels_of_similar_pods_node(pod, table), **labels}
        refusal = unschedulable(self.name, REASON)
        check = RowCheck(lambda rows: [(~nodes_with_labels(labels, table, rows), refusal)], sees_pods=True)
        return check if labels else None

    def _labels_of_similar_pods_node(self, pod: PodInfo, table: Table) -> dict[str, str]:
        query = PodCountQuery(frozenset((pod.pod.namespace,)), selector_from_labels(pod.pod.labels))
        similar = table.matching(query)
        rows = np.flatnonzero((similar.by_node > 0) & table.nodes.present)
        if not len(rows):
            return {}
        node = table.nodes.node(int(rows[0]))
        return {label: node.labels[label] for label in self.labels if label in node.labels}


@dataclass(frozen=True, slots=True)
class ServiceAntiAffinity:
    """Prefers nodes whose label value has fewer pods of the service (upstream serviceaffinity, Score, until v1.22).

    Counts the pods of the first service that selects the pod. Nodes without the label score 0.
    """

    label: str
    name: str = "ServiceAffinity"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        services = table.services.selecting(pod.group)
        selector = selector_from_labels(services[0].spec.selector or {}) if services else NOTHING
        query = PodCountQuery(frozenset((pod.pod.namespace,)), selector, terminating=False)
        pods = table.matching(query).by_node
        domain = table.nodes.labels[self.label].ids[rows]

        def reduce(raw: Scores) -> Scores:
            total = int(raw.sum())
            in_domain = np.bincount(domain, weights=raw)[domain]
            scores = MAX_SCORE * ((total - in_domain) / total) if total else np.full(len(raw), float(MAX_SCORE))
            return np.where(domain == ABSENT, 0, scores).astype(np.int64)

        return RowScorer(lambda rows: pods[rows], reduce)


@dataclass(frozen=True, slots=True)
class SelectorSpread:
    """Prefers nodes and zones with fewer pods of the pod's services and controller (upstream until v1.22).

    Pods with spread constraints are not scored. If `services_only` is True, controllers are ignored
    (ServiceSpreadingPriority).
    """

    services_only: bool = False
    name: str = "SelectorSpread"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        if pod.pod.spec.topology_spread_constraints:
            return None
        selector = _services_selector(pod, table) if self.services_only else default_selector(pod, table)
        counted = NOTHING if selector == EVERYTHING else selector
        return _SelectorSpreadScorer(
            PodCountQuery(frozenset((pod.pod.namespace,)), counted, terminating=False), table, rows
        )


def _services_selector(pod: PodInfo, table: Table) -> Selector:
    labels: dict[str, str] = {}
    for service in table.services.selecting(pod.group):
        labels.update(service.spec.selector or {})
    return selector_from_labels(labels)


class _SelectorSpreadScorer(Scorer):
    normalises = True

    def __init__(self, query: PodCountQuery, table: Table, rows: Rows) -> None:
        self._pods = table.matching(query).by_node
        zones = table.nodes.facts(_zone)
        self._zone = zones.ids[rows]
        self._has_zone = np.array([bool(zone) for zone in zones.values], np.bool_)[self._zone]

    def map(self, rows: Rows) -> Scores:
        return self._pods[rows]

    def reduce(self, raw: Scores) -> Scores:
        by_node = _fewer_is_better(raw.astype(np.float64), float(raw.max(initial=0)))
        if not self._has_zone.any():
            return by_node.astype(np.int64)
        in_zone: Floats = np.bincount(self._zone, np.where(self._has_zone, raw, 0)).astype(np.float64)[self._zone]
        by_zone = _fewer_is_better(in_zone, float(in_zone[self._has_zone].max(initial=0)))
        mixed = by_node * (1.0 - ZONE_WEIGHT) + ZONE_WEIGHT * by_zone
        return np.where(self._has_zone, mixed, by_node).astype(np.int64)


def _fewer_is_better(pods: Floats, most: float) -> Floats:
    return MAX_SCORE * ((most - pods) / most) if most > 0 else np.full(len(pods), float(MAX_SCORE))


def _zone(node: Node) -> str:
    """Returns region and zone as one text, empty if the node has neither label (upstream GetZoneKey)."""
    zone = next((node.labels[key] for key in _ZONES if key in node.labels), "")
    region = next((node.labels[key] for key in _REGIONS if key in node.labels), "")
    return f"{region}:\0:{zone}" if zone or region else ""
