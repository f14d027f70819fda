"""The cluster that generated pods are created in: namespaces with LimitRanges, priority classes, runtime classes."""

from __future__ import annotations

from typing import Any

from tests.builders import Object, make_namespace, make_priority_class

PLAIN, LIMITED, MAXIMUM, RATIO, TWO, WHOLE = NAMESPACES = ("plain", "limited", "maximum", "ratio", "two", "whole")
PRIORITY_CLASSES = ("low", "high", "never")
RUNTIME_CLASSES = ("plain", "kata", "placed", "both")


def objects() -> list[Object]:
    return [
        *map(make_namespace, NAMESPACES),
        make_priority_class("low", -10),
        make_priority_class("high", 1000),
        make_priority_class("never", 500, preemptionPolicy="Never"),
        _limit_range("defaults", LIMITED, {"type": "Container", "default": _of("1", "1Gi"), "min": _of("10m", "1Mi")}),
        _limit_range(
            "largest",
            MAXIMUM,
            {"type": "Container", "max": _of("2", "2Gi")},
            {"type": "Pod", "max": {"cpu": "3"}, "min": {"memory": "16Mi"}},
        ),
        _limit_range(
            "ratio", RATIO, {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
        ),
        _limit_range("cpus", TWO, {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}),
        _limit_range("storage", TWO, {"type": "Container", "max": {"ephemeral-storage": "4Gi"}}),
        _limit_range("pods", WHOLE, {"type": "Pod", "max": {"cpu": "2"}, "min": {"memory": "64Mi"}}),
        _runtime_class("plain"),
        _runtime_class("kata", overhead={"podFixed": {"cpu": "250m", "memory": "64Mi"}}),
        _runtime_class("placed", scheduling={"nodeSelector": {"runtime": "gvisor"}, "tolerations": _TOLERATIONS}),
        _runtime_class(
            "both", overhead={"podFixed": {"cpu": "100m"}}, scheduling={"nodeSelector": {"runtime": "kata"}}
        ),
    ]


_TOLERATIONS = [{"key": "runtime", "operator": "Exists"}, {"key": "app", "operator": "Equal", "value": "web"}]


def _of(cpu: str, memory: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": memory}


def _limit_range(name: str, namespace: str, *limits: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": list(limits)}}


def _runtime_class(name: str, **fields: Any) -> Object:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "h",
        **fields,
    }
