"""Defines the classic priorities that no current plugin offers: EqualPriority, NodePreferAvoidPods, ResourceLimits."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from extender.framework.rules import MAX_SCORE, RowScorer, Scorer, Scores
from extender.model.meta import OwnerReference, Value
from extender.model.node import Node
from extender.model.pod import Container, Pod
from extender.model.quantity import amounts
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.table.node_columns import CPU, MEMORY

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
