"""NodeAffinity, Score: scores equal upstream's."""

from __future__ import annotations

import pytest

from extender.errors import RuleFailed
from extender.plugins.node_affinity import NodeAffinityScore
from tests.builders import Object, expression, make_node, make_pod, node_term
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


@pytest.mark.parametrize(
    "term",
    [
        pytest.param(node_term(expression("rank", "Gt", "many")), id="Gt of no number"),
        pytest.param(node_term(expression("rank", "In")), id="In of nothing"),
        pytest.param(node_term(fields=[expression("metadata.name", "Exists")]), id="a field that exists"),
        pytest.param(node_term(fields=[expression("metadata.name", "In", "a", "b")]), id="a field with two values"),
    ],
)
def test_a_malformed_preferred_term_fails_the_pod(term: Object) -> None:
    pod = make_pod("p").prefer_node(1, node_term(expression("disk", "Exists"))).prefer_node(2, term).obj()
    nodes = [make_node("a").label(disk="ssd").obj(), make_node("b").obj()]
    with pytest.raises(RuleFailed, match=r'running PreScore plugin "NodeAffinity": preferred term \[1\]'):
        scores(NodeAffinityScore(), pod, *nodes)
    assert scores(NodeAffinityScore(), make_pod("p").prefer_node(0, term).obj(), *nodes) == {"a": 0, "b": 0}
