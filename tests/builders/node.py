"""Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from tests.builders.builder import HOSTNAME, REGION, ZONE, Builder, Object


def make_node(name: str) -> NodeBuilder:
    return NodeBuilder(name)


class NodeBuilder(Builder):
    """Starts Ready, labelled with its host name, with 4 CPUs, 16Gi and room for 110 pods."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "Node", name)
        self._spec: Object = {}
        self._status: Object = {}
        self._object |= {"spec": self._spec, "status": self._status}
        self.label({HOSTNAME: name}).condition("Ready", "True")
        self.capacity(cpu="4", memory="16Gi", pods="110")

    def capacity(self, resources: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Capacity and allocatable."""
        self._status.setdefault("capacity", {}).update({**(resources or {}), **more})
        return self.allocatable(resources, **more)

    def allocatable(self, resources: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Allocatable alone."""
        self._status.setdefault("allocatable", {}).update({**(resources or {}), **more})
        return self

    def zone(self, zone: str, region: str | None = None) -> Self:
        return self.label({ZONE: zone} if region is None else {ZONE: zone, REGION: region})

    def taint(self, key: str, value: str | None = None, effect: str = "NoSchedule") -> Self:
        taint = {"key": key, "effect": effect} | ({} if value is None else {"value": value})
        self._spec.setdefault("taints", []).append(taint)
        return self

    def unschedulable(self) -> Self:
        """Cordoned. The taint that the node controller adds is not added here."""
        self._spec["unschedulable"] = True
        return self

    def image(self, *names: str, size_bytes: int) -> Self:
        self._status.setdefault("images", []).append({"names": list(names), "sizeBytes": size_bytes})
        return self

    def condition(self, kind: str, status: str) -> Self:
        """Adds a condition, in place of one of the same kind."""
        others = [condition for condition in self._status.get("conditions", []) if condition["type"] != kind]
        self._status["conditions"] = [*others, {"type": kind, "status": status}]
        return self

    def declared_features(self, *names: str) -> Self:
        self._status["declaredFeatures"] = list(names)
        return self
