"""Checks parts of a manifest: requests and limits, and the fields that limit where a pod may run.

Requests and limits have names of resources and amounts, and requests may not exceed limits. The fields that limit where
a pod may run are selectors, affinity, spread constraints and tolerations. The first functions read maps and lists of
manifests, whose fields may be missing or null, and build paths for messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from extender.model import formats
from extender.model.pod import Pod, ResourceRequirements
from extender.model.quantity import Quantity, milli_from_nano, nano, units_from_nano
from extender.model.requests import container_totals, is_extended
from extender.offline.manifests import schema

Fields = Mapping[str, Any]
NameCheck = Callable[[str], str | None]
"""Returns what is wrong with a name; None if nothing is."""


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def fields(parent: Fields, *keys: str) -> Fields:
    """Returns the map that the keys lead to, such as spec.affinity; an empty map if it is missing or null."""
    value: Any = parent
    for key in keys:
        value = value.get(key) or {}
    return value if isinstance(value, Mapping) else {}


def items(parent: Fields, key: str, path: str) -> Iterator[tuple[str, Fields]]:
    """Yields each map in a list together with its path. A null in the list becomes an empty map."""
    for number, item in enumerate(parent.get(key) or ()):
        yield f"{join(path, key)}[{number}]", item or {}


def texts(parent: Fields, key: str) -> list[str]:
    return [text or "" for text in parent.get(key) or ()]


def names(parent: Fields, key: str, path: str, fault: NameCheck, seen: set[str] | None = None) -> Iterator[str]:
    """Yields the faults in the names of a list's items: malformed names and duplicates.

    Args:
        fault: checks the form of a name.
        seen: the names in earlier lists, which also count as duplicates; the names in this list are added.
    """
    seen = set() if seen is None else seen
    for here, item in items(parent, key, path):
        name = item.get("name") or ""
        yield from with_path(join(here, "name"), fault(name) or (f"{name!r} is used twice" if name in seen else None))
        seen.add(name)


def with_path(path: str, fault: str | None) -> Iterator[str]:
    """Yields "path: fault"; yields nothing if `fault` is None."""
    if fault is not None:
        yield f"{path}: {fault}"


Amounts = Mapping[str, Quantity]
_NONE: Amounts = {}


def requirement_faults(requirements: Fields, path: str, fault_of_name: NameCheck) -> Iterator[str]:
    """Yields the unknown resources and impossible amounts in requests and limits, before defaults are filled in."""
    for field in ("limits", "requests"):
        yield from amount_faults(fields(requirements, field), join(path, field), fault_of_name)


def disagreements(requests: Amounts, limits: Amounts, path: str) -> Iterator[str]:
    """Yields requests that exceed their limits, and huge pages without a request for cpu or memory."""
    for name, amount in requests.items():
        yield from with_path(f"{path}.requests.{name}", _against_limit(name, amount, limits))
    names = {*requests, *limits}
    if any(name.startswith(formats.HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        yield f"{path}: {formats.HUGE_PAGES}SIZE can only be requested together with cpu or memory"


def admitted_faults(pod: Pod) -> Iterator[str]:
    """Yields the contradictions between a pod's requests and limits, after all defaults are filled in."""
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for number, container in enumerate(containers):
            resources = container.resources or ResourceRequirements()
            path = f"spec.{field}[{number}].resources"
            yield from disagreements(resources.requests or _NONE, resources.limits or _NONE, path)
    if pod.spec.resources is not None:
        resources = pod.spec.resources
        yield from disagreements(resources.requests or _NONE, resources.limits or _NONE, "spec.resources")
        yield from _of_whole_and_parts(pod, resources)


def _of_whole_and_parts(pod: Pod, whole: ResourceRequirements) -> Iterator[str]:
    """Yields pod-level amounts that are too small for the containers, and containers' limits that are too large."""
    requests, limits = whole.requests or _NONE, whole.limits or _NONE
    for name, nanos in container_totals(pod).items():
        if name in requests and nano(requests[name]) < nanos:
            yield f"spec.resources.requests.{name}: {requests[name]} is less than the containers request together"
    for name, nanos in container_totals(pod, limits=True).items():
        if name.startswith(formats.HUGE_PAGES) and name in limits and nano(limits[name]) < nanos:
            yield f"spec.resources.limits.{name}: {limits[name]} is less than the containers' limits together"
    for number, container in enumerate(pod.containers):
        own = (container.resources.limits if container.resources else None) or _NONE
        for name in limits.keys() & own.keys():
            if nano(own[name]) > nano(limits[name]):
                path = f"spec.containers[{number}].resources.limits.{name}"
                yield f"{path}: {own[name]} is more than the pod's limit of {limits[name]}"


def _against_limit(name: str, amount: Quantity, limits: Amounts) -> str | None:
    is_exact = is_extended(name) or name.startswith(formats.HUGE_PAGES)  # cannot be overcommitted
    if name not in limits:
        return "has no limit; expected a limit of the same amount" if is_exact else None
    if is_exact and nano(amount) != nano(limits[name]):
        return f"{amount} is not equal to its limit of {limits[name]}"
    return f"{amount} is more than its limit of {limits[name]}" if nano(amount) > nano(limits[name]) else None


def amount_faults(amounts: Amounts, path: str, fault_of_name: NameCheck) -> Iterator[str]:
    for name, amount in amounts.items():
        here = join(path, name)
        yield from with_path(here, fault_of_name(name))
        if is_extended(name) and milli_from_nano(nano(amount)) % 1000:
            yield f"{here}: {amount} is not a whole number"
        if name.startswith(formats.HUGE_PAGES) and not _is_of_pages(name, nano(amount)):
            yield f"{here}: {amount} is not a multiple of the size of a page"


def _is_of_pages(name: str, nanos: int) -> bool:
    size = formats.page_bytes(name)
    return size > 0 and units_from_nano(nanos) % size == 0


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("Exists", "Equal", "Gt", "Lt", "")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")


def placement_faults(spec: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    """Yields the faults in a pod spec, except those of its tolerations.

    Args:
        labels: the pod's labels, from which `matchLabelKeys` takes values; empty for a template.
    """
    yield from label_map(fields(spec, "nodeSelector"), join(path, "nodeSelector"))
    affinity, here = fields(spec, "affinity"), join(path, "affinity")
    yield from _node_affinity(fields(affinity, "nodeAffinity"), join(here, "nodeAffinity"))
    for key in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(fields(affinity, key), labels, join(here, key))
    yield from _spread_constraints(spec, labels, path)


def tolerations(spec: Fields, path: str) -> Iterator[str]:
    for here, each in items(spec, "tolerations", path):
        yield from toleration(each, here)


def label_map(labels: Fields, path: str) -> Iterator[str]:
    for key, value in labels.items():
        yield from with_path(f"{path}.{key}", formats.qualified_name(key) or formats.label_value(value or ""))


def label_selector(selector: Fields, path: str) -> Iterator[str]:
    yield from label_map(fields(selector, "matchLabels"), join(path, "matchLabels"))
    for here, expression in items(selector, "matchExpressions", path):
        yield from _expression(expression, here)


def _expression(expression: Fields, path: str, *, checks_values: bool = True) -> Iterator[str]:
    values, operator = texts(expression, "values"), expression.get("operator")
    yield from with_path(join(path, "key"), formats.qualified_name(expression.get("key") or ""))
    if operator in ("In", "NotIn") and not values:
        yield f"{path}.values: is missing; {operator} needs at least one"
    if operator in ("Exists", "DoesNotExist") and values:
        yield f"{path}.values: must be empty for operator {operator}"
    if operator in ("Gt", "Lt") and len(values) != 1:
        yield f"{path}.values: {operator} takes exactly one"
    for number, value in enumerate(values if checks_values else ()):
        yield from with_path(f"{path}.values[{number}]", formats.label_value(value))


def _node_affinity(affinity: Fields, path: str) -> Iterator[str]:
    required = affinity.get(_REQUIRED)
    if required is not None and not required.get("nodeSelectorTerms"):
        yield f"{path}.{_REQUIRED}.nodeSelectorTerms: is empty; expected at least one term"
    for here, term in items(required or {}, "nodeSelectorTerms", join(path, _REQUIRED)):
        yield from _node_term(term, here, is_required=True)
    for here, preferred in items(affinity, _PREFERRED, path):
        yield from _node_term(fields(preferred, "preference"), join(here, "preference"), is_required=False)


def _node_term(term: Fields, path: str, *, is_required: bool) -> Iterator[str]:
    for here, expression in items(term, "matchExpressions", path):
        yield from _expression(expression, here, checks_values=is_required)
    for here, expression in items(term, "matchFields", path):
        yield from _field_expression(expression, here)


def _field_expression(expression: Fields, path: str) -> Iterator[str]:
    values = texts(expression, "values")
    if expression.get("operator") not in ("In", "NotIn"):
        yield f"{path}.operator: expected In or NotIn"
    elif len(values) != 1:
        yield f"{path}.values: expected exactly one"
    if expression.get("key") != "metadata.name":
        yield f"{path}.key: expected metadata.name, the only field of a node that can be selected"
    for number, value in enumerate(values):
        yield from with_path(f"{path}.values[{number}]", formats.dns_subdomain(value))


def _pod_affinity(affinity: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    for here, term in items(affinity, _REQUIRED, path):
        yield from _pod_term(term, labels, here)
    for here, weighted in items(affinity, _PREFERRED, path):
        yield from _pod_term(fields(weighted, "podAffinityTerm"), labels, join(here, "podAffinityTerm"))


def _pod_term(term: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    for key in ("labelSelector", "namespaceSelector"):
        yield from label_selector(fields(term, key), join(path, key))
    for number, namespace in enumerate(texts(term, "namespaces")):
        yield from with_path(f"{path}.namespaces[{number}]", formats.dns_label(namespace))
    yield from with_path(join(path, "topologyKey"), formats.qualified_name(term.get("topologyKey") or ""))
    yield from _label_keys(term, labels, path)


def _label_keys(term: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    """Yields faults of matchLabelKeys and mismatchLabelKeys."""
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if texts(term, field) and term.get("labelSelector") is None:
            yield f"{path}.{field}: needs a labelSelector"
        for number, key in enumerate(texts(term, field)):
            yield from with_path(f"{path}.{field}[{number}]", formats.qualified_name(key))
    mismatched = texts(term, "mismatchLabelKeys")
    for key in dict.fromkeys(texts(term, "matchLabelKeys")):
        if key in mismatched:
            yield f"{path}.matchLabelKeys: {key} is in mismatchLabelKeys too"
        if _is_selected_twice(key, term, labels):
            yield f"{path}.matchLabelKeys: {key} is in the labelSelector too"


def _is_selected_twice(key: str, term: Fields, labels: Mapping[str, str]) -> bool:
    """Returns True if the selector requires `key` several times, at least once in an expression.

    A key in `matchLabelKeys` counts as an expression if the pod has this label, because the API server adds it.
    """
    selector = term.get("labelSelector") or {}
    expressions = Counter(expression.get("key") for _, expression in items(selector, "matchExpressions", ""))
    if key in labels:
        expressions[key] += texts(term, "matchLabelKeys").count(key)
    return expressions[key] > 0 and expressions[key] + (key in fields(selector, "matchLabels")) > 1


def _spread_constraints(spec: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    kinds: Counter[tuple[object, object]] = Counter()
    for here, constraint in items(spec, "topologySpreadConstraints", path):
        kind = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
        kinds[kind] += 1
        if kinds[kind] > 1:
            yield f"{here}: an earlier constraint has the same topologyKey and whenUnsatisfiable"
        if (constraint.get("maxSkew") or 0) < 1:
            yield f"{here}.maxSkew: expected a number of at least 1, got {constraint.get('maxSkew')}"
        if not constraint.get("topologyKey"):
            yield f"{here}.topologyKey: is empty"
        yield from _min_domains(constraint, here)
        yield from label_selector(fields(constraint, "labelSelector"), join(here, "labelSelector"))
        yield from _label_keys(constraint, labels, here)


def _min_domains(constraint: Fields, path: str) -> Iterator[str]:
    domains = constraint.get("minDomains")
    if domains is None:
        return
    if domains < 1:
        yield f"{path}.minDomains: expected a number of at least 1, got {domains}"
    if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        yield f"{path}.minDomains: can only be used with whenUnsatisfiable=DoNotSchedule"


def toleration(written: Fields, path: str) -> Iterator[str]:
    yield from schema.choice(written.get("operator") or "", _OPERATORS, join(path, "operator"))
    yield from schema.choice(written.get("effect") or "", _EFFECTS, join(path, "effect"))
    key, value = written.get("key") or "", written.get("value") or ""
    operator = written.get("operator") or "Equal"
    if key:
        yield from with_path(join(path, "key"), formats.qualified_name(key))
    elif operator != "Exists":
        yield f"{path}.operator: expected Exists, because there is no key"
    if operator in ("Gt", "Lt"):
        yield f"{path}.operator: expected Exists or Equal; {operator} needs a feature gate that is off by default"
    if operator == "Exists" and value:
        yield f"{path}.value: must be empty for operator Exists"
    if operator == "Equal":
        yield from with_path(join(path, "value"), formats.label_value(value))
    if written.get("tolerationSeconds") is not None and written.get("effect") != "NoExecute":
        yield f"{path}.effect: expected NoExecute, because tolerationSeconds is set"
