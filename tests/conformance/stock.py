"""The decisions of stock on cases."""

from __future__ import annotations

import copy

from tests.builders import Object
from tests.conformance.cases import VICTIM_GROUPS
from tests.stock.oracle import Oracle

BRIEFLY = "--individually=false"
"""A flag of the oracle: not to run every plugin by itself as well, which takes most of an answer's time."""


_GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")


def gates(kind: str) -> tuple[str, ...]:
    """The flags of the oracle for cases of this kind."""
    on = ",".join(f"{gate}=true" for gate in _GATES)
    return (f"--feature-gates={on}",) if kind == VICTIM_GROUPS else ()


def for_next_server(item: Object) -> Object:
    """Returns a group of a tree as the API server of 1.38 has it: in v1beta1, and with the workload of the tree."""
    if item["kind"] not in ("PodGroup", "CompositePodGroup"):
        return item
    in_tree = item["kind"] == "CompositePodGroup" or "parentCompositePodGroupName" in item["spec"]
    workload = {"workloadRef": {"workloadName": "w", "templateName": "t"}} if in_tree else {}
    return {**item, "apiVersion": "scheduling.k8s.io/v1beta1", "spec": {**workload, **item["spec"]}}


def ask(oracle: Oracle, case: Object, *, is_next: bool = False) -> Object:
    """The stock answer, without what is empty; `is_next` if the oracle is of 1.38."""
    items = [for_next_server(item) if is_next else item for item in case["cluster"]["items"]]
    answer = oracle.answer(items, case["pod"], case.get("config"))
    return {key: value for key, value in answer.items() if value}


def same(first: Object, second: Object) -> bool:
    """Returns whether two answers say the same. Reasons have no order, and preemption takes any of several equals."""
    return _settled(first) == _settled(second)


def _settled(answer: Object) -> Object:
    recorded = {key: copy.deepcopy(value) for key, value in answer.items() if key not in ("nominated", "name")}
    for victims in recorded.get("candidates", {}).values():
        victims["pods"].sort()
    for status in (*recorded.get("filter", {}).values(), recorded.get("prefilter", {})):
        status.get("reasons", []).sort()
    return recorded
