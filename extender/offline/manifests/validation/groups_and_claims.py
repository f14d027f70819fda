"""Checks the pod groups and claims that pods refer to, before defaults are filled in.

Sources: upstream pkg/apis/resource/validation, pkg/apis/scheduling/validation, api/scheduling/v1beta1/types.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from extender.devices.cel.device_selectors import compilation_fault
from extender.model import formats
from extender.model.devices import DeviceClaim
from extender.model.quantity import nano
from extender.offline.manifests.validation import placement, structure, types, volumes
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, texts, with_path

_SPECS = {
    "PodGroup": "V1beta1PodGroupSpec",
    "CompositePodGroup": "V1alpha3CompositePodGroupSpec",
    "PersistentVolumeClaim": "V1PersistentVolumeClaimSpec",
    "ResourceClaim": "V1ResourceClaimSpec",
    "ResourceClaimTemplate": "V1ResourceClaimTemplateSpec",
}
_MOST_GROUP_CLAIMS, _MOST, _MOST_ALTERNATIVES = 4, 32, 8
_LONGEST_SELECTOR = 10 * 1024
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def faults(kind: str, item: Fields) -> Iterator[str]:
    """Yields the faults for which the API server would refuse a pod group or a claim."""
    metadata = fields(item, "metadata")
    if not (metadata.get("name") or metadata.get("generateName")):
        yield "metadata.name: is missing"
    yield from structure.metadata_faults(metadata)
    spec = item.get("spec") or {}
    yield from types.faults(_SPECS[kind], spec, "spec")
    if kind == "PersistentVolumeClaim":
        yield from volumes.claim_spec(spec, "spec")
    elif kind == "ResourceClaim":
        yield from _devices(fields(spec, "devices"), "spec.devices")
    elif kind == "ResourceClaimTemplate":
        yield from placement.label_map(fields(spec, "metadata", "labels"), "spec.metadata.labels")
        yield from _devices(fields(spec, "spec", "devices"), "spec.spec.devices")
    else:
        yield from _group(spec)


def _group(spec: Fields) -> Iterator[str]:
    for parent, field in (("schedulingPolicy", "basic"), ("disruptionMode", "single"), ("disruptionMode", "all")):
        value = fields(spec, parent).get(field)
        if value is not None and value != {}:
            yield f"spec.{parent}.{field}: expected {{}}, because it has no fields, got {value!r}"
    if len(fields(spec, "schedulingConstraints").get("topology") or ()) > 1:
        yield "spec.schedulingConstraints.topology: expected at most 1"
    if len(spec.get("resourceClaims") or ()) > _MOST_GROUP_CLAIMS:
        yield f"spec.resourceClaims: expected at most {_MOST_GROUP_CLAIMS}"
    yield from names(spec, "resourceClaims", "spec", lambda _: None)
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        yield "spec.workloadRef: is missing; parentCompositePodGroupName needs it"


def _devices(devices: Fields, path: str) -> Iterator[str]:
    for field in ("requests", "constraints", "config"):
        yield from _many(devices, field, path, _MOST)
    yield from names(devices, "requests", path, lambda _: None)
    known = set(_request_names(devices))
    for here, request in items(devices, "requests", path):
        yield from _many(request, "firstAvailable", here, _MOST_ALTERNATIVES)
        yield from names(request, "firstAvailable", here, lambda _: None)
        for where, part in (
            (f"{here}.exactly", fields(request, "exactly")),
            *items(request, "firstAvailable", here),
        ):
            yield from _request(part, where)
    for field in ("constraints", "config"):
        for here, each in items(devices, field, path):
            yield from _references(each, known, here)
    for here, constraint in items(devices, "constraints", path):
        yield from _constraint(constraint, here)


def capacity_faults(devices: DeviceClaim, path: str) -> Iterator[str]:
    """Yields the faults in the capacities that requests ask for; before Kubernetes 1.38, none was checked."""
    for number, request in enumerate(devices.requests or ()):
        here = f"{path}.requests[{number}]"
        exactly = [(f"{here}.exactly", request.exactly)] if request.exactly else []
        alternatives = [(f"{here}.firstAvailable[{i}]", each) for i, each in enumerate(request.first_available or ())]
        for where, part in (*exactly, *alternatives):
            amounts = (part.capacity and part.capacity.requests) or {}
            where = f"{where}.capacity.requests"
            if len(amounts) > _MOST:
                yield f"{where}: expected at most {_MOST}, got {len(amounts)}"
                return
            for name, amount in amounts.items():
                domain, slash, identifier = name.rpartition("/")
                if (slash and formats.driver_name(domain)) or not _IDENTIFIER.fullmatch(identifier):
                    yield f"{where}: {name!r} is not a capacity: expected one like memory or example.com/memory"
                if nano(amount) < 0:
                    yield f"{where}[{name}]: expected at least 0, got {amount}"


def _many(parent: Fields, field: str, path: str, most: int) -> Iterator[str]:
    if len(parent.get(field) or ()) > most:
        yield f"{join(path, field)}: expected at most {most}, got {len(parent[field])}"


def _request_names(devices: Fields) -> Iterator[str]:
    for _, request in items(devices, "requests", ""):
        yield request.get("name") or ""
        for _, alternative in items(request, "firstAvailable", ""):
            yield f"{request.get('name') or ''}/{alternative.get('name') or ''}"


def _request(request: Fields, path: str) -> Iterator[str]:
    yield from _many(request, "selectors", path, _MOST)
    mode, count = request.get("allocationMode") or "ExactCount", request.get("count") or 0
    if mode == "All" and count:
        yield f"{path}.count: cannot be set together with allocationMode All"
    if mode == "ExactCount" and count < 0:
        yield f"{path}.count: expected a number of at least 1, got {count}"
    for here, selector in items(request, "selectors", path):
        yield from with_path(f"{here}.cel.expression", _selector_fault(fields(selector, "cel").get("expression")))
    for here, toleration in items(request, "tolerations", path):
        value = toleration.get("value") or ""
        if toleration.get("operator") == "Exists":
            yield from with_path(f"{here}.value", "must be empty for operator Exists" if value else None)
        else:
            yield from with_path(f"{here}.value", formats.label_value(value))


def _selector_fault(expression: str | None) -> str | None:
    if not expression:
        return None  # `types` reports the missing expression
    if len(expression) > _LONGEST_SELECTOR:
        return f"is longer than {_LONGEST_SELECTOR} characters"
    return compilation_fault(expression)


def _references(parent: Fields, known: set[str], path: str) -> Iterator[str]:
    """Yields the faults in the names of requests that a constraint or a configuration lists."""
    seen: set[str] = set()
    for number, name in enumerate(texts(parent, "requests")):
        if name not in known:
            yield f"{path}.requests[{number}]: {name!r} is not the name of a request in the claim"
        if name in seen:
            yield f"{path}.requests[{number}]: {name!r} is given twice"
        seen.add(name)


def _constraint(constraint: Fields, path: str) -> Iterator[str]:
    attributes = [field for field in ("matchAttribute", "distinctAttribute") if constraint.get(field) is not None]
    if not attributes:
        yield f"{path}: expected matchAttribute or distinctAttribute"
    for field in attributes:
        domain, slash, name = constraint[field].partition("/")
        if not slash or formats.driver_name(domain) or not _IDENTIFIER.fullmatch(name):
            yield f"{path}.{field}: {constraint[field]!r} is not an attribute: expected one like example.com/model"
