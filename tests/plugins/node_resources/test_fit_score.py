"""RequestedToCapacityRatio and what all strategies share; the others are tested with NodeResourcesFit."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.policy_fields import ShapePoint
from extender.plugins.node_resources_scores import (
    NodeResourcesFitScore,
    RequestedToCapacityRatio,
    ResourceWeight,
    Strategy,
    least_allocated,
    most_allocated,
)
from tests.builders import Object, make_node, make_pod
from tests.framework.cluster import scores

GPU = "example.com/gpu"
FILLING = RequestedToCapacityRatio((ShapePoint(0, 0), ShapePoint(100, 10)))


def node(name: str, **resources: str) -> Object:
    return make_node(name).allocatable({GPU: "4"}, cpu="4", memory="4Gi", **resources).obj()


def of(strategy: Strategy, *resources: tuple[str, int]) -> NodeResourcesFitScore:
    return NodeResourcesFitScore(strategy, tuple(ResourceWeight(*resource) for resource in resources))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # cpu 2 of 4 is 50, gpu 1 of 4 is 25
        pytest.param(of(FILLING, ("cpu", 1), (GPU, 3)), (50 + 3 * 25 + 2) // 4, id="weighted and rounded"),
        # (50 + 25) / 2 = 37.5: math.Round goes up
        pytest.param(of(FILLING, ("cpu", 1), (GPU, 1)), 38, id="halves go up"),
        pytest.param(of(FILLING, ("memory", 5), ("cpu", 1)), 50, id="a resource with a score of 0 does not count"),
        pytest.param(of(FILLING, ("example.com/none", 9), ("cpu", 1)), 50, id="nor one that no node offers"),
        pytest.param(of(FILLING, ("pods", 9), ("cpu", 1)), 50, id="nor pods, which are no resource to score by"),
        pytest.param(of(FILLING, ("example.com/none", 9)), 0, id="nothing counts"),
        pytest.param(of(least_allocated, ("pods", 9), ("cpu", 1)), 50, id="the others leave pods out too"),
        pytest.param(of(most_allocated, (GPU, 1)), 25, id="extended resources"),
        pytest.param(of(most_allocated, ("cpu", 1), (GPU, 3)), (50 + 3 * 25) // 4, id="most allocated, weighted"),
        pytest.param(of(least_allocated, ("cpu", 1), (GPU, 3)), (50 + 3 * 75) // 4, id="least allocated, weighted"),
    ],
)
def test_scores(rule: NodeResourcesFitScore, expected: int) -> None:
    pod = make_pod("p").req({GPU: "1"}, cpu="2", memory="0").obj()
    assert scores(rule, pod, node("n")) == {"n": expected}


def test_an_overfull_node_counts_as_full() -> None:
    there = make_pod("there").req(cpu="3").node("n").obj()
    falling = RequestedToCapacityRatio((ShapePoint(0, 10), ShapePoint(100, 2)))
    assert scores(of(falling, ("cpu", 1)), make_pod("p").req(cpu="2").obj(), node("n"), there) == {"n": 20}


@pytest.mark.parametrize("strategy", [FILLING, least_allocated, most_allocated])
def test_an_extended_resource_that_the_pod_does_not_request_does_not_count(strategy: Strategy) -> None:
    rule = of(strategy, (GPU, 9), ("cpu", 1))
    assert scores(rule, make_pod("p").req(cpu="2").obj(), node("n")) == {"n": 50}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strategy", [FILLING, least_allocated, most_allocated])
def test_a_node_without_a_resource_is_scored_by_the_others(strategy: Strategy) -> None:
    pod = make_pod("p").req({GPU: "2"}, cpu="2").obj()
    without = make_node("without").allocatable(cpu="4", memory="4Gi").obj()
    assert scores(of(strategy, (GPU, 1), ("cpu", 1)), pod, node("n"), without) == {"n": 50, "without": 50}


def sized(name: str, cpu: str = "4", memory: str = "10000Mi") -> dict[str, Any]:
    return make_node(name).allocatable(cpu=cpu, memory=memory, pods="10").obj()


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        # cpu: 3000 of 4000 milli asked, 5000 of 10000 MiB on the used node; 0 and 5000 more on the free one
        pytest.param(least_allocated, {"used": (25 + 50) // 2, "free": (75 + 100) // 2}, id="LeastAllocated"),
        pytest.param(most_allocated, {"used": (75 + 50) // 2, "free": (25 + 0) // 2}, id="MostAllocated"),
    ],
)
def test_node_resources_fit(strategy: Any, expected: dict[str, int]) -> None:
    there = make_pod("there").req(cpu="2", memory="5000Mi").node("used").obj()
    pod = make_pod("p").req(cpu="1", memory="0").obj()
    assert scores(NodeResourcesFitScore(strategy), pod, sized("used"), sized("free"), there) == expected


def test_pods_without_requests_count_with_defaults() -> None:
    there = make_pod("there").node("n").obj()
    result = scores(NodeResourcesFitScore(), make_pod("p").obj(), sized("n", cpu="1", memory="1000Mi"), there)
    assert result == {"n": (80 + 60) // 2}


def test_the_score_is_0_beyond_the_capacity() -> None:
    assert scores(NodeResourcesFitScore(), make_pod("p").req(cpu="9", memory="99Gi").obj(), sized("n")) == {"n": 0}
