"""Algorithm providers of old."""

from __future__ import annotations

from extender.plugins.registry import default_profile
from extender.policy.policy import PROVIDERS
from tests.builders import make_node, make_pod
from tests.framework.cluster import scores


def test_the_default_provider_is_the_default_profile() -> None:
    assert PROVIDERS["DefaultProvider"]() == default_profile()


def test_the_cluster_autoscaler_provider_prefers_full_nodes_and_is_else_the_same() -> None:
    default, packing = default_profile(), PROVIDERS["ClusterAutoscalerProvider"]()
    assert packing.predicates == default.predicates
    changed = [pair for pair in zip(default.priorities, packing.priorities, strict=True) if pair[0] != pair[1]]
    [(spreading, filling)] = changed
    nodes = [make_node("used").obj(), make_node("free").obj(), make_pod("there").req(cpu="2").node("used").obj()]
    pod = make_pod("p").req(cpu="1").obj()
    by_spreading, by_filling = scores(spreading.priority, pod, *nodes), scores(filling.priority, pod, *nodes)
    assert by_spreading["free"] > by_spreading["used"]
    assert by_filling["used"] > by_filling["free"]
