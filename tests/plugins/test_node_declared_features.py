"""NodeDeclaredFeatures: nodes must declare the features that pods need."""

from __future__ import annotations

import pytest

from extender.framework.cluster_events import Action, Resource
from extender.framework.status import unresolvable
from extender.plugins.node_declared_features import REFUSAL, NodeDeclaredFeatures
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pod
from tests.framework.cluster import refusals
from tests.plugins.hint_case import helped, node_change_helps
from tests.queue.queueing import info

RESTART, USERS, MOUNT = (
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
)
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]


@pytest.mark.parametrize(
    ("pod", "needed"),
    [
        pytest.param(make_pod("p").obj(), set(), id="nothing"),
        pytest.param(make_pod("p").first_container(restartPolicyRules=RULES).obj(), {RESTART}, id="restart all"),
        pytest.param(
            make_pod("p").first_container(restartPolicyRules=[{"action": "Restart"}]).obj(), set(), id="restart one"
        ),
        pytest.param(
            make_pod("p").spec(initContainers=[{"name": "i", "restartPolicyRules": RULES}]).obj(),
            {RESTART},
            id="restart all from an init container",
        ),
        pytest.param(
            make_pod("p").spec(hostNetwork=True, hostUsers=False).obj(), {USERS}, id="own users on the host's network"
        ),
        pytest.param(make_pod("p").spec(hostNetwork=True).obj(), set(), id="host's network"),
        pytest.param(make_pod("p").spec(hostUsers=False).obj(), set(), id="own users"),
        pytest.param(
            make_pod("p").first_container(volumeMounts=[{"name": "v", "bindMountOptions": ["noexec"]}]).obj(),
            {MOUNT},
            id="mount options",
        ),
        pytest.param(make_pod("p").first_container(volumeMounts=[{"name": "v"}]).obj(), set(), id="plain mount"),
    ],
)
def test_a_node_must_declare_the_features_that_a_pod_needs(pod: Object, needed: set[str]) -> None:
    nodes = [
        make_node(f"without-{name}").declared_features(*({RESTART, USERS, MOUNT} - {name})).obj()
        for name in (RESTART, USERS, MOUNT)
    ]
    assert refusals(NodeDeclaredFeatures(), pod, *nodes) == {f"without-{name}": REFUSAL for name in needed}


def test_a_node_may_declare_a_feature_later() -> None:
    pod = make_pod("p").first_container(restartPolicyRules=RULES).obj()
    refused = unresolvable("NodeDeclaredFeatures", "node(s) didn't match Pod's required features")
    assert refusals(NodeDeclaredFeatures(), pod, make_node("n").obj()) == {"n": refused}
    assert refusals(NodeDeclaredFeatures(), pod, make_node("n").declared_features(RESTART).obj()) == {}


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        pytest.param(None, True, id="added"),
        pytest.param(built(), True, id="more features"),
        pytest.param(built().declared_features("F"), False, id="the same features"),
    ],
)
def test_features_change(old: NodeBuilder | None, expected: bool) -> None:
    new = built().declared_features("F")
    action = Action.UPDATE_NODE_DECLARED_FEATURE
    assert node_change_helps("NodeDeclaredFeatures", make_pod("p"), old, new, action) is expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(make_pod("p").nominated("n1"), False, id="the same needs"),
        pytest.param(make_pod("p").first_container(restartPolicyRules=RULES), True, id="more needs"),
    ],
)
def test_needs_change(new: PodBuilder, expected: bool) -> None:
    """The condition that the first attempt writes is an update too, and must not wake the pod."""
    old = info(make_pod("p"))
    assert helped("NodeDeclaredFeatures", old, Resource.TARGET_POD, Action.UPDATE, old, info(new)) is expected
