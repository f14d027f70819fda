"""Checks that manifests have only fields and types of the Kubernetes API; reports every fault with its path.

`without_nulls` treats null values as the API server does, so the other checks need not handle them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from extender.errors import MalformedQuantity
from extender.model.quantity import nano
from extender.runtime.text import with_suggestion

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_POLICIES = ("Honor", "Ignore")
# Type.field -> the values that the API server accepts, for fields that schedulers read.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "V1TopologySpreadConstraint.whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "V1TopologySpreadConstraint.nodeAffinityPolicy": _POLICIES,
    "V1TopologySpreadConstraint.nodeTaintsPolicy": _POLICIES,
    "V1NodeSelectorRequirement.operator": (*_LABEL_OPERATORS, "Gt", "Lt"),
    "V1LabelSelectorRequirement.operator": _LABEL_OPERATORS,
    "V1PodSpec.preemptionPolicy": ("PreemptLowerPriority", "Never"),
    "V1ContainerPort.protocol": ("TCP", "UDP", "SCTP", ""),
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "V1TopologySpreadConstraint": ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    "V1PodAffinityTerm": ("topologyKey",),
    "V1WeightedPodAffinityTerm": ("weight", "podAffinityTerm"),
    "V1PreferredSchedulingTerm": ("weight",),
    "V1NodeSelectorRequirement": ("key", "operator"),
    "V1LabelSelectorRequirement": ("key", "operator"),
    "V1NodeSelector": ("nodeSelectorTerms",),
}
_QUANTITIES = (
    "V1ResourceRequirements.requests",
    "V1ResourceRequirements.limits",
    "V1VolumeResourceRequirements.requests",
    "V1VolumeResourceRequirements.limits",
    "V1PodSpec.overhead",
    "V1EmptyDirVolumeSource.sizeLimit",
    "V1ResourceFieldSelector.divisor",
    "V1CapacityRequirements.requests",
)
_PORTS = ("V1HTTPGetAction.port", "V1TCPSocketAction.port")  # a port may be a number or a name
# The API types whose names are not V1 followed by the kind.
_TYPE_NAMES = {
    "PodGroup": "V1beta1PodGroup",
    "CompositePodGroup": "V1alpha3CompositePodGroup",
    "ResourceClaim": "ResourceV1ResourceClaim",
}
_LIST = re.compile(r"List\[(.*)\]")
_SCALARS = {"str": (str, "text"), "int": (int, "a whole number"), "bool": (bool, "true or false")}
_ZEROS: Mapping[str, object] = {"str": "", "int": 0, "bool": False}
_OPAQUE = ("object", "datetime")


@cache
def _fields() -> dict[str, dict[str, str]]:
    """Returns the type of each field of each API type, for pods, pod templates, groups and claims.

    tests/offline/manifests/api_fields.py creates fields.json.
    """
    fields: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "fields.json").read_bytes())
    return fields


def faults(kind: str, obj: object, template: object = None, path: str = "") -> list[str]:
    """Returns the faults of an object, each as "path: what is wrong and what is expected".

    For an unknown kind, only the pod template at `path` is checked.
    """
    name = _type_name(kind)
    return list(_of_type(name, obj, "") if name in _fields() else _of_type("V1PodTemplateSpec", template, path))


def without_nulls(kind: str, obj: Any) -> Any:
    """Returns the object as the API server decodes it.

    A field that is null is left out. A null in a list or map becomes an empty value, such as "" or {}. An object of an
    unknown kind, and a value that is not an object, are returned unchanged.
    """
    return _decoded_type(_type_name(kind), obj)


def unknown_fields(kind: str, obj: Mapping[str, Any]) -> list[str]:
    """Returns the keys of an object that the API type does not have."""
    return [key for key in obj if key not in _fields()[_type_name(kind)]]


def _type_name(kind: str) -> str:
    return _TYPE_NAMES.get(kind, f"V1{kind}")


def _decoded_type(name: str, value: Any) -> Any:
    fields = _fields().get(name)
    if fields is None or not isinstance(value, Mapping):
        return value
    known = {key: inner for key, inner in value.items() if inner is not None}
    return {key: _decoded(f"{name}.{key}", fields.get(key, ""), inner) for key, inner in known.items()}


def _decoded(field: str, kind: str, value: Any) -> Any:
    if isinstance(value, list) and (many := _LIST.fullmatch(kind)):
        zero = _ZEROS.get(many[1], {})
        return [_decoded(field, many[1], zero if item is None else item) for item in value]
    if isinstance(value, Mapping) and kind.startswith("Dict["):
        zero = "0" if field in _QUANTITIES else ""
        return {key: zero if inner is None else inner for key, inner in value.items()}
    return _decoded_type(kind, value)


def typed(name: str, value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yields (type, object, path) for a value of this API type, such as V1PodSpec, and for each object inside it."""
    fields = _fields().get(name)
    if fields is None or not isinstance(value, Mapping):
        return
    yield name, value, path
    for key, inner in value.items():
        kind, here = fields.get(key, ""), _join(path, key)
        if many := _LIST.fullmatch(kind):
            for number, item in enumerate(inner):
                yield from typed(many[1], item, f"{here}[{number}]")
        else:
            yield from typed(kind, inner, here)


def _of_type(name: str, value: object, path: str) -> Iterator[str]:
    fields = _fields().get(name)
    if value is None or fields is None or name in _OPAQUE:
        return
    if not isinstance(value, Mapping):
        yield _mismatch(path, "a mapping", value)
        return
    for key in _REQUIRED.get(name, ()):
        if value.get(key) is None:
            yield f"{_join(path, key)}: is missing"
    for key, inner in value.items():
        here = _join(path, key)
        if key not in fields:
            yield with_suggestion(f"{here}: unknown field", str(key), fields)
        else:
            yield from _field(f"{name}.{key}", fields[key], inner, here)


def _field(field: str, kind: str, value: object, path: str) -> Iterator[str]:
    if value is None:
        return
    if many := _LIST.fullmatch(kind):
        if not isinstance(value, list):
            yield _mismatch(path, "a list", value)
            return
        for number, item in enumerate(value):
            yield from _field(field, many[1], item, f"{path}[{number}]")
    elif kind.startswith("Dict["):
        yield from _mapping(field, value, path)
    elif field in _QUANTITIES:
        yield from _quantity(value, path)
    elif field in _PORTS:
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _mismatch(path, "a number or a name", value)
    elif kind in _SCALARS:
        yield from _scalar(field, kind, value, path)
    else:
        yield from _of_type(kind, value, path)


def _mapping(field: str, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield _mismatch(path, "a mapping", value)
        return
    for key, inner in value.items():
        here = _join(path, key)
        if not isinstance(key, str):
            yield _mismatch(path, "text as the key", key)
        elif field in _QUANTITIES:
            yield from _quantity(inner, here)
        elif not isinstance(inner, str):
            yield _mismatch(here, "text (put it in quotes)", inner)


def _quantity(value: object, path: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        yield _mismatch(path, "a quantity, like 100m or 2Gi", value)
        return
    try:
        if nano(value) < 0:
            yield f"{path}: must not be negative"
    except MalformedQuantity as error:
        yield f"{path}: {error}"


def _scalar(field: str, kind: str, value: object, path: str) -> Iterator[str]:
    python_type, expected = _SCALARS[kind]
    if not isinstance(value, python_type) or (kind == "int" and isinstance(value, bool)):
        yield _mismatch(path, expected, value)
        return
    yield from choice(value, _CHOICES.get(field), path)


def choice(value: object, choices: Sequence[str] | None, path: str) -> Iterator[str]:
    """Yields a fault if the value is not one of the choices."""
    if choices is not None and value not in choices:
        message = f"{path}: {value!r} is not one of {', '.join(filter(None, choices))}"
        yield with_suggestion(message, str(value), choices)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _mismatch(path: str, expected: str, value: object) -> str:
    shown = repr(value)
    return f"{path or 'the object'}: expected {expected}, got {shown if len(shown) <= 40 else shown[:40] + '...'}"
