"""Defines nodes and their taints. Source of `tolerates`: k8s.io/api core/v1 Toleration.ToleratesTaint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.model.meta import Condition, Int64, Object, Value
from extender.model.pod import Toleration
from extender.model.quantity import ResourceList


class Taint(Value, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class ContainerImage(Value, frozen=True):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeSpec(Value, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Value, frozen=True):
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[Condition] | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def taints(self) -> Sequence[Taint]:
        return self.spec.taints or ()

    @property
    def allocatable(self) -> ResourceList:
        """The resources that pods may request; by default the capacity (API defaulting)."""
        return self.status.allocatable or self.status.capacity or {}


NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Returns True if this toleration covers the taint. An empty effect or key covers all effects or keys."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration], effects: Sequence[str]) -> list[Taint]:
    """Returns the taints with one of these effects that the tolerations do not cover, in the order of `taints`."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]
