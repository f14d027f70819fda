"""A pod as the API server would store it: its defaults, and what its admission fills in.

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
    """The pod as it would be stored, and what was filled in, for people."""

    pod: Pod
    notes: list[str] = field(default_factory=list)


def admit(pod: Pod, manifest: Mapping[str, Any], objects: Objects) -> Admitted:
    """The pod as an API server with these objects would store it.

    Args:
        manifest: what `pod` was made of; fields that no rule reads are looked up there.

    Raises:
        MalformedCluster: it names a PriorityClass or RuntimeClass that is not there.
    """
    made = Admitted(pod)
    spec = manifest.get("spec") or {}
    made.pod = made.pod.with_spec(scheduler_name=pod.spec.scheduler_name or DEFAULT_SCHEDULER)
    _pod_level(made)
    _each_container(made, lambda container: _requests_from_limits(container, made.notes))
    for limits in sorted(objects.all(LimitRange).values(), key=lambda each: each.key):
        if limits.namespace == pod.namespace:
            _limit_range(made, limits)
    _runtime_class(made, str(spec.get("runtimeClassName") or ""), objects)
    _priority(made, objects)
    made.pod = made.pod.with_spec(tolerations=_with_eviction_tolerations(made.pod.spec))
    host_network = bool(made.pod.spec.host_network)
    _each_container(made, lambda container: with_ports(container, host_network))
    return made


def _each_container(made: Admitted, change: Callable[[Container], Container]) -> None:
    spec = made.pod.spec
    made.pod = made.pod.with_spec(
        containers=[change(each) for each in spec.containers or ()],
        init_containers=[change(each) for each in spec.init_containers or ()],
    )


def _requests_from_limits(container: Container, notes: list[str]) -> Container:
    resources = container.resources
    taken = _missing(resources.limits, resources.requests) if resources else {}
    if not resources or not taken:
        return container
    notes.append(f"container {container.name}: requests {_listed(taken)}, from its limits")
    return replace(container, resources=replace(resources, requests={**(resources.requests or {}), **taken}))


def _pod_level(made: Admitted) -> None:
    """Pod-level requests: from the containers' where these have any, else from the pod-level limits."""
    resources = made.pod.spec.resources
    missing = _missing(resources.limits, resources.requests) if resources else {}
    asked = {name for each in made.pod.containers if each.resources for name in each.resources.requests or ()}
    taken = {name: amount for name, amount in missing.items() if name not in asked}
    if resources and taken:
        made.notes.append(f"requests {_listed(taken)} for the pod as a whole, from its limits")
        filled = replace(resources, requests={**(resources.requests or {}), **taken})
        made.pod = made.pod.with_spec(resources=filled)


def _limit_range(made: Admitted, limits: LimitRange) -> None:
    for item in limits.spec.limits or ():
        if item.type == "Container":
            _each_container(made, partial(_limited, item=item, name=limits.name, notes=made.notes))


def _limited(container: Container, item: LimitRangeItem, name: str, notes: list[str]) -> Container:
    resources = container.resources or ResourceRequirements()
    # An API server has stored defaultRequest from default; a LimitRange written by hand may lack it.
    requests = _missing({**(item.default or {}), **(item.default_request or {})}, resources.requests)
    added = _missing(item.default, resources.limits)
    if not requests and not added:
        return container
    if requests:
        notes.append(f"container {container.name}: requests {_listed(requests)}, by LimitRange {name}")
    filled = ResourceRequirements(
        requests={**(resources.requests or {}), **requests}, limits={**(resources.limits or {}), **added}
    )
    return replace(container, resources=filled)


def _runtime_class(made: Admitted, name: str, objects: Objects) -> None:
    if not name:
        return
    found = _named(RuntimeClass, name, objects, made.pod)
    if found.overhead and found.overhead.pod_fixed:
        made.notes.append(f"overhead {_listed(found.overhead.pod_fixed)}, by RuntimeClass {name}")
        made.pod = made.pod.with_spec(overhead=found.overhead.pod_fixed)
    scheduling = found.scheduling
    if scheduling and (scheduling.node_selector or scheduling.tolerations):
        spec = made.pod.spec
        made.notes.append(f"nodeSelector and tolerations of RuntimeClass {name} added")
        made.pod = made.pod.with_spec(
            node_selector={**(spec.node_selector or {}), **(scheduling.node_selector or {})} or None,
            tolerations=[*(spec.tolerations or ()), *(scheduling.tolerations or ())],
        )


def _priority(made: Admitted, objects: Objects) -> None:
    before = made.pod.spec
    name = before.priority_class_name
    known = name in SYSTEM_CLASSES or objects.get(PriorityClass, name) is not None
    if name and not known and before.priority is None:
        _named(PriorityClass, name, objects, made.pod)
    # A class sets the number; what was stored with both may have outlived its class.
    asked = replace(before, priority=None) if name and known else before
    after = with_priority(made.pod.key, asked, objects.all(PriorityClass).values())
    made.pod = replace(made.pod, spec=after)
    if after.priority_class_name and after.priority != before.priority:
        made.notes.append(f"priority {after.priority}, by PriorityClass {after.priority_class_name}")


def _with_eviction_tolerations(spec: PodSpec) -> list[Toleration]:
    """The tolerations, and those for 300 seconds on a node that is lost (DefaultTolerationSeconds)."""
    own = spec.tolerations or []
    missing = [
        taint
        for taint in _EVICTION_TAINTS
        if not any(each.key in ("", taint) and each.effect in ("", "NoExecute") for each in own)
    ]
    return [*own, *(Toleration(key=taint, operator="Exists", effect="NoExecute") for taint in missing)]


def _named(kind: type[T], name: str, objects: Objects, pod: Pod) -> T:
    found = objects.get(kind, name)
    if found is None:
        known = ", ".join(sorted(objects.all(kind))) or "none"
        raise MalformedCluster(
            f"pod {pod.key}: no {kind.__name__} {name} is in the cluster, so the API server would refuse it "
            f"(there: {known})"
        )
    return found


def _missing(wanted: ResourceList | None, given: ResourceList | None) -> ResourceList:
    return {name: amount for name, amount in (wanted or {}).items() if name not in (given or {})}


def _listed(resources: ResourceList) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in resources.items())
