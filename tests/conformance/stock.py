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


def ask(oracle: Oracle, case: Object) -> Object:
    """The stock answer, without what is empty."""
    answer = oracle.answer(case["cluster"]["items"], case["pod"], case.get("config"))
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
