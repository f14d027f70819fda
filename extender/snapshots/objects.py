"""Converts manifests to objects, and fills in defaults as the API server would.

An object of an older version is converted if Kubernetes 1.37 still converts it. Any other version is not read at all:
its fields may mean something else. msgspec's errors of decoding are rewritten in plain words: the path, the expected
type, and the value found.

Sources: upstream pkg/apis/core/v1/defaults.go, plugin/pkg/admission/priority, pkg/apis/*/install,
pkg/apis/resource/v1beta1/conversion.go, pkg/apis/policy/v1beta1/conversion.go, pkg/apis/node/v1alpha1/conversion.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
import msgspec.inspect
from msgspec.structs import replace

from extender.errors import MalformedCluster
from extender.model.kinds import OFFLINE_KINDS, Kind
from extender.model.meta import CustomObject, Object, ObjectMeta
from extender.model.pod import Container, Pod, PodSpec, ResourceRequirements
from extender.model.pod_groups import GroupSpec, SchedulingGroup
from extender.model.workloads import Namespace, PriorityClass

DEFAULT_NAMESPACE = "default"
READ_KINDS: Mapping[str, Kind] = OFFLINE_KINDS
"""All kinds that a snapshot may contain."""

CLUSTER_SCOPED = frozenset(kind.name for kind in READ_KINDS.values() if not kind.namespaced)

T = TypeVar("T", bound=Object)
Spec = TypeVar("Spec", PodSpec, GroupSpec)
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
DEFAULT_SCHEDULER = "default-scheduler"
_PREEMPTS = "PreemptLowerPriority"
_ANY = msgspec.inspect.AnyType()
# The zero values of Go. An amount may be a text or a number here, and null is 0.
_ZEROS: Sequence[tuple[tuple[type[msgspec.inspect.Type], ...], object]] = (
    ((msgspec.inspect.IntType, msgspec.inspect.FloatType), 0),
    ((msgspec.inspect.StrType,), ""),
    ((msgspec.inspect.BoolType,), False),
    ((msgspec.inspect.StructType, msgspec.inspect.DictType), {}),
    ((msgspec.inspect.CollectionType,), []),
)
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_GENERATED_NAME = 63


def to_object(item: Mapping[str, Any], place: str, kinds: Mapping[str, Kind] = READ_KINDS) -> Object | None:
    """Returns the object; None if `kinds` does not have it in this version or one that Kubernetes converts to it.

    Args:
        place: where the object is, for error messages.

    Raises:
        MalformedCluster: the item has no kind, or a field of the wrong type.
    """
    name = item.get("kind") if isinstance(item, Mapping) else None
    if not isinstance(name, str):
        raise MalformedCluster(f"{place}: expected an object with kind, apiVersion and metadata")
    kind = kinds.get(name)
    if kind is None:
        return None
    current = converted(item, kind.api_version) if item.get("apiVersion") else item
    if current is None:
        return None
    obj = _converted(current, kind.type, place)
    if isinstance(obj, CustomObject):
        return replace(obj, content=item)
    return identified(obj) if isinstance(obj, Pod) else obj


def named(metadata: Mapping[str, Any], namespace: str, place: str) -> dict[str, Any]:
    """Returns the metadata with the name and the namespace that the API server would give the object.

    A name made from generateName is the same each time: its suffix is a hash of the prefix and of `place`. The suffix
    has the letters and the length of upstream names.SimpleNameGenerator.

    Args:
        namespace: the namespace of an object that names none.
        place: the position of the object in the input.
    """
    home = metadata.get("namespace") or namespace or DEFAULT_NAMESPACE
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if prefix and not name:
        digest = sha256(f"{prefix} {place}".encode()).digest()
        suffix = "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest[:_SUFFIX_LENGTH])
        name = str(prefix)[: _LONGEST_GENERATED_NAME - _SUFFIX_LENGTH] + suffix
    return {**metadata, "namespace": home, **({"name": name} if name else {})}


def to_objects(items: Iterable[Mapping[str, Any]], watch: Sequence[Kind] = ()) -> list[Object]:
    """Converts dicts, as `kubectl get -o json` prints them under `items`, to objects with defaults filled in.

    Objects of kinds that scheduling does not read are left out, unless they are in `watch`.

    Raises:
        MalformedCluster: an item is not valid; the message has its number and the path in it.
    """
    kinds = {**READ_KINDS, **{kind.name: kind for kind in watch}}
    objects = (to_object(item, f"items[{number}]", kinds) for number, item in enumerate(items))
    return with_defaults([obj for obj in objects if obj is not None])


def to_pod(pod: Pod | Mapping[str, Any]) -> Pod:
    """Returns the pod, with namespace and UID filled in if they are missing.

    Raises:
        MalformedCluster: `pod` is not a mapping, has no name, or has a field of the wrong type.
    """
    return pod if isinstance(pod, Pod) else identified(_converted(pod, Pod, "pod"))


def _converted(item: Mapping[str, Any], kind: type[T], place: str) -> T:
    try:
        obj = msgspec.convert(item, kind)
    except msgspec.ValidationError:
        item = without_nulls(item, msgspec.inspect.type_info(kind))
        try:
            obj = msgspec.convert(item, kind)
        except msgspec.ValidationError as error:
            raise MalformedCluster(f"{place}: {plain(error, item)}") from None
    if not obj.name:
        raise MalformedCluster(f"{place}: metadata.name is missing")
    return obj


def without_nulls(value: Any, shape: msgspec.inspect.Type = _ANY) -> Any:
    """Returns the value as the API server decodes it: null is absent, or a zero value in a list or map.

    Args:
        shape: the type of the value. In a value of any type, null is absent in maps, and stays in lists.
    """
    shapes = shape.types if isinstance(shape, msgspec.inspect.UnionType) else (shape,)
    if isinstance(value, list):
        of_item = next((each.item_type for each in shapes if isinstance(each, msgspec.inspect.CollectionType)), _ANY)
        return [_zero(of_item) if item is None else without_nulls(item, of_item) for item in value]
    if not isinstance(value, Mapping):
        return value
    of_value = next((each.value_type for each in shapes if isinstance(each, msgspec.inspect.DictType)), None)
    if of_value is not None:
        return {key: _zero(of_value) if item is None else without_nulls(item, of_value) for key, item in value.items()}
    structs = [each for each in shapes if isinstance(each, msgspec.inspect.StructType)]
    fields = {field.encode_name: field.type for struct in structs for field in struct.fields}
    return {key: without_nulls(item, fields.get(key, _ANY)) for key, item in value.items() if item is not None}


def _zero(shape: msgspec.inspect.Type) -> Any:
    """Returns the zero value of the type in Go, such as "" or {}; None for any type."""
    shapes = shape.types if isinstance(shape, msgspec.inspect.UnionType) else (shape,)
    for kinds, zero in _ZEROS:
        if any(isinstance(each, kinds) for each in shapes):
            return zero
    return None


def with_defaults(objects: Sequence[Object]) -> list[Object]:
    """Returns the objects with defaults as an API server would store them, plus missing Namespace objects.

    Raises:
        MalformedCluster: a pod names a PriorityClass that does not exist.
    """
    complete = list(map(identified, objects))
    classes = [obj for obj in complete if isinstance(obj, PriorityClass)]
    complete = [_complete(obj, classes) for obj in complete]
    namespaces = {obj.name for obj in complete if isinstance(obj, Namespace)}
    missing = sorted({obj.namespace for obj in complete if obj.namespace} - namespaces)
    return [
        *map(_labelled, complete),
        *(_labelled(Namespace(metadata=ObjectMeta(name=name, uid=name))) for name in missing),
    ]


def identified(obj: T) -> T:
    """Returns the object with its namespace and UID filled in if they are missing.

    An object of a cluster-scoped kind gets no namespace. A custom object stays as it is.
    """
    if isinstance(obj, CustomObject) or (obj.uid and (obj.namespace or type(obj).__name__ in CLUSTER_SCOPED)):
        return obj
    namespace = "" if type(obj).__name__ in CLUSTER_SCOPED else obj.namespace or DEFAULT_NAMESPACE
    uid = obj.uid or f"{namespace}/{obj.name}".removeprefix("/")
    return replace(obj, metadata=replace(obj.metadata, namespace=namespace, uid=uid))


def _labelled(obj: T) -> T:
    if not isinstance(obj, Namespace) or _NAMESPACE_LABEL in obj.labels:
        return obj
    return replace(obj, metadata=replace(obj.metadata, labels={**obj.labels, _NAMESPACE_LABEL: obj.name}))


def _complete(obj: Object, classes: Iterable[PriorityClass]) -> Object:
    if isinstance(obj, SchedulingGroup):
        return replace(obj, spec=_with_priority(f"{type(obj).__name__} {obj.key}", obj.spec, classes))
    return completed(obj, classes) if isinstance(obj, Pod) else obj


def completed(pod: Pod, classes: Iterable[PriorityClass]) -> Pod:
    """Fills in the pod's priority, schedulerName, requests and host ports, as the API server would.

    A pod that was read from an API server has them already. A pod in a file written by hand may lack them.

    Raises:
        MalformedCluster: the pod names a PriorityClass that does not exist.
    """
    spec = _with_priority(f"pod {pod.key}", pod.spec, classes)
    host_network = bool(spec.host_network)
    spec = replace(
        spec,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        containers=_containers(spec.containers, host_network),
        init_containers=_containers(spec.init_containers, host_network),
    )
    return replace(pod, spec=spec)


def _with_priority(owner: str, spec: Spec, classes: Iterable[PriorityClass]) -> Spec:
    """Returns the spec with its priority filled in from its PriorityClass, or from the default class.

    Raises:
        MalformedCluster: the spec names a class that does not exist; the message begins with `owner`.
    """
    if spec.priority is not None:
        return spec
    if spec.priority_class_name in SYSTEM_CLASSES:
        return replace(spec, priority=SYSTEM_CLASSES[spec.priority_class_name])
    matching = [
        c for c in classes if (c.name == spec.priority_class_name if spec.priority_class_name else c.global_default)
    ]
    if not matching:
        if spec.priority_class_name:
            raise MalformedCluster(f"{owner}: no PriorityClass {spec.priority_class_name} is in the cluster")
        return replace(spec, priority=0)
    # if several classes are the global default, the one with the lowest value counts
    chosen = min(matching, key=lambda c: c.value)
    return replace(
        spec,
        priority=chosen.value,
        priority_class_name=chosen.name,
        preemption_policy=spec.preemption_policy or chosen.preemption_policy,
    )


def admitted_priority(owner: str, noun: str, spec: Spec, classes: Iterable[PriorityClass]) -> Spec:
    """Returns the spec of a new object, a pod or a group, with the priority that the API server sets.

    Raises:
        MalformedCluster: its PriorityClass does not exist, or the spec sets another priority or preemptionPolicy.
    """
    after = _with_priority(owner, replace(spec, priority=None, preemption_policy=None), classes)
    after = replace(after, preemption_policy=after.preemption_policy or _PREEMPTS)
    name = after.priority_class_name
    origin = f"PriorityClass {name}" if name else f"a {noun} without PriorityClass"
    for field, own, expected in (
        ("priority", spec.priority, after.priority),
        ("preemptionPolicy", spec.preemption_policy, after.preemption_policy),
    ):
        if own not in (None, expected):
            text = f"spec.{field}: {origin} has {expected}; a {noun} cannot set another value, got {own}"
            raise refused(owner, text)
    return after


def refused(owner: str, reason: str) -> MalformedCluster:
    """Returns the error that says why the API server would refuse the object."""
    return MalformedCluster(f"{owner}: the API server would refuse it: {reason}")


def _containers(containers: list[Container] | None, host_network: bool) -> list[Container] | None:
    return [_container(container, host_network) for container in containers] if containers else containers


def _container(container: Container, host_network: bool) -> Container:
    resources = container.resources
    if resources and resources.limits:
        requests = {**resources.limits, **(resources.requests or {})}
        container = replace(container, resources=ResourceRequirements(requests, resources.limits))
    return with_ports(container, host_network)


def with_ports(container: Container, host_network: bool) -> Container:
    """Adds the missing host ports to the container if the pod uses the host's network."""
    if not (host_network and container.ports):
        return container
    ports = [replace(port, host_port=port.host_port or port.container_port) for port in container.ports]
    return replace(container, ports=ports)


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


def _each(
    api_version: str, kinds: str, change: Callable[[Fields], Fields] = lambda item: item
) -> dict[tuple[str, str], Any]:
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


_KEY = re.compile(r".* - at `key` in `\$(.*)`")
_MISMATCH = re.compile(r"Expected `([^`]*)`(?:, got `[^`]*`)?(?: ([<>]=?) (\S+))?(?: - at `\$(.*)`)?")
_LIMITS = {"<=": " of at most ", ">=": " of at least "}
_OTHER = re.compile(r"(.*?)(?: - at `\$(.*)`)?")
_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
# msgspec's name of a type -> its name in words, and the Python types.
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text", (str,)),
    "bool": ("true or false", (bool,)),
    "object": ("a mapping", (dict,)),
    "array": ("a list", (list,)),
    "null": ("", (type(None),)),
}
_QUANTITY = {"int", "float", "str"}
_TIME = "Invalid RFC3339 encoded datetime"
_LONGEST = 40


def plain(error: msgspec.ValidationError, document: Any) -> str:
    """Returns the error as "path: expected TYPE, got VALUE"; `document` is the value that could not be decoded."""
    text = str(error)
    if match := _KEY.fullmatch(text):
        path, value = _found(document, match[1], [])
        key = next((each for each in value if not isinstance(each, str)), None)
        return f"{path}: expected text as the key (put it in quotes), got {_shown(key)}"
    if match := _MISMATCH.fullmatch(text):
        kinds = match[1].split(" | ")
        path, value = _found(document, match[4] or "", kinds)
        limit = f"{_LIMITS.get(match[2], f' {match[2]} ')}{match[3]}" if match[2] else ""
        return f"{path or 'the object'}: expected {_expected(kinds, value)}{limit}, got {_shown(value)}"
    match = _OTHER.fullmatch(text)
    assert match is not None  # the pattern matches any line
    path, value = _found(document, match[2] or "", [])
    if match[1] == _TIME:
        return f"{path}: expected a time, like 2026-11-25T09:00:00Z, got {_shown(value)}"
    return f"{path or 'the object'}: {match[1][:1].lower()}{match[1][1:]}"


def _expected(kinds: Sequence[str], value: object) -> str:
    if {*kinds} >= _QUANTITY:
        return "a quantity, like 100m or 2Gi"
    words = " or ".join(_TYPES[kind][0] if kind in _TYPES else kind for kind in kinds if kind != "null")
    needs_quotes = words == "text" and isinstance(value, bool | int | float)
    return f"{words} (put it in quotes)" if needs_quotes else words


def _found(document: Any, path: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """Returns the complete path, and the value at this path. msgspec writes `...` instead of a map's key."""
    value, names = document, []
    parts = [match[1] or match[2] for match in _PART.finditer(path)]
    for position, part in enumerate(parts):
        if part == "...":
            part = _key(value, parts[position + 1 :], kinds)
            names.append(f".{part}")
        else:
            names.append(f"[{part}]" if isinstance(value, list) else f".{part}")
        value = _inner(value, part)
    return "".join(names).removeprefix("."), value


def _key(value: Any, rest: Sequence[str], kinds: Sequence[str]) -> str:
    """Returns the key of the map's first value that is wrong at the path `rest`; "*" if no value is wrong.

    A value is wrong if its type is not in `kinds`.
    """
    for key, inner in value.items() if isinstance(value, dict) else ():
        for part in rest:
            inner = _inner(inner, part)
        if not any(_is_of(inner, kind) for kind in kinds):
            return str(key)
    return "*"


def _inner(value: Any, part: str) -> Any:
    if isinstance(value, list) and part.isdecimal():
        return value[int(part)] if int(part) < len(value) else None
    return value.get(part) if isinstance(value, dict) else None


def _is_of(value: object, kind: str) -> bool:
    types = _TYPES.get(kind, ("", ()))[1]
    return isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except ValueError:  # Python prints no number with more than 4,300 digits
        return "a number that is too long to print"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
