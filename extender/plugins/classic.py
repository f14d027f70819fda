"""Defines the rules that only a classic `kind: Policy` can name (upstream until v1.22).

NodeLabel, CheckNodeCondition and similar rules read labels and conditions of nodes. Since v1.12 the node controller
turns conditions into taints, so TaintToleration has replaced most of these rules. ServiceAffinity and SelectorSpread
read services. EqualPriority, NodePreferAvoidPods and ResourceLimits are priorities that no current plugin offers.

MaxEBSVolumeCount and similar rules limit the number of a cloud's volumes on a node. A node that has migrated the
in-tree plugin to a CSI driver always passes, because NodeVolumeLimits counts its volumes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.framework.node_selectors import nodes_with_labels
from extender.framework.rules import MAX_SCORE, Check, PodsCheck, RowCheck, RowScorer, Scorer, Scores, Verdict
from extender.framework.status import unresolvable, unschedulable
from extender.framework.topology import default_selector, services_labels
from extender.model.meta import OwnerReference, Value
from extender.model.node import Node
from extender.model.pod import Container, Pod
from extender.model.pod_volumes import AWS_EBS, MIGRATED_PLUGINS, CSIVolume
from extender.model.quantity import amounts, nano
from extender.model.selectors import EVERYTHING, NOTHING, selector_from_labels
from extender.table import HypotheticalRemovals, PodCountQuery, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, Rows
from extender.table.node_columns import CPU, MEMORY
from extender.volumes.node_volumes import attachable_volumes

REASON = "node(s) didn't have the requested labels"
NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NETWORK_UNAVAILABLE = "node(s) had unavailable network"
UNSCHEDULABLE = "node(s) were unschedulable"
_REASONS = {
    "MemoryPressure": "node(s) had memory pressure",
    "DiskPressure": "node(s) had disk pressure",
    "PIDPressure": "node(s) had pid pressure",
}


@dataclass(frozen=True, slots=True)
class NodeLabelFilter:
    """Requires that a node has all of the labels, or none if `presence` is False (CheckNodeLabelPresence).

    The values of the labels do not matter.
    """

    labels: tuple[str, ...]
    presence: bool
    name: str

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        refusal = unresolvable(self.name, REASON)

        def refuse(rows: Rows) -> Verdict:
            refused = np.zeros(len(rows), np.bool_)
            for label in self.labels:
                refused |= (table.nodes.labels[label].ids[rows] != ABSENT) != self.presence
            return [(refused, refusal)]

        return RowCheck(refuse) if self.labels else None


@dataclass(frozen=True, slots=True)
class NodeLabelScore:
    """Prefers nodes with the label, or nodes without it if `presence` is False."""

    label: str
    presence: bool
    name: str

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        def score(rows: Rows) -> Scores:
            scores: Scores = MAX_SCORE * ((table.nodes.labels[self.label].ids[rows] != ABSENT) == self.presence)
            return scores

        return RowScorer(score)


@dataclass(frozen=True, slots=True)
class CheckNodeCondition:
    """Refuses nodes that are not ready (upstream CheckNodeConditionPredicate, until v1.17).

    A node without conditions passes, unless it is cordoned.
    """

    name: str = "CheckNodeCondition"

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        facts = table.nodes.facts(_troubles)

        def refuse(rows: Rows) -> Verdict:
            ids = facts.ids[rows]
            troubles = ((value_id, facts.values[value_id]) for value_id in np.unique(ids).tolist())
            return [(ids == value_id, unresolvable(self.name, *reasons)) for value_id, reasons in troubles if reasons]

        return RowCheck(refuse)


def _troubles(node: Node) -> tuple[str, ...]:
    reasons = []
    for condition in node.status.conditions or ():
        match condition.type, condition.status:
            case "Ready", status if status != "True":
                reasons.append(NOT_READY)
            case "OutOfDisk", status if status != "False":
                reasons.append(OUT_OF_DISK)
            case "NetworkUnavailable", status if status != "False":
                reasons.append(NETWORK_UNAVAILABLE)
    return (*reasons, UNSCHEDULABLE) if node.spec.unschedulable else tuple(reasons)


@dataclass(frozen=True, slots=True)
class NodePressure:
    """Refuses nodes that are short of memory, disk or PIDs (upstream CheckNode*PressurePredicate, until v1.17).

    Attributes:
        condition: MemoryPressure, DiskPressure or PIDPressure.
        best_effort_only: True if the rule ignores pods with any request or limit of cpu or memory.
    """

    condition: str
    name: str
    best_effort_only: bool = False

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if self.best_effort_only and not _best_effort(pod.pod):
            return None
        refusal = unresolvable(self.name, _REASONS[self.condition])
        facts = table.nodes.facts(_pressures)
        under_pressure = np.array([self.condition in pressures for pressures in facts.values], np.bool_)
        return RowCheck(lambda rows: [(under_pressure[facts.ids[rows]], refusal)])


def _pressures(node: Node) -> frozenset[str]:
    conditions = node.status.conditions or ()
    return frozenset(c.type for c in conditions if c.type in _REASONS and c.status == "True")


def _best_effort(pod: Pod) -> bool:
    """Returns True if the pod's quality of service class is BestEffort (upstream qos.GetPodQOS)."""
    for container in (*pod.containers, *pod.init_containers):
        resources = container.resources
        for quantities in (resources.requests, resources.limits) if resources else ():
            if quantities and (nano(quantities.get("cpu")) or nano(quantities.get("memory"))):
                return False
    return True


VOLUMES_REASON = "node(s) exceed max volume count"
INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
NITRO, NITRO_LIMIT = re.compile(r"^[cmr]5.*|t3|z1d"), 25


@dataclass(frozen=True, slots=True)
class MaxVolumeCount:
    """Refuses nodes with too many volumes of a cloud (upstream nodevolumelimits nonCSILimits, until v1.30).

    Volumes of the CSI driver that replaces the in-tree plugin count too, because they use the same slots.

    Attributes:
        plugin: the in-tree plugin whose volumes are counted.
        resource: the name of the allocatable resource with which a node reports its limit.
        default_limit: the limit of nodes that do not report one.
    """

    plugin: str
    resource: str
    default_limit: int
    name: str

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not pod.attachables:
            return None
        volumes = attachable_volumes(pod, table).by_driver.get(MIGRATED_PLUGINS[self.plugin])
        return _MaxVolumeCountCheck(self, volumes, table) if volumes else None


@dataclass(slots=True, eq=False)
class _MaxVolumeCountCheck(PodsCheck):
    _rule: MaxVolumeCount
    _volumes: set[CSIVolume]
    _table: Table

    def verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        attachments, removed = self._table.storage.attachments, None if gone is None else gone.removed
        count = attachments.counted(MIGRATED_PLUGINS[self._rule.plugin], removed)
        for volume in self._volumes:
            count = count + ~attachments.used(volume, removed)
        too_many = (count > self._limits()) & ~self._table.storage.csi_nodes.migrated(self._rule.plugin)
        return [(too_many[rows], unschedulable(self._rule.name, VOLUMES_REASON))]

    def _limits(self) -> IntColumn:
        """Returns the number of volumes that each node may have: int64[row]."""
        nodes = self._table.nodes
        limits = np.full(nodes.capacity, self._rule.default_limit, np.int64)
        if self._rule.plugin == AWS_EBS:
            limits[_nitro_nodes(self._table)] = NITRO_LIMIT
        index = nodes.resources.get(self._rule.resource)
        return limits if index is None else np.where(nodes.allocatable[index] > 0, nodes.allocatable[index], limits)


def _nitro_nodes(table: Table) -> BoolColumn:
    nitro = np.zeros(table.nodes.capacity, np.bool_)
    for label in INSTANCE_TYPES:
        column = table.nodes.labels[label]
        is_nitro = np.array([bool(NITRO.search(value)) for value in column.values], np.bool_)
        is_nitro[ABSENT] = False
        nitro |= is_nitro[column.ids]
    return nitro


ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
CONTROLLERS = ("ReplicationController", "ReplicaSet")


@dataclass(frozen=True, slots=True)
class EqualPriority:
    """Gives every node the same score (upstream core.EqualPriorityMap, until v1.17)."""

    name: str = "EqualPriority"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return RowScorer(lambda rows: np.ones(len(rows), np.int64))


class _PodSignature(Value, frozen=True):
    pod_controller: OwnerReference | None = None


class _AvoidedPods(Value, frozen=True):
    pod_signature: _PodSignature = _PodSignature()


class _AvoidPods(Value, frozen=True):
    prefer_avoid_pods: list[_AvoidedPods] | None = None


_AVOID_PODS = msgspec.json.Decoder(_AvoidPods)


@dataclass(frozen=True, slots=True)
class NodePreferAvoidPods:
    """Avoids nodes whose annotation preferAvoidPods names the pod's controller.

    Only ReplicationControllers and ReplicaSets can be named (upstream nodepreferavoidpods, until v1.22).
    """

    name: str = "NodePreferAvoidPods"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        controller = pod.pod.controller
        if controller is None or controller.kind not in CONTROLLERS:
            return RowScorer(lambda rows: np.full(len(rows), MAX_SCORE, np.int64))
        key = controller.kind, controller.uid
        avoided = table.nodes.facts(_avoided)
        scores = np.array([0 if key in controllers else MAX_SCORE for controllers in avoided.values], np.int64)
        return RowScorer(lambda rows: scores[avoided.ids[rows]])


def _avoided(node: Node) -> frozenset[tuple[str, str]]:
    """Returns (kind, UID) of each controller that the node's annotation names; empty if it is missing or invalid."""
    annotation = node.annotations.get(ANNOTATION)
    if annotation is None:
        return frozenset()
    try:
        avoid = _AVOID_PODS.decode(annotation)
    except msgspec.MsgspecError:
        return frozenset()
    controllers = (avoided.pod_signature.pod_controller for avoided in avoid.prefer_avoid_pods or ())
    return frozenset((controller.kind, controller.uid) for controller in controllers if controller is not None)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Scores 1 if the pod's cpu or memory limit fits on the node, else 0 (upstream ResourceLimits, until v1.19)."""

    name: str = "NodeResourceLimits"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        limits = _limits(pod.pod)

        def score(rows: Rows) -> Scores:
            met = np.zeros(len(rows), np.bool_)
            for resource, index in (("cpu", CPU), ("memory", MEMORY)):
                limit = limits.get(resource, 0)
                if limit:
                    met |= limit <= table.nodes.allocatable[index][rows]
            return met.astype(np.int64)

        return RowScorer(score)


def _limits(pod: Pod) -> dict[str, int]:
    """Returns the pod's limit of each resource: cpu in thousandths, memory in bytes.

    A limit is the sum over the containers, or the limit of an init container if that is larger.
    """
    limits: dict[str, int] = {}
    for container in pod.containers:
        for name, amount in _limits_of(container).items():
            limits[name] = limits.get(name, 0) + amount
    for container in pod.init_containers:
        for name, amount in _limits_of(container).items():
            limits[name] = max(limits.get(name, 0), amount)
    return limits


def _limits_of(container: Container) -> dict[str, int]:
    return amounts((container.resources.limits if container.resources else None) or {})


AFFINITY_REASON = "node(s) didn't match service affinity"
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
        refusal = unschedulable(self.name, AFFINITY_REASON)
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
        if self.services_only:
            selector = selector_from_labels(services_labels(pod, table))
        else:
            selector = default_selector(pod, table)
        counted = NOTHING if selector == EVERYTHING else selector
        return _SelectorSpreadScorer(
            PodCountQuery(frozenset((pod.pod.namespace,)), counted, terminating=False), table, rows
        )


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
