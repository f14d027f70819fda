"""NodePorts, InterPodAffinity, PodTopologySpread, and the rules that gate."""

from __future__ import annotations

import pytest

from extender.framework.events.cluster_events import Action, Resource
from tests.builders import ZONE, NodeBuilder, PodBuilder, make_node, make_pod
from tests.plugins.hints.hint_case import helped
from tests.queue.queueing import info, node

WEB = {"app": "web"}


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


def pod_change_helps(rule: str, pod: PodBuilder, old: PodBuilder | None, new: PodBuilder | None) -> bool:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_POD_LABEL
    return helped(
        rule, info(pod), Resource.ASSIGNED_POD, action, info(old) if old else None, info(new) if new else None
    )


def node_change_helps(rule: str, pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder | None) -> bool:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_NODE_LABEL
    return helped(rule, info(pod), Resource.NODE, action, node(old) if old else None, node(new) if new else None)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(other().host_port(80), True, id="the same port"),
        pytest.param(other().host_port(81), False, id="another port"),
        pytest.param(other().host_port(80, "UDP"), False, id="another protocol"),
        pytest.param(other(), False, id="no ports"),
        pytest.param(make_pod("other").host_port(80), False, id="held no place"),
    ],
)
def test_node_ports(left: PodBuilder, expected: bool) -> None:
    assert pod_change_helps("NodePorts", make_pod("p").host_port(80), left, None) is expected


NEAR_WEB = make_pod("p").affinity(ZONE, labels=WEB)
FAR_FROM_WEB = make_pod("p").anti_affinity(ZONE, labels=WEB)


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(NEAR_WEB, None, other(app="web"), True, id="one to be near comes"),
        pytest.param(NEAR_WEB, None, other(app="db"), False, id="somebody else comes"),
        pytest.param(NEAR_WEB, None, make_pod("other").label(WEB), False, id="comes without a place"),
        pytest.param(NEAR_WEB, None, other(app="web").namespace("elsewhere"), False, id="comes in another namespace"),
        pytest.param(NEAR_WEB, other(app="db"), other(app="web"), True, id="relabelled to match"),
        pytest.param(NEAR_WEB, other(app="web"), other(app="web", a="b"), False, id="matched before"),
        pytest.param(NEAR_WEB, other(app="web"), None, False, id="one to be near goes"),
        pytest.param(FAR_FROM_WEB, other(app="web"), None, True, id="one to be far from goes"),
        pytest.param(FAR_FROM_WEB, other(app="db"), None, False, id="somebody else goes"),
        pytest.param(FAR_FROM_WEB, other(app="web"), other(app="db"), True, id="relabelled to be harmless"),
        pytest.param(FAR_FROM_WEB, None, other(app="web"), False, id="one to be far from comes"),
        pytest.param(
            make_pod("p").label(WEB),
            other(app="db").anti_affinity(ZONE, labels=WEB),
            None,
            True,
            id="one that minds goes",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=WEB, namespaceSelector={"matchLabels": {"team": "a"}}),
            None,
            other(app="web").namespace("elsewhere"),
            True,
            id="namespaces by label may be any",
        ),
    ],
)
def test_inter_pod_affinity(pod: PodBuilder, old: PodBuilder | None, new: PodBuilder | None, expected: bool) -> None:
    assert pod_change_helps("InterPodAffinity", pod, old, new) is expected


def zoned(zone: str = "") -> NodeBuilder:
    return make_node("n1").zone(zone) if zone else make_node("n1")


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(NEAR_WEB, None, zoned("a"), True, id="a node with the key comes"),
        pytest.param(NEAR_WEB, None, zoned(), False, id="a node without it comes"),
        pytest.param(NEAR_WEB, zoned(), zoned("a"), True, id="gets the key"),
        pytest.param(NEAR_WEB, zoned("a"), zoned("b"), True, id="changes domains"),
        pytest.param(NEAR_WEB, zoned("a"), zoned(), False, id="loses the key"),
        pytest.param(FAR_FROM_WEB, None, zoned(), True, id="any node comes, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned(), True, id="loses the key, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned(), zoned("a"), False, id="gets the key, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned("b"), True, id="changes domains, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned("a").label(a="b"), False, id="another label"),
    ],
)
def test_inter_pod_affinity_and_nodes(
    pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, expected: bool
) -> None:
    assert node_change_helps("InterPodAffinity", pod, old, new) is expected


SPREAD = make_pod("p").label(WEB, version="2").spread(ZONE, labels=WEB)
SPREAD_BY_VERSION = make_pod("p").label(WEB, version="2").spread(ZONE, labels=WEB, matchLabelKeys=["version"])


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(SPREAD, None, other(app="web"), True, id="a replica comes"),
        pytest.param(SPREAD, other(app="web"), None, True, id="a replica goes"),
        pytest.param(SPREAD, None, other(app="db"), False, id="somebody else comes"),
        pytest.param(SPREAD, None, other(app="web").namespace("elsewhere"), False, id="in another namespace"),
        pytest.param(SPREAD, None, make_pod("other").label(WEB), False, id="without a place"),
        pytest.param(SPREAD, other(app="web"), other(app="db"), True, id="ceases to count"),
        pytest.param(SPREAD, other(app="web"), other(app="web", a="b"), False, id="counts as before"),
        pytest.param(SPREAD_BY_VERSION, None, other(app="web", version="1"), False, id="of another version"),
        pytest.param(SPREAD_BY_VERSION, None, other(app="web", version="2"), True, id="of the same version"),
        pytest.param(make_pod("p"), None, other(app="db"), True, id="default constraints: any pod"),
    ],
)
def test_pod_topology_spread(pod: PodBuilder, old: PodBuilder | None, new: PodBuilder | None, expected: bool) -> None:
    assert pod_change_helps("PodTopologySpread", pod, old, new) is expected


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(SPREAD, None, zoned("a"), True, id="comes with the key"),
        pytest.param(SPREAD, None, zoned(), False, id="comes without"),
        pytest.param(SPREAD, zoned("a"), None, True, id="goes with the key"),
        pytest.param(SPREAD, zoned(), None, False, id="goes without"),
        pytest.param(SPREAD, zoned("a"), zoned(), True, id="loses the key"),
        pytest.param(SPREAD, zoned("a"), zoned("b"), True, id="changes domains"),
        pytest.param(SPREAD, zoned("a"), zoned("a").taint("k"), True, id="changes taints"),
        pytest.param(SPREAD, zoned("a"), zoned("a").label(a="b"), False, id="another label"),
        pytest.param(make_pod("p"), zoned("a"), zoned("b"), True, id="default constraints"),
    ],
)
def test_pod_topology_spread_and_nodes(
    pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder | None, expected: bool
) -> None:
    assert node_change_helps("PodTopologySpread", pod, old, new) is expected


@pytest.mark.parametrize(
    ("new", "action", "expected"),
    [
        pytest.param(SPREAD, Action.UPDATE_POD_LABEL, True, id="comes to count itself"),
        pytest.param(
            make_pod("p").spread(ZONE, labels=WEB, nodeTaintsPolicy="Honor").toleration("k"),
            Action.UPDATE_POD_TOLERATION,
            True,
            id="a toleration that matters",
        ),
        pytest.param(
            make_pod("p").spread(ZONE, labels=WEB).toleration("k"),
            Action.UPDATE_POD_TOLERATION,
            False,
            id="that does not",
        ),
    ],
)
def test_pod_topology_spread_and_the_pod_itself(new: PodBuilder, action: Action, expected: bool) -> None:
    old = info(make_pod("p").spread(ZONE, labels=WEB))
    assert helped("PodTopologySpread", info(new), Resource.TARGET_POD, action, old, info(new)) is expected


def test_preemption_leaves_it_to_the_others() -> None:
    assert not pod_change_helps("DefaultPreemption", make_pod("p"), other(), None)
