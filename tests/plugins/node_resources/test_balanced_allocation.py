"""NodeResourcesBalancedAllocation: scores equal upstream's."""

from __future__ import annotations

from typing import Any

from extender.plugins.node_resources_scores import NodeResourcesBalancedAllocation, ResourceWeight
from tests.builders import make_node, make_pod
from tests.framework.cluster import scores


def sized(name: str, cpu: str = "4", memory: str = "10000Mi") -> dict[str, Any]:
    return make_node(name).allocatable(cpu=cpu, memory=memory, pods="10").obj()


def test_balanced_allocation_prefers_nodes_that_the_pod_balances() -> None:
    lopsided = make_pod("there").req(cpu="2").node("lopsided").obj()
    pod = make_pod("p").req(memory="5000Mi").obj()
    result = scores(NodeResourcesBalancedAllocation(), pod, sized("lopsided"), sized("even"), lopsided)
    # lopsided: 75 before, 100 after; even: 100 before, 75 after
    assert result == {"lopsided": 50 + (50 + 100 - 75) // 2, "even": 50 + (50 + 75 - 100) // 2}


def test_balanced_allocation_does_not_apply_to_pods_without_requests() -> None:
    assert scores(NodeResourcesBalancedAllocation(), make_pod("p").obj(), sized("n")) == {}


def test_a_resource_that_the_node_does_not_offer_leaves_the_balance_of_the_others_unchanged() -> None:
    requests = {"cpu": "2", "memory": "2000Mi", "example.com/a": "8"}
    names = ("cpu", "memory", "example.com/a", "example.com/b")
    rule = NodeResourcesBalancedAllocation(tuple(ResourceWeight(name) for name in names))
    offered = {"cpu": "4", "memory": "10000Mi", "example.com/a": "10", "pods": "10"}
    nodes = [make_node("three").allocatable(offered), make_node("four").allocatable({**offered, "example.com/b": "2"})]
    result = scores(rule, make_pod("p").req({**requests, "example.com/b": "1"}).obj(), *(node.obj() for node in nodes))
    # 0.5, 0.2 and 0.8 have a standard deviation of 0.245, with a second 0.5 one of 0.212; 100 before the pod
    assert result == {"three": 50 + (50 + 75 - 100) // 2, "four": 50 + (50 + 78 - 100) // 2}


def test_no_nodes_have_no_scores_for_any_number_of_resources() -> None:
    pod = make_pod("p").req(cpu="1", memory="1Gi").obj()
    for names in (("memory",), ("cpu", "memory"), ("cpu", "memory", "example.com/a")):
        rule = NodeResourcesBalancedAllocation(tuple(ResourceWeight(name) for name in names))
        assert scores(rule, pod) == {}
