"""TaintToleration, NodeAffinity, NodeResourcesFit and BalancedAllocation, ImageLocality: scores as upstream's."""

from __future__ import annotations

from typing import Any

import pytest

from extender.plugins.image_locality import ImageLocality
from extender.plugins.node_affinity.priority import NodeAffinity
from extender.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from extender.plugins.node_resources.fit_score import NodeResourcesFit
from extender.plugins.node_resources.scoring_strategies import least_allocated, most_allocated
from extender.plugins.taint_toleration.priority import TaintToleration
from tests.builders import expression, make_node, make_pod, node_term
from tests.framework.cluster import scores

MIB = 1024 * 1024


def sized(name: str, cpu: str = "4", memory: str = "10000Mi") -> dict[str, Any]:
    return make_node(name).allocatable(cpu=cpu, memory=memory, pods="10").obj()


def test_taint_toleration_prefers_fewer_soft_taints() -> None:
    soft = "PreferNoSchedule"
    nodes = [
        make_node("none").obj(),
        make_node("one").taint("a", "", soft).obj(),
        make_node("two").taint("a", "", soft).taint("b", "", soft).obj(),
    ]
    assert scores(TaintToleration(), make_pod("p").obj(), *nodes) == {"none": 100, "one": 50, "two": 0}
    tolerating = make_pod("p").toleration("a", operator="Exists").obj()
    assert scores(TaintToleration(), tolerating, *nodes) == {"none": 100, "one": 100, "two": 0}


def test_node_affinity_adds_up_weights() -> None:
    nodes = [
        make_node("a").label(disk="ssd").obj(),
        make_node("b").label(disk="ssd", fast="yes").obj(),
        make_node("c").obj(),
    ]
    pod = make_pod("p").prefer_node(3, node_term(expression("disk", "In", "ssd")))
    pod = pod.prefer_node(1, node_term(expression("fast", "Exists"))).prefer_node(9, node_term())
    assert scores(NodeAffinity(), pod.obj(), *nodes, raw=True) == {"a": 3, "b": 4, "c": 0}
    assert scores(NodeAffinity(), pod.obj(), *nodes) == {"a": 75, "b": 100, "c": 0}
    assert scores(NodeAffinity(), make_pod("p").obj(), *nodes) == {}


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
    assert scores(NodeResourcesFit(strategy), pod, sized("used"), sized("free"), there) == expected


def test_node_resources_fit_counts_defaults_for_pods_that_ask_for_nothing() -> None:
    there = make_pod("there").node("n").obj()
    result = scores(NodeResourcesFit(), make_pod("p").obj(), sized("n", cpu="1", memory="1000Mi"), there)
    assert result == {"n": (80 + 60) // 2}


def test_node_resources_fit_is_zero_beyond_what_there_is() -> None:
    assert scores(NodeResourcesFit(), make_pod("p").req(cpu="9", memory="99Gi").obj(), sized("n")) == {"n": 0}


def test_balanced_allocation_prefers_nodes_that_the_pod_evens_out() -> None:
    lopsided = make_pod("there").req(cpu="2").node("lopsided").obj()
    pod = make_pod("p").req(memory="5000Mi").obj()
    result = scores(NodeResourcesBalancedAllocation(), pod, sized("lopsided"), sized("even"), lopsided)
    # lopsided: 75 before, 100 after; even: 100 before, 75 after
    assert result == {"lopsided": 50 + (50 + 100 - 75) // 2, "even": 50 + (50 + 75 - 100) // 2}


def test_balanced_allocation_has_nothing_to_say_of_pods_that_ask_for_nothing() -> None:
    assert scores(NodeResourcesBalancedAllocation(), make_pod("p").obj(), sized("n")) == {}


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param({}, {"a": 0, "b": 0}, id="nowhere"),
        # held by one node of two: half of 423 MiB less the 23 that do not count, of 1000 - 23
        pytest.param({"a": 446 * MIB}, {"a": 100 * 200 // 977, "b": 0}, id="on one node"),
        pytest.param({"a": 5000 * MIB, "b": 5000 * MIB}, {"a": 100, "b": 100}, id="capped"),
        pytest.param({"a": 10 * MIB, "b": 10 * MIB}, {"a": 0, "b": 0}, id="too small to matter"),
    ],
)
def test_image_locality(images: dict[str, int], expected: dict[str, int]) -> None:
    nodes = []
    for name in ("a", "b"):
        node = make_node(name)
        nodes.append((node.image("reg/web:latest", size_bytes=images[name]) if name in images else node).obj())
    assert scores(ImageLocality(), make_pod("p").image("reg/web").obj(), *nodes) == expected
