"""Namespaces, priority classes, disruption budgets, services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.builders.builder import Builder, Object


def make_namespace(name: str, **labels: str) -> Object:
    return Builder("v1", "Namespace", name).label(labels).obj()


def make_priority_class(name: str, value: int, **fields: Any) -> Object:
    return {**Builder("scheduling.k8s.io/v1", "PriorityClass", name).obj(), "value": value, **fields}


def make_pdb(name: str, labels: Mapping[str, str], *, namespace: str = "default", **spec: Any) -> Object:
    """`spec` is minAvailable or maxUnavailable; a test without the disruption controller sets the status itself."""
    pdb = Builder("policy/v1", "PodDisruptionBudget", name, namespace).obj()
    return {**pdb, "spec": {"selector": {"matchLabels": dict(labels)}, **spec}}


def make_service(name: str, selector: Mapping[str, str], *, namespace: str = "default") -> Object:
    spec = {"selector": dict(selector), "ports": [{"port": 80}]}
    return {**Builder("v1", "Service", name, namespace).obj(), "spec": spec}


def make_pod_group(name: str, min_count: int | None = None, *, namespace: str = "default", **spec: Any) -> Object:
    """A gang of at least `min_count` members; without that, the policy `basic`."""
    policy: Object = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    group = Builder("scheduling.k8s.io/v1beta1", "PodGroup", name, namespace).obj()
    return {**group, "spec": {"schedulingPolicy": policy, **spec}}


def make_composite_pod_group(
    name: str, min_groups: int | None = None, *, namespace: str = "default", **spec: Any
) -> Object:
    """A gang of at least `min_groups` child groups; without that, the policy `basic`."""
    policy: Object = {"basic": {}} if min_groups is None else {"gang": {"minGroupCount": min_groups}}
    group = Builder("scheduling.k8s.io/v1alpha3", "CompositePodGroup", name, namespace).obj()
    return {**group, "spec": {"schedulingPolicy": policy, **spec}}
