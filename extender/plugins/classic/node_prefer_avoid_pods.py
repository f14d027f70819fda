"""NodePreferAvoidPods: nodes whose annotation asks to be spared the pods of the pod's controller are put off."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from extender.framework.rules import MAX_SCORE, RowScorer, Scorer
from extender.model.meta import OwnerReference, Value
from extender.model.node import Node
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodePreferAvoidPods"
ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
CONTROLLERS = ("ReplicationController", "ReplicaSet")


class _PodSignature(Value, frozen=True):
    pod_controller: OwnerReference | None = None


class _AvoidedPods(Value, frozen=True):
    pod_signature: _PodSignature = _PodSignature()


class _AvoidPods(Value, frozen=True):
    prefer_avoid_pods: list[_AvoidedPods] | None = None


_AVOID_PODS = msgspec.json.Decoder(_AvoidPods)


@dataclass(frozen=True, slots=True)
class NodePreferAvoidPods:
    """Upstream nodepreferavoidpods.NodePreferAvoidPods, until v1.22. Only replica controllers' pods can be avoided."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        controller = pod.pod.controller
        if controller is None or controller.kind not in CONTROLLERS:
            return RowScorer(lambda rows: np.full(len(rows), MAX_SCORE, np.int64))
        key, avoided = (controller.kind, controller.uid), table.nodes.facts(_avoided)
        scores = np.array([0 if key in controllers else MAX_SCORE for controllers in avoided.values], np.int64)
        return RowScorer(lambda rows: scores[avoided.ids[rows]])


def _avoided(node: Node) -> frozenset[tuple[str, str]]:
    """(kind, UID) of the controllers whose pods the node asks to be spared; none if the annotation cannot be read."""
    annotation = node.annotations.get(ANNOTATION)
    if annotation is None:
        return frozenset()
    try:
        avoid = _AVOID_PODS.decode(annotation)
    except msgspec.MsgspecError:
        return frozenset()
    controllers = (each.pod_signature.pod_controller for each in avoid.prefer_avoid_pods or ())
    return frozenset((each.kind, each.uid) for each in controllers if each is not None)
