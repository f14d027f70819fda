"""NodeAffinity, NodeName, NodeUnschedulable, TaintToleration, NodeDeclaredFeatures, NodeResourcesFit."""

from __future__ import annotations

import pytest

from extender.framework.events.cluster_events import Action, Resource
from tests.builders import NodeBuilder, PodBuilder, expression, make_node, make_pod, node_term
from tests.plugins.hints.hint_case import helped
from tests.queue.queueing import info, node

ON_SSD = make_pod("p").require_node(node_term(expression("disk", "In", "ssd")))
ON_N1 = make_pod("p").require_node(node_term(fields=[expression("metadata.name", "In", "n1")]))


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


def node_change_helps(rule: str, pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, update: Action) -> bool:
    action = update if old else Action.ADD
    return helped(rule, info(pod), Resource.NODE, action, node(old) if old else None, node(new))


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(make_pod("p").node_selector(disk="ssd"), None, built().label(disk="ssd"), True, id="selected"),
        pytest.param(make_pod("p").node_selector(disk="ssd"), None, built(), False, id="not selected"),
        pytest.param(ON_SSD, None, built().label(disk="ssd"), True, id="affinity"),
        pytest.param(ON_SSD, built(), built().label(disk="ssd"), True, id="labelled"),
        pytest.param(ON_SSD, built().label(disk="ssd"), built().label(disk="ssd", a="b"), False, id="matched before"),
        pytest.param(ON_SSD, built().label(disk="ssd"), built().label(disk="hdd"), False, id="no longer"),
        pytest.param(ON_N1, None, built("n1"), True, id="by name"),
        pytest.param(ON_N1, None, built("n2"), False, id="another name"),
        pytest.param(make_pod("p").require_node({}), None, built(), False, id="an empty term matches nothing"),
        pytest.param(make_pod("p").node_selector(disk="ssd").require_node({}), None, built(), False, id="both must"),
    ],
)
def test_node_affinity(pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    assert node_change_helps("NodeAffinity", pod, old, new, Action.UPDATE_NODE_LABEL) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, built(), True, id="added"),
        pytest.param(None, built().unschedulable(), False, id="added and cordoned"),
        pytest.param(built().unschedulable(), built(), True, id="uncordoned"),
        pytest.param(built(), built().taint("k"), False, id="open as before"),
    ],
)
def test_node_unschedulable(old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
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
def test_taint_toleration(old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    pod = make_pod("p").toleration("gpu")
    assert node_change_helps("TaintToleration", pod, old, new, Action.UPDATE_NODE_TAINT) is expected


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        pytest.param(None, True, id="added"),
        pytest.param(built(), True, id="more features"),
        pytest.param(built().declared_features("F"), False, id="the same features"),
    ],
)
def test_node_declared_features(old: NodeBuilder | None, expected: bool) -> None:
    new = built().declared_features("F")
    action = Action.UPDATE_NODE_DECLARED_FEATURE
    assert node_change_helps("NodeDeclaredFeatures", make_pod("p"), old, new, action) is expected


def test_node_name_waits_for_any_node() -> None:
    assert node_change_helps("NodeName", make_pod("p"), None, built(), Action.UPDATE)
    assert not node_change_helps("NodeName", make_pod("p"), built(), built().label(a="b"), Action.UPDATE_NODE_LABEL)


WANTS_2_CPU = make_pod("p").req(cpu="2")
WANTS_A_GPU = make_pod("p").req({"example.com/gpu": "1"})


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(WANTS_2_CPU, None, built().capacity(cpu="2"), True, id="fits"),
        pytest.param(WANTS_2_CPU, None, built().capacity(cpu="1"), False, id="too small"),
        pytest.param(WANTS_2_CPU, None, built().capacity(pods="0"), False, id="takes no pods"),
        pytest.param(WANTS_2_CPU, built().capacity(cpu="1"), built().capacity(cpu="2"), True, id="grows"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(memory="32Gi"), False, id="grows in what is not wanted"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(pods="200"), True, id="takes more pods"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(cpu="3"), False, id="shrinks"),
        pytest.param(WANTS_A_GPU, None, built(), True, id="a device may stand for the resource"),
        pytest.param(WANTS_A_GPU, None, built().capacity({"example.com/gpu": "0"}), False, id="reported, and none"),
    ],
)
def test_node_resources_fit(pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    assert node_change_helps("NodeResourcesFit", pod, old, new, Action.UPDATE_NODE_ALLOCATABLE) is expected


@pytest.mark.parametrize(
    ("left", "free", "expected"),
    [
        pytest.param(make_pod("o").node("n1"), None, True, id="who knows what is free"),
        pytest.param(make_pod("o").nominated("n1"), None, True, id="only nominated"),
        pytest.param(make_pod("o"), None, False, id="held no place"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 2000, "pods": 1}, True, id="enough"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 1999, "pods": 1}, False, id="not enough"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 2000, "pods": 0}, False, id="too many pods"),
    ],
)
def test_node_resources_fit_when_a_pod_leaves(left: PodBuilder, free: dict[str, int] | None, expected: bool) -> None:
    room = None if free is None else lambda priority: free
    assert (
        helped("NodeResourcesFit", info(WANTS_2_CPU), Resource.ASSIGNED_POD, Action.DELETE, info(left), room=room)
        is expected
    )


def test_what_is_free_depends_on_the_priority() -> None:
    def room(priority: int) -> dict[str, int]:
        return {"cpu": 4000 if priority > 5 else 0, "pods": 1}

    left, action = info(make_pod("o").node("n1")), Action.DELETE
    for priority, expected in ((9, True), (1, False)):
        pod = info(make_pod("p").req(cpu="2").priority(priority))
        assert helped("NodeResourcesFit", pod, Resource.ASSIGNED_POD, action, left, room=room) is expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [pytest.param("cpu", True, id="wanted too"), pytest.param("memory", False, id="not wanted")],
)
def test_node_resources_fit_when_another_pod_shrinks(resource: str, expected: bool) -> None:
    old = info(make_pod("o").node("n1").req({resource: "4"}))
    new = info(make_pod("o").node("n1").req({resource: "1"}))
    action = Action.UPDATE_POD_SCALE_DOWN
    assert helped("NodeResourcesFit", info(WANTS_2_CPU), Resource.ASSIGNED_POD, action, old, new) is expected


def test_a_device_class_may_offer_the_resource() -> None:
    for pod, expected in ((WANTS_A_GPU, True), (WANTS_2_CPU, False)):
        assert helped("NodeResourcesFit", info(pod), Resource.DEVICE_CLASS, Action.ADD) is expected
