"""Reads the objects that are in the same file as pods, such as claims and classes, and admits them as the API server.

`structure.companion_faults` checks an object alone; this module makes the checks that depend on other objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from extender.errors import MalformedCluster
from extender.model.devices import ResourceClaim, ResourceClaimTemplate
from extender.model.meta import Object
from extender.model.pod_groups import CompositePodGroup, PodGroup, SchedulingGroup
from extender.model.storage import PersistentVolumeClaim
from extender.model.workloads import Namespace, PriorityClass
from extender.offline.manifests import admission, schema, structure
from extender.snapshots.objects import READ_KINDS, admitted_priority, applied, identified, named, refused, to_object
from extender.table.object_index import Objects

_CHECKED = frozenset(
    kind.__name__ for kind in (PodGroup, CompositePodGroup, PersistentVolumeClaim, ResourceClaim, ResourceClaimTemplate)
)
_NOT_APPLIED = frozenset(("Pod", "Node"))  # pods are workloads, and kubelets create nodes
_HIGHEST_PRIORITY = 10**9
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"


def companion(item: Mapping[str, Any], place: str, namespace: str = "") -> Object | None:
    """Converts an object that scheduling reads besides pods and nodes; returns None for any other object.

    Args:
        namespace: the namespace of an object that names none.

    Raises:
        MalformedCluster: the API server would refuse the object; the message has the path of every fault.
    """
    kind = str(item.get("kind"))
    if kind not in READ_KINDS or kind in _NOT_APPLIED:
        return None
    api_version = READ_KINDS[kind].api_version
    current = applied(item, api_version, place) if item.get("apiVersion") else item
    if current is None:
        return None
    metadata = current.get("metadata") or {}
    if isinstance(metadata, Mapping):  # the checks below report metadata that is not a mapping
        metadata = named(metadata, namespace, place)
    item = {**current, "apiVersion": api_version, "metadata": metadata}
    if kind in _CHECKED:
        item = schema.without_nulls(kind, item)
        if faults := schema.faults(kind, item) or list(structure.companion_faults(kind, item)):
            raise MalformedCluster(f"{place}: {'; '.join(faults)}")
    obj = to_object(item, place)
    return obj and identified(obj)


def admitted(obj: Object, objects: Objects, *, limits_priorities: bool = True, checks_more: bool = False) -> Object:
    """Returns a pod group or a claim as an API server with these objects would store it.

    Args:
        limits_priorities: True if it refuses groups with the priority of a system class.
        checks_more: True if it refuses what `Behaviours.more_objects_are_refused` names.

    Raises:
        MalformedCluster: the API server would refuse it; the message says why.
    """
    if checks_more:
        for fault in _newer_faults(obj):
            raise refused(_owner(obj), fault)
    if isinstance(obj, SchedulingGroup):
        return _with_priority(obj, objects, limits_priorities=limits_priorities)
    for fault in _faults(obj, objects):
        raise refused(_owner(obj), fault)
    return obj


def _newer_faults(obj: Object) -> Iterator[str]:
    match obj:
        case PodGroup() | CompositePodGroup() if obj.is_disrupted_whole and obj.spec.scheduling_policy.gang is None:
            yield 'spec.disruptionMode: cannot have "all" disruption mode when scheduling policy is other than "gang"'
        case ResourceClaim():
            yield from structure.capacity_faults(obj.spec.devices, "spec.devices")
        case ResourceClaimTemplate():
            yield from structure.capacity_faults(obj.spec.spec.devices, "spec.spec.devices")


def _faults(obj: Object, objects: Objects) -> Iterator[str]:
    if isinstance(obj, PersistentVolumeClaim):
        for limits in admission.limit_ranges_of(obj.namespace, objects):
            yield from admission.claim_limit_violations(obj, limits)
    devices = obj.spec.devices if isinstance(obj, ResourceClaim) else None
    devices = obj.spec.spec.devices if isinstance(obj, ResourceClaimTemplate) else devices
    is_admin = any(each.exactly and each.exactly.admin_access for each in (devices and devices.requests) or ())
    namespace = objects.get(Namespace, obj.namespace)
    if is_admin and (namespace is None or namespace.labels.get(_ADMIN_LABEL) != "true"):
        yield f"adminAccess: namespace {obj.namespace} has no label {_ADMIN_LABEL}=true"


def _with_priority(group: SchedulingGroup, objects: Objects, *, limits_priorities: bool) -> SchedulingGroup:
    """Returns the group with the priority of its PriorityClass; refuses a group that sets another priority."""
    spec = admitted_priority(_owner(group), "group", group.spec, objects.all(PriorityClass).values())
    if limits_priorities and (spec.priority or 0) > _HIGHEST_PRIORITY:
        raise refused(_owner(group), f"spec.priority: expected at most {_HIGHEST_PRIORITY}, got {spec.priority}")
    return replace(group, spec=spec)


def _owner(obj: Object) -> str:
    return f"{type(obj).__name__} {obj.key}"
