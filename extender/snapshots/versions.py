"""Says what an object is, by group, version and kind, and converts older versions to those that the model reads.

An older version is converted if Kubernetes 1.37 still converts it. Any other version is not read at all: its fields may
mean something else.

Sources: upstream pkg/apis/*/install, pkg/apis/resource/v1beta1/conversion.go, pkg/apis/policy/v1beta1/conversion.go,
pkg/apis/node/v1alpha1/conversion.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from extender.errors import MalformedCluster
from extender.model.kinds import OFFLINE_KINDS

Fields = Mapping[str, Any]
WORKLOADS: Mapping[str, str] = {
    **dict.fromkeys(("Pod", "PodTemplate", "ReplicationController"), "v1"),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
}
"""Kubernetes' own kinds of pods and of objects with a pod template -> the version that is read."""
_NO_POD_HAS = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
_MATCHES_NONE = {"matchExpressions": [{"key": _NO_POD_HAS, "operator": "Exists"}]}
_V1BETA1_MATCHES_ALL = {"matchExpressions": [{"key": _NO_POD_HAS, "operator": "DoesNotExist"}]}


def _same(item: Fields) -> Fields:
    return item


def _exact(request: Fields) -> Fields:
    """Moves what a request of v1beta1 asks for below `exactly`, unless it lists alternatives (firstAvailable)."""
    fields = {key: value for key, value in request.items() if key not in ("name", "firstAvailable")}
    rest = {key: request[key] for key in ("name", "firstAvailable") if key in request}
    return {**rest, "exactly": fields} if fields else rest


def _with(item: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """Returns the item with the value at the path changed; items of lists on the way are changed one by one."""
    if isinstance(item, list):
        return [_with(each, path, change) for each in item]
    if not path:
        return change(item) if isinstance(item, Mapping) else item
    if not isinstance(item, Mapping) or path[0] not in item:
        return item
    return {**item, path[0]: _with(item[path[0]], path[1:], change)}


def _flat_device(device: Fields) -> Fields:
    basic = device.get("basic")
    rest = {key: value for key, value in device.items() if key != "basic"}
    return {**rest, **basic} if isinstance(basic, Mapping) else rest


def _of_runtime(item: Fields) -> Fields:
    spec = item.get("spec")
    rest = {key: value for key, value in item.items() if key != "spec"}
    if not isinstance(spec, Mapping):
        return rest
    moved = {key: spec[key] for key in ("overhead", "scheduling") if key in spec}
    return {**rest, **moved, "handler": spec.get("runtimeHandler", "")}


def _selector(spec: Fields) -> Fields:
    """Rewrites the selectors of policy/v1beta1, where an empty one selects no pods and a special one selects all."""
    selector = spec.get("selector")
    if selector == {}:
        return {**spec, "selector": _MATCHES_NONE}
    return {**spec, "selector": {}} if selector == _V1BETA1_MATCHES_ALL else spec


def _each(api_version: str, kinds: str, change: Callable[[Fields], Fields] = _same) -> dict[tuple[str, str], Any]:
    return {(api_version, kind): change for kind in kinds.split()}


_DEVICE_REQUESTS = ("spec", "devices", "requests")
_OF_TEMPLATE = ("spec", *_DEVICE_REQUESTS)
_SERVED: Mapping[tuple[str, str], Callable[[Fields], Fields]] = {
    **_each("resource.k8s.io/v1beta2", "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice"),
    **_each("resource.k8s.io/v1beta1", "DeviceClass"),
    **_each("resource.k8s.io/v1beta1", "ResourceClaim", lambda item: _with(item, _DEVICE_REQUESTS, _exact)),
    **_each("resource.k8s.io/v1beta1", "ResourceClaimTemplate", lambda item: _with(item, _OF_TEMPLATE, _exact)),
    **_each("resource.k8s.io/v1beta1", "ResourceSlice", lambda item: _with(item, ("spec", "devices"), _flat_device)),
    **_each("resource.k8s.io/v1alpha3", "DeviceTaintRule"),
    **_each("scheduling.k8s.io/v1alpha3", "PodGroup CompositePodGroup"),
}  # fmt: skip
# Versions that only old clusters serve: found in a dump, but refused by kubectl.
_RETIRED: Mapping[tuple[str, str], Callable[[Fields], Fields]] = {
    **_each("policy/v1beta1", "PodDisruptionBudget", lambda item: _with(item, ("spec",), _selector)),
    **_each("scheduling.k8s.io/v1beta1", "PriorityClass"),
    **_each("storage.k8s.io/v1beta1", "StorageClass VolumeAttachment CSIDriver CSINode CSIStorageCapacity"),
    **_each("storage.k8s.io/v1alpha1", "VolumeAttachment CSIStorageCapacity"),
    **_each("node.k8s.io/v1beta1", "RuntimeClass"),
    **_each("node.k8s.io/v1alpha1", "RuntimeClass", _of_runtime),
    **_each("apps/v1beta1", "StatefulSet Deployment"),
    **_each("apps/v1beta2", "StatefulSet ReplicaSet Deployment DaemonSet"),
    **_each("extensions/v1beta1", "ReplicaSet Deployment DaemonSet"),
    **_each("batch/v1beta1", "CronJob"),
}


def converted(item: Fields, api_version: str) -> Fields | None:
    """Returns an object of a cluster as its kind's `api_version` has it; None if Kubernetes does not convert it."""
    own, kind = str(item.get("apiVersion") or ""), str(item.get("kind"))
    if own == api_version:
        return item
    change = _SERVED.get((own, kind)) or _RETIRED.get((own, kind))
    return {**change(item), "apiVersion": api_version} if change else None


def applied(item: Fields, api_version: str, place: str) -> Fields | None:
    """Returns an object of a file as its kind's `api_version` has it; None if it is not Kubernetes' kind of this name.

    Raises:
        MalformedCluster: kubectl would refuse the version.
    """
    own, kind = str(item.get("apiVersion") or ""), str(item.get("kind"))
    if own == api_version:
        return item
    if not is_kubernetes(own):
        return None
    change = _SERVED.get((own, kind))
    if change is None:
        raise MalformedCluster(f'{place}: no matches for kind "{kind}" in version "{own}"; expected {api_version}')
    return {**change(item), "apiVersion": api_version}


_VERSIONS = (*WORKLOADS.values(), *(kind.api_version for kind in OFFLINE_KINDS.values()), *(key[0] for key in _RETIRED))
_GROUPS = frozenset(version.rpartition("/")[0] for version in _VERSIONS)


def is_kubernetes(api_version: str) -> bool:
    """Returns True if the API group may have kinds of Kubernetes itself that are read, such as apps.

    The domain `k8s.io` alone says nothing: scheduling.sigs.k8s.io is another project's group.
    """
    group = api_version.rpartition("/")[0]
    return "." not in group or group in _GROUPS
