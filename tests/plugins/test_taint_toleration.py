"""TaintToleration: verdicts and scores equal upstream's; the events that may help."""

from __future__ import annotations

import pytest

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.framework.status import unresolvable
from extender.plugins.taint_toleration import TaintTolerationFilter, TaintTolerationScore
from tests.builders import NodeBuilder, make_node, make_pod
from tests.framework.cluster import refusals, scores
from tests.plugins.hint_case import node_change_helps, waiting_for
from tests.queue.queueing import QueueRecorder, info, node


@pytest.mark.parametrize(
    ("effect", "tolerated", "refused"),
    [
        pytest.param("NoSchedule", False, True, id="NoSchedule"),
        pytest.param("NoExecute", False, True, id="NoExecute"),
        pytest.param("PreferNoSchedule", False, False, id="PreferNoSchedule is no matter of fit"),
        pytest.param("NoSchedule", True, False, id="tolerated"),
    ],
)
def test_taint_toleration(effect: str, tolerated: bool, refused: bool) -> None:
    pod = make_pod("p").toleration("k", operator="Exists").obj() if tolerated else make_pod("p").obj()
    found = refusals(
        TaintTolerationFilter(), pod, make_node("clean").obj(), make_node("n").taint("k", "v", effect).obj()
    )
    assert found == ({"n": unresolvable("TaintToleration", "node(s) had untolerated taint(s)")} if refused else {})


def test_taint_toleration_prefers_fewer_soft_taints() -> None:
    soft = "PreferNoSchedule"
    nodes = [
        make_node("none").obj(),
        make_node("one").taint("a", "", soft).obj(),
        make_node("two").taint("a", "", soft).taint("b", "", soft).obj(),
    ]
    assert scores(TaintTolerationScore(), make_pod("p").obj(), *nodes) == {"none": 100, "one": 50, "two": 0}
    tolerating = make_pod("p").toleration("a", operator="Exists").obj()
    assert scores(TaintTolerationScore(), tolerating, *nodes) == {"none": 100, "one": 100, "two": 0}


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, built(), True, id="added"),
        pytest.param(None, built().taint("gpu"), True, id="added with a taint that is tolerated"),
        pytest.param(None, built().taint("other"), False, id="added with another taint"),
        pytest.param(built().taint("other"), built(), True, id="taint gone"),
        pytest.param(built().taint("gpu"), built(), False, id="tolerated before"),
        pytest.param(None, built().taint("other", effect="PreferNoSchedule"), True, id="a soft taint"),
    ],
)
def test_taints_become_tolerated(old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    pod = make_pod("p").toleration("gpu")
    assert node_change_helps("TaintToleration", pod, old, new, Action.UPDATE_NODE_TAINT) is expected


@pytest.mark.parametrize(
    ("toleration", "taint", "woken"),
    [
        pytest.param({"key": "gpu", "operator": "Exists"}, "gpu=v", True, id="any value"),
        pytest.param({"operator": "Exists"}, "gpu=v", True, id="any key"),
        pytest.param({"key": "gpu", "operator": "Equal", "value": "v"}, "gpu=v", True, id="this value"),
        pytest.param({"key": "gpu", "operator": "Equal", "value": "w"}, "gpu=v", False, id="another value"),
        pytest.param({"key": "other", "operator": "Exists"}, "gpu=v", False, id="another key"),
    ],
)
def test_a_new_node_with_a_taint_wakes_the_pods_that_tolerate_it(
    toleration: dict[str, str], taint: str, woken: bool
) -> None:
    recorded = QueueRecorder()
    pod = info(make_pod("p").spec(tolerations=[toleration]))
    key, _, value = taint.partition("=")
    change = Change(ClusterEvent(Resource.NODE, Action.ADD), None, node(built().taint(key, value)))
    assert (waiting_for("TaintToleration", pod, recorded).move(change), recorded.failed) == (woken, [])
