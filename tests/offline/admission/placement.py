"""Selectors, affinity, spread constraints and tolerations for the generator."""

from __future__ import annotations

from typing import Any

from tests.builders import HOSTNAME, ZONE
from tests.offline.admission.dice import Dice

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_FAULTS = 10


def add(dice: Dice, spec: dict[str, Any], labels: dict[str, str]) -> None:
    """Adds to the spec of a pod with these labels."""
    spec.update(dice.maybe(15, nodeSelector={"disktype": "ssd"}))
    dice.spoil(spec, 2, bad_node_selector_key, bad_node_selector_value)
    affinity: dict[str, Any] = {}
    if dice.chance(20):
        affinity["nodeAffinity"] = _node_affinity(dice)
    for key in ("podAffinity", "podAntiAffinity"):
        if dice.chance(18):
            affinity[key] = _pod_affinity(dice)
    spec.update({"affinity": affinity} if affinity else {})
    if dice.chance(22):
        spec["topologySpreadConstraints"] = [_constraint(dice, key) for key in (ZONE, HOSTNAME)[: dice.one(1, 2)]]
        dice.spoil(spec["topologySpreadConstraints"], _FAULTS, doubled_constraint)
    if dice.chance(30):
        spec["tolerations"] = [_toleration(dice) for _ in range(dice.one(1, 2))]


def bad_node_selector_key(spec: Any) -> None:
    spec["nodeSelector"] = {"a b": "c"}


def bad_node_selector_value(spec: Any) -> None:
    spec["nodeSelector"] = {"a": "b c"}


def _expression(dice: Dice, *operators: str) -> dict[str, Any]:
    operator = dice.one("In", "NotIn", "Exists", "DoesNotExist", *operators)
    values = {"In": ["1", "2"], "NotIn": ["3"], "Gt": ["5"], "Lt": ["7"]}.get(operator)
    expression = {"key": dice.one("tier", "app", ZONE), "operator": operator, **({"values": values} if values else {})}
    dice.spoil(expression, 4, no_values, values_of_exists, bad_key, bad_value, no_key, two_bounds)
    return expression


def no_values(expression: Any) -> None:
    del expression["values"]


def values_of_exists(expression: Any) -> None:
    expression.update(operator="Exists", values=["1"])


def bad_key(expression: Any) -> None:
    expression["key"] = "a/b/c"


def bad_value(expression: Any) -> None:
    expression.update(operator="In", values=["a b"])


def two_bounds(expression: Any) -> None:
    expression.update(values=["1", "2"], operator="Gt" if expression["operator"] in ("Gt", "Lt") else expression["no"])


def no_key(expression: Any) -> None:
    expression["key"] = ""


def _node_affinity(dice: Dice) -> dict[str, Any]:
    term: dict[str, Any] = {"matchExpressions": [_expression(dice, "Gt", "Lt") for _ in range(dice.one(1, 2))]}
    if dice.chance(20):
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
        dice.spoil(term["matchFields"][0], 20, two_names, other_field, exists_field)
    affinity: dict[str, Any] = {}
    if dice.chance(60):
        affinity[_REQUIRED] = {"nodeSelectorTerms": [term]}
        dice.spoil(affinity, 5, no_terms)
    if dice.chance(50):
        affinity[_PREFERRED] = [{"weight": dice.one(1, 50, 100), "preference": term}]
        dice.spoil(affinity[_PREFERRED][0], 8, no_weight, high_weight)
    return affinity


def two_names(expression: Any) -> None:
    expression["values"] = ["n1", "n2"]


def other_field(expression: Any) -> None:
    expression["key"] = "metadata.uid"


def exists_field(expression: Any) -> None:
    expression.update(operator="Exists", values=[])


def no_terms(affinity: Any) -> None:
    affinity[_REQUIRED]["nodeSelectorTerms"] = []


def no_weight(term: Any) -> None:
    term["weight"] = 0


def high_weight(term: Any) -> None:
    term["weight"] = 101


def _selector(dice: Dice) -> dict[str, Any]:
    return {
        **dice.maybe(60, matchLabels={"app": "web"}),
        **dice.maybe(30, matchExpressions=[_expression(dice)]),
    }


def _pod_affinity(dice: Dice) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if dice.chance(70):
        affinity[_REQUIRED] = [_term(dice)]
    if dice.chance(40):
        affinity[_PREFERRED] = [{"weight": dice.one(1, 100), "podAffinityTerm": _term(dice)}]
        dice.spoil(affinity[_PREFERRED][0], 6, no_weight, high_weight)
    return affinity


def _term(dice: Dice) -> dict[str, Any]:
    term = {
        "topologyKey": dice.one(ZONE, HOSTNAME),
        **dice.maybe(90, labelSelector=_selector(dice)),
        **dice.maybe(15, namespaces=["team-a"]),
        **dice.maybe(15, namespaceSelector=_selector(dice)),
        **dice.maybe(25, matchLabelKeys=dice.one(["tier"], ["app"], ["tier", "example.com/team"])),
        **dice.maybe(15, mismatchLabelKeys=dice.one(["example.com/team"], ["tier"])),
    }
    dice.spoil(term, 8, no_topology_key, bad_topology_key, bad_namespace, bad_match_key, doubled_match_key)
    return term


def no_topology_key(term: Any) -> None:
    term["topologyKey"] = ""


def bad_topology_key(term: Any) -> None:
    term["topologyKey"] = "a b"


def bad_namespace(term: Any) -> None:
    term["namespaces"] = ["Team"]


def bad_match_key(term: Any) -> None:
    term["matchLabelKeys"] = ["a b"]


def doubled_match_key(term: Any) -> None:
    term["matchLabelKeys"] = ["tier", "tier"]


def _constraint(dice: Dice, topology_key: str) -> dict[str, Any]:
    constraint = {
        "maxSkew": dice.one(1, 2),
        "topologyKey": topology_key,
        "whenUnsatisfiable": dice.one("DoNotSchedule", "ScheduleAnyway"),
        **dice.maybe(85, labelSelector=_selector(dice)),
        **dice.maybe(25, matchLabelKeys=dice.one(["tier"], ["app"], ["absent"])),
        **dice.maybe(20, nodeAffinityPolicy=dice.one("Honor", "Ignore")),
        **dice.maybe(20, nodeTaintsPolicy=dice.one("Honor", "Ignore")),
    }
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" or dice.chance(5):
        constraint.update(dice.maybe(20, minDomains=dice.one(1, 3)))
    dice.spoil(constraint, _FAULTS, no_skew, no_constraint_key, no_domains, bad_match_key, odd_action)
    return constraint


def doubled_constraint(constraints: Any) -> None:
    constraints.append(dict(constraints[0]))


def no_skew(constraint: Any) -> None:
    constraint["maxSkew"] = 0


def no_constraint_key(constraint: Any) -> None:
    constraint["topologyKey"] = ""


def no_domains(constraint: Any) -> None:
    constraint["minDomains"] = 0


def odd_action(constraint: Any) -> None:
    constraint["whenUnsatisfiable"] = "Never"


def _toleration(dice: Dice) -> dict[str, Any]:
    toleration = dice.one(
        {"key": "app", "operator": "Equal", "value": "web"},
        {"key": "app", "value": "db"},
        {"key": "app", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
    )
    toleration = {**toleration}
    if "effect" not in toleration:
        toleration.update(dice.maybe(50, effect=dice.one("NoSchedule", "NoExecute", "PreferNoSchedule")))
    dice.spoil(
        toleration, 8, no_toleration_key, value_of_exists, bad_toleration_value, seconds, bad_effect, bad_operator
    )
    return toleration


def no_toleration_key(toleration: Any) -> None:
    toleration.update(key="", operator="Equal")


def value_of_exists(toleration: Any) -> None:
    toleration.update(operator="Exists", value="x")


def bad_toleration_value(toleration: Any) -> None:
    toleration.update(key="app", operator="Equal", value="a b")


def seconds(toleration: Any) -> None:
    toleration.update(effect="NoSchedule", tolerationSeconds=5)


def bad_effect(toleration: Any) -> None:
    toleration["effect"] = "Sometimes"


def bad_operator(toleration: Any) -> None:
    toleration["operator"] = "Is"
