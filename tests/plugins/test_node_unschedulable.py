"""NodeUnschedulable: cordoned nodes."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.cluster_events import Action, Resource
from extender.framework.status import unresolvable
from extender.plugins.node_unschedulable import NodeUnschedulable
from tests.builders import NodeBuilder, make_node, make_pod
from tests.framework.cluster import refusals
from tests.plugins.hint_case import helped, node_change_helps
from tests.queue.queueing import info


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        pytest.param(make_pod("p").obj(), True, id="cordoned"),
        pytest.param(
            make_pod("p").toleration("node.kubernetes.io/unschedulable", operator="Exists").obj(), False, id="tolerated"
        ),
        pytest.param(make_pod("p").toleration("other", operator="Exists").obj(), True, id="something else tolerated"),
    ],
)
def test_node_unschedulable(pod: dict[str, Any], refused: bool) -> None:
    found = refusals(NodeUnschedulable(), pod, make_node("open").obj(), make_node("cordoned").unschedulable().obj())
    assert found == ({"cordoned": unresolvable("NodeUnschedulable", "node(s) were unschedulable")} if refused else {})


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, built(), True, id="added"),
        pytest.param(None, built().unschedulable(), False, id="added and cordoned"),
        pytest.param(built().unschedulable(), built(), True, id="uncordoned"),
        pytest.param(built(), built().taint("k"), False, id="open as before"),
    ],
)
def test_a_node_becomes_schedulable(old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    assert node_change_helps("NodeUnschedulable", make_pod("p"), old, new, Action.UPDATE_NODE_TAINT) is expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param("node.kubernetes.io/unschedulable", True, id="the one it takes"),
        pytest.param("other", False, id="another"),
    ],
)
def test_node_unschedulable_and_a_new_toleration(toleration: str, expected: bool) -> None:
    old, new = info("p"), info(make_pod("p").toleration(toleration))
    action = Action.UPDATE_POD_TOLERATION
    assert helped("NodeUnschedulable", new, Resource.TARGET_POD, action, old, new) is expected
