"""Node, as far as the scheduler reads it."""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.meta import Condition, Int64, Object, Value
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
        """Returns what pods may request; a node that reports none offers its capacity (API defaulting)."""
        return self.status.allocatable or self.status.capacity or {}
