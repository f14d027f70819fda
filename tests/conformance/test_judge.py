"""The comparison with stock accepts any order among equally important victims, and nothing else."""

from __future__ import annotations

import pytest

from tests.builders import Object, make_node, make_pod
from tests.conformance.deciding import disagreements
from tests.conformance.judge import Victims, same_up_to_ties
from tests.preemption.clusters import victim

PODS: dict[str, Object] = {
    f"default/{name}": victim(name, "n", priority=priority, minute=minute).obj()
    for name, priority, minute in (("a", 1, 1), ("b", 1, 1), ("later", 1, 2), ("higher", 2, 1), ("new", 1, None))
}


def victims(*names: str, violations: int = 0) -> Victims:
    return Victims([f"default/{name}" for name in names], violations)


def test_equally_important_victims_are_the_same() -> None:
    assert same_up_to_ties(victims("higher", "a"), victims("higher", "b"), PODS)


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(victims("later"), id="another start time"),
        pytest.param(victims("higher"), id="another priority"),
        pytest.param(victims("new"), id="a pod that has not started"),
        pytest.param(victims("a", "b"), id="more victims"),
        pytest.param(victims("a", violations=1), id="more violations"),
        pytest.param(None, id="no candidate"),
    ],
)
def test_other_victims_are_a_difference(ours: Victims | None) -> None:
    assert not same_up_to_ties(victims("a"), ours, PODS)
    assert not same_up_to_ties(ours, victims("a"), PODS)


@pytest.mark.parametrize(("reason", "differs"), [("prefilter result", False), ("node(s) were unschedulable", True)])
def test_the_oracle_is_not_believed_about_a_nominated_node_that_prefilter_excludes(reason: str, differs: bool) -> None:
    """kube-scheduler tries such a node alone; the oracle does not."""
    node = make_node("n1").obj()
    pod = make_pod("target").nominated("n1").obj()
    case = {"cluster": {"items": [node]}, "pod": pod}
    refusal = {"code": "UnschedulableAndUnresolvable", "reasons": [reason]}
    stock = {"prefilter": {"code": "Success"}, "filter": {"n1": refusal}}
    assert bool(disagreements(case, stock)) is differs
