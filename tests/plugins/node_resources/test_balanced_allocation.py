"""NodeResourcesBalancedAllocation: scores equal upstream's."""

from __future__ import annotations

from typing import Any

from extender.plugins.node_resources.allocation_scores import NodeResourcesBalancedAllocation
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
