"""The choice among candidate nodes, by upstream's criteria in their order."""

from __future__ import annotations

import pytest

from extender.table.features import FeatureGates
from tests.builders import Object, make_pod_group
from tests.preemption.clusters import budget, node, preempted, preemptor, victim

NODES = [node(name).obj() for name in ("a", "b", "c")]
PROTECTED = budget("pdb", 0, {"app": "web"})


@pytest.mark.parametrize(
    ("objects", "best"),
    [
        pytest.param(
            [
                PROTECTED,
                victim("p", "a", "4", 1, app="web").obj(),
                victim("q", "b", "4", 50).obj(),
                victim("r", "c", "4", 1, app="web").obj(),
            ],
            "b",
            id="fewest violations before priority",
        ),
        pytest.param(
            [
                victim("p", "a", "4", 9).obj(),
                victim("q", "b", "2", 8).obj(),
                victim("q2", "b", "2", 8).obj(),
                victim("r", "c", "4", 9).obj(),
            ],
            "b",
            id="lowest highest priority before the sum",
        ),
        pytest.param(
            [
                victim("p", "a", "2", 9).obj(),
                victim("p2", "a", "2", 8).obj(),
                victim("q", "b", "2", 9).obj(),
                victim("q2", "b", "2", 7).obj(),
                victim("r", "c", "2", 9).obj(),
                victim("r2", "c", "2", 8).obj(),
            ],
            "b",
            id="lowest sum of priorities",
        ),
        pytest.param(
            [
                victim("p", "a", "2", -9).obj(),
                victim("p2", "a", "2", -9).obj(),
                victim("q", "b", "4", -9).obj(),
                victim("r", "c", "2", -9).obj(),
                victim("r2", "c", "2", -9).obj(),
            ],
            "b",
            id="fewer victims, though their priority is negative",
        ),
        pytest.param(
            [
                victim("p", "a", "4", minute=5).obj(),
                victim("q", "b", "4", minute=7).obj(),
                victim("r", "c", "4", minute=6).obj(),
            ],
            "b",
            id="latest start",
        ),
        pytest.param(
            [
                victim("p", "a", "2", 5, minute=6).obj(),
                victim("p2", "a", "2", 4, minute=0).obj(),
                victim("q", "b", "2", 5, minute=5).obj(),
                victim("q2", "b", "2", 4, minute=9).obj(),
                victim("r", "c", "4", 9, minute=9).obj(),
            ],
            "a",
            id="latest start of the most important",
        ),
        pytest.param(
            [
                victim("p", "a", "4", minute=59).obj(),
                victim("q", "b", "4", minute=None).obj(),
                victim("r", "c", "4", minute=1).obj(),
            ],
            "b",
            id="one that has not started is the latest",
        ),
        pytest.param(
            [victim("p", "a", "4").obj(), victim("q", "b", "4").obj(), victim("r", "c", "4").obj()],
            "a",
            id="the first of equals",
        ),
    ],
)
def test_the_cheapest_node_is_nominated(objects: list[Object], best: str) -> None:
    assert preempted(preemptor(), *NODES, *objects).nominated_node == best


def test_the_start_of_the_most_important_pod_decides_even_if_a_group_comes_first() -> None:
    """Of a group's victims, the first need not be the one with the highest priority of its own."""
    group = make_pod_group("g", priority=50)
    members = [victim(f"m{on}", on, "2", 8, minute).group("g").obj() for on, minute in (("a", 5), ("b", 5))]
    single = [victim(f"s{on}", on, "2", 9, minute).obj() for on, minute in (("a", 1), ("b", 2))]
    full = victim("full", "c", "4", 200).obj()
    features = FeatureGates(generic_workload=True)
    preemption = preempted(preemptor(), *NODES, group, *members, *single, full, features=features)
    assert preemption.nominated_node == "b"
