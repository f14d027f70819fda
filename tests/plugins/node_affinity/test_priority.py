"""NodeAffinity, Score: as upstream's."""

from __future__ import annotations

from extender.plugins.node_affinity.priority import NodeAffinityScore
from tests.builders import expression, make_node, make_pod, node_term
from tests.framework.cluster import scores


def test_node_affinity_adds_up_weights() -> None:
    nodes = [
        make_node("a").label(disk="ssd").obj(),
        make_node("b").label(disk="ssd", fast="yes").obj(),
        make_node("c").obj(),
    ]
    pod = make_pod("p").prefer_node(3, node_term(expression("disk", "In", "ssd")))
    pod = pod.prefer_node(1, node_term(expression("fast", "Exists"))).prefer_node(9, node_term())
    assert scores(NodeAffinityScore(), pod.obj(), *nodes, raw=True) == {"a": 3, "b": 4, "c": 0}
    assert scores(NodeAffinityScore(), pod.obj(), *nodes) == {"a": 75, "b": 100, "c": 0}
    assert scores(NodeAffinityScore(), make_pod("p").obj(), *nodes) == {}
