"""Checks that manifests have only fields and types of the Kubernetes API; reports every fault with its path.

`without_nulls` treats null values as the API server does, so the other checks need not handle them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
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
_MAPPINGS = (dict, Mapping)  # to ask for dict first is faster, because Mapping is an abstract class
_NUMBERS = (str, int, float)


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
    return list(_of_type(name, obj, ()) if name in _fields() else _of_type("V1PodTemplateSpec", template, (path,)))


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


FieldPath = tuple[str | int, ...]
"""The keys and indices that lead to a value. They become text only in a fault, which most objects do not have."""
Check = Callable[[object, FieldPath], Iterable[str]]
"""Returns the faults of a value that is not None."""


def _of_type(name: str, value: object, path: FieldPath) -> Iterable[str]:
    if value is None or name in _OPAQUE or name not in _fields():
        return ()
    if not isinstance(value, _MAPPINGS):
        return (_mismatch(path, "a mapping", value),)
    required, checks = _REQUIRED.get(name, ()), _checks(name)
    found = [f"{_shown((*path, key))}: is missing" for key in required if value.get(key) is None]
    for key, inner in value.items():
        if key not in checks:
            found.append(with_suggestion(f"{_shown((*path, str(key)))}: unknown field", str(key), checks))
        elif inner is not None:
            found += checks[key](inner, (*path, key))
    return found


@cache
def _checks(name: str) -> dict[str, Check]:
    """Returns the check of each field of an API type."""
    return {key: _check_of(f"{name}.{key}", kind) for key, kind in _fields()[name].items()}


def _check_of(field: str, kind: str) -> Check:
    if many := _LIST.fullmatch(kind):
        return partial(_list, _check_of(field, many[1]))
    if kind.startswith("Dict["):
        return partial(_mapping, field in _QUANTITIES)
    if field in _QUANTITIES:
        return _quantity
    if field in _PORTS:
        return _port
    if kind in _SCALARS:
        return partial(_scalar, *_SCALARS[kind], _CHOICES.get(field))
    return partial(_of_type, kind)


def _list(check: Check, value: object, path: FieldPath) -> Iterable[str]:
    if not isinstance(value, list):
        return (_mismatch(path, "a list", value),)
    items = enumerate(value)
    return [fault for number, item in items if item is not None for fault in check(item, (*path, number))]


def _mapping(has_quantities: bool, value: object, path: FieldPath) -> Iterable[str]:
    if not isinstance(value, _MAPPINGS):
        return (_mismatch(path, "a mapping", value),)
    found: list[str] = []
    for key, inner in value.items():
        if not isinstance(key, str):
            found.append(_mismatch(path, "text as the key", key))
        elif has_quantities:
            found += _quantity(inner, (*path, key))
        elif not isinstance(inner, str):
            found.append(_mismatch((*path, key), "text (put it in quotes)", inner))
    return found


def _port(value: object, path: FieldPath) -> Iterable[str]:
    is_port = isinstance(value, int | str) and not isinstance(value, bool)
    return () if is_port else (_mismatch(path, "a number or a name", value),)


def _quantity(value: object, path: FieldPath) -> Iterable[str]:
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return (_mismatch(path, "a quantity, like 100m or 2Gi", value),)
    try:
        return (f"{_shown(path)}: must not be negative",) if nano(value) < 0 else ()
    except MalformedQuantity as error:
        return (f"{_shown(path)}: {error}",)


def _scalar(
    python_type: type, expected: str, choices: Sequence[str] | None, value: object, path: FieldPath
) -> Iterable[str]:
    if not isinstance(value, python_type) or (python_type is int and isinstance(value, bool)):
        return (_mismatch(path, expected, value),)
    return () if choices is None or value in choices else choice(value, choices, _shown(path))


def choice(value: object, choices: Sequence[str] | None, path: str) -> Iterator[str]:
    """Yields a fault if the value is not one of the choices."""
    if choices is not None and value not in choices:
        message = f"{path}: {value!r} is not one of {', '.join(filter(None, choices))}"
        yield with_suggestion(message, str(value), choices)


def _shown(path: FieldPath) -> str:
    """Returns the path as text, like `spec.containers[0].name`."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else _join(text, part)
    return text


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _mismatch(path: FieldPath, expected: str, value: object) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    return f"{_shown(path) or 'the object'}: expected {expected}, got {shown}"
