"""Checks the fields that limit where a pod may run: selectors, affinity, spread constraints and tolerations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from extender.model import formats
from extender.offline.manifests import schema
from extender.offline.manifests.validation.tree import Fields, fields, items, join, texts, with_path

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST_WEIGHT = 100
_OPERATORS = ("Exists", "Equal", "Gt", "Lt", "")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")


def faults(spec: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
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
        yield from _weight(preferred, here)
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


def _weight(term: Fields, path: str) -> Iterator[str]:
    weight = term.get("weight") or 0
    if not 1 <= weight <= _HIGHEST_WEIGHT:
        yield f"{path}.weight: expected a number from 1 to {_HIGHEST_WEIGHT}, got {weight}"


def _pod_affinity(affinity: Fields, labels: Mapping[str, str], path: str) -> Iterator[str]:
    for here, term in items(affinity, _REQUIRED, path):
        yield from _pod_term(term, labels, here)
    for here, weighted in items(affinity, _PREFERRED, path):
        yield from _weight(weighted, here)
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
