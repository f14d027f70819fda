"""Completes a pod as the API server would: with defaults, and with what admission plugins fill in.

Sources: upstream pkg/apis/core/v1/defaults.go, plugin/pkg/admission/{priority,limitranger,runtimeclass,
defaulttolerationseconds}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from extender.errors import MalformedCluster
from extender.model.meta import Object
from extender.model.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from extender.model.quantity import ResourceList
from extender.model.workloads import LimitRange, LimitRangeItem, PriorityClass, RuntimeClass
from extender.offline.manifests.objects import DEFAULT_SCHEDULER, SYSTEM_CLASSES, with_ports, with_priority
from extender.table.objects import Objects

T = TypeVar("T", bound=Object)

_EVICTION_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(slots=True)
class Admitted:
    """The pod as the API server would store it, and notes for people on what was filled in."""

    pod: Pod
    notes: list[str] = field(default_factory=list)


def admit(pod: Pod, manifest: Mapping[str, Any], objects: Objects) -> Admitted:
    """Returns the pod as an API server with these objects would store it.

    Args:
        manifest: the manifest of `pod`, for fields that `Pod` lacks because no scheduling rule reads them.

    Raises:
        MalformedCluster: the pod names a PriorityClass or RuntimeClass that does not exist.
    """
    admitted = Admitted(pod)
    spec = manifest.get("spec") or {}
    admitted.pod = admitted.pod.with_spec(scheduler_name=pod.spec.scheduler_name or DEFAULT_SCHEDULER)
    _pod_level(admitted)
    _each_container(admitted, lambda container: _requests_from_limits(container, admitted.notes))
    for limits in sorted(objects.all(LimitRange).values(), key=lambda each: each.key):
        if limits.namespace == pod.namespace:
            _limit_range(admitted, limits)
    _runtime_class(admitted, str(spec.get("runtimeClassName") or ""), objects)
    _priority(admitted, objects)
    admitted.pod = admitted.pod.with_spec(tolerations=_with_eviction_tolerations(admitted.pod.spec))
    host_network = bool(admitted.pod.spec.host_network)
    _each_container(admitted, lambda container: with_ports(container, host_network))
    return admitted


def _each_container(admitted: Admitted, change: Callable[[Container], Container]) -> None:
    spec = admitted.pod.spec
    admitted.pod = admitted.pod.with_spec(
        containers=[change(each) for each in spec.containers or ()],
        init_containers=[change(each) for each in spec.init_containers or ()],
    )


def _requests_from_limits(container: Container, notes: list[str]) -> Container:
    resources = container.resources
    taken = _missing(resources.limits, resources.requests) if resources else {}
    if not resources or not taken:
        return container
    notes.append(f"container {container.name}: requests {_listed(taken)}, taken from its limits")
    return replace(container, resources=replace(resources, requests={**(resources.requests or {}), **taken}))


def _pod_level(admitted: Admitted) -> None:
    """Fills in pod-level requests from pod-level limits, for resources that no container requests."""
    resources = admitted.pod.spec.resources
    missing = _missing(resources.limits, resources.requests) if resources else {}
    requested = {name for each in admitted.pod.containers if each.resources for name in each.resources.requests or ()}
    taken = {name: amount for name, amount in missing.items() if name not in requested}
    if resources and taken:
        admitted.notes.append(f"the pod requests {_listed(taken)}, taken from its limits")
        filled = replace(resources, requests={**(resources.requests or {}), **taken})
        admitted.pod = admitted.pod.with_spec(resources=filled)


def _limit_range(admitted: Admitted, limits: LimitRange) -> None:
    for item in limits.spec.limits or ():
        if item.type == "Container":
            _each_container(admitted, partial(_limited, item=item, name=limits.name, notes=admitted.notes))


def _limited(container: Container, item: LimitRangeItem, name: str, notes: list[str]) -> Container:
    resources = container.resources or ResourceRequirements()
    # An API server has stored defaultRequest from default; a LimitRange written by hand may lack it.
    requests = _missing({**(item.default or {}), **(item.default_request or {})}, resources.requests)
    added = _missing(item.default, resources.limits)
    if not requests and not added:
        return container
    if requests:
        notes.append(f"container {container.name}: requests {_listed(requests)}, from LimitRange {name}")
    filled = ResourceRequirements(
        requests={**(resources.requests or {}), **requests}, limits={**(resources.limits or {}), **added}
    )
    return replace(container, resources=filled)


def _runtime_class(admitted: Admitted, name: str, objects: Objects) -> None:
    if not name:
        return
    runtime_class = _named(RuntimeClass, name, objects, admitted.pod)
    if runtime_class.overhead and runtime_class.overhead.pod_fixed:
        admitted.notes.append(f"overhead {_listed(runtime_class.overhead.pod_fixed)}, from RuntimeClass {name}")
        admitted.pod = admitted.pod.with_spec(overhead=runtime_class.overhead.pod_fixed)
    scheduling = runtime_class.scheduling
    if scheduling and (scheduling.node_selector or scheduling.tolerations):
        spec = admitted.pod.spec
        admitted.notes.append(f"nodeSelector and tolerations from RuntimeClass {name}")
        admitted.pod = admitted.pod.with_spec(
            node_selector={**(spec.node_selector or {}), **(scheduling.node_selector or {})} or None,
            tolerations=[*(spec.tolerations or ()), *(scheduling.tolerations or ())],
        )


def _priority(admitted: Admitted, objects: Objects) -> None:
    before = admitted.pod.spec
    name = before.priority_class_name
    exists = name in SYSTEM_CLASSES or objects.get(PriorityClass, name) is not None
    if name and not exists and before.priority is None:
        _named(PriorityClass, name, objects, admitted.pod)
    # The class decides the value, unless it no longer exists.
    unresolved = replace(before, priority=None) if name and exists else before
    after = with_priority(f"pod {admitted.pod.key}", unresolved, objects.all(PriorityClass).values())
    admitted.pod = replace(admitted.pod, spec=after)
    if after.priority_class_name and after.priority != before.priority:
        admitted.notes.append(f"priority {after.priority}, from PriorityClass {after.priority_class_name}")


def _with_eviction_tolerations(spec: PodSpec) -> list[Toleration]:
    """Returns the spec's tolerations plus the default ones for a lost node (upstream DefaultTolerationSeconds)."""
    own = spec.tolerations or []
    missing = [
        taint
        for taint in _EVICTION_TAINTS
        if not any(each.key in ("", taint) and each.effect in ("", "NoExecute") for each in own)
    ]
    return [*own, *(Toleration(key=taint, operator="Exists", effect="NoExecute") for taint in missing)]


def _named(kind: type[T], name: str, objects: Objects, pod: Pod) -> T:
    obj = objects.get(kind, name)
    if obj is None:
        existing = ", ".join(sorted(objects.all(kind))) or "none"
        raise MalformedCluster(
            f"pod {pod.key}: no {kind.__name__} {name} is in the cluster, so the API server would refuse the "
            f"pod (existing ones: {existing})"
        )
    return obj


def _missing(defaults: ResourceList | None, own: ResourceList | None) -> ResourceList:
    return {name: amount for name, amount in (defaults or {}).items() if name not in (own or {})}


def _listed(resources: ResourceList) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in resources.items())
