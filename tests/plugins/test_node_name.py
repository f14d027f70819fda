"""NodeName: the one node that a pod names."""

from __future__ import annotations

from extender.framework.cluster_events import Action
from extender.framework.status import unresolvable
from extender.plugins.node_name import NodeName
from tests.builders import NodeBuilder, make_node, make_pod
from tests.framework.cluster import pod_info, refusals, table_of
from tests.plugins.hint_case import node_change_helps


def test_node_name() -> None:
    nodes = [make_node("a").obj(), make_node("b").obj()]
    refusal = unresolvable("", "node(s) didn't satisfy plugin(s) [NodeName]")
    assert refusals(NodeName(), make_pod("p").node("a").obj(), *nodes) == {"b": refusal}
    assert refusals(NodeName(), make_pod("p").node("ghost").obj(), *nodes) == {"a": refusal, "b": refusal}
    assert refusals(NodeName(), make_pod("p").obj(), *nodes) == {}
    table = table_of(*nodes)
    check = NodeName().prepare(pod_info(make_pod("p").node("a").obj()), table)
    assert check is not None
    [(mask, by_filter)] = check.refuse(table.nodes.rows)
    assert (mask.tolist(), by_filter.reasons) == ([False, True], ("node(s) didn't match the requested node name",))
    for_ghost = NodeName().prepare(pod_info(make_pod("p").node("ghost").obj()), table)
    assert for_ghost is not None
    [(mask, _)] = for_ghost.refuse(table.nodes.rows)
    assert mask.tolist() == [True, True]


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


def test_a_pod_refused_by_node_name_waits_for_a_new_node() -> None:
    assert node_change_helps("NodeName", make_pod("p"), None, built(), Action.UPDATE)
    assert not node_change_helps("NodeName", make_pod("p"), built(), built().label(a="b"), Action.UPDATE_NODE_LABEL)
