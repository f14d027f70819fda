"""PodTopologySpread: the events that may help."""

from __future__ import annotations

import msgspec
import pytest

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.workloads import Service
from extender.queue.entries import QueuedPod
from tests.builders import ZONE, NodeBuilder, Object, PodBuilder, make_node, make_pod, make_service
from tests.plugins.hint_case import helped, node_change_helps, pod_change_helps, waiting_for
from tests.queue.queueing import QueueRecorder, info, node, refused

WEB = {"app": "web"}


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


def zoned(zone: str = "") -> NodeBuilder:
    return make_node("n1").zone(zone) if zone else make_node("n1")


SPREAD = make_pod("p").label(WEB, version="2").spread(ZONE, labels=WEB)
SPREAD_ON_SSD = make_pod("p").label(WEB).spread(ZONE, labels=WEB).node_selector(disk="ssd")


SPREAD_BY_VERSION = make_pod("p").label(WEB, version="2").spread(ZONE, labels=WEB, matchLabelKeys=["version"])


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(SPREAD, None, other(app="web"), True, id="a replica comes"),
        pytest.param(SPREAD, other(app="web"), None, True, id="a replica goes"),
        pytest.param(SPREAD, None, other(app="db"), False, id="another pod comes"),
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
        pytest.param(SPREAD_ON_SSD, zoned("a").label(disk="ssd"), zoned("a"), True, id="counts no longer"),
        pytest.param(SPREAD_ON_SSD, zoned("a"), zoned("a").label(disk="ssd"), False, id="comes to count"),
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
        pytest.param(SPREAD, Action.UPDATE_POD_LABEL, True, id="starts to count itself"),
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


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(make_pod("p"), None, make_service("s", WEB), True, id="a service comes"),
        pytest.param(make_pod("p"), make_service("s", WEB), None, True, id="a service goes"),
        pytest.param(make_pod("p"), make_service("s", WEB), make_service("s", {"a": "b"}), True, id="another selector"),
        pytest.param(make_pod("p"), make_service("s", WEB), make_service("s", WEB), False, id="the same selector"),
        pytest.param(make_pod("p"), None, make_service("s", WEB, namespace="x"), False, id="another namespace"),
        pytest.param(SPREAD, None, make_service("s", WEB), False, id="constraints of the pod's own"),
    ],
)
def test_services_that_select_the_pod(pod: PodBuilder, old: Object | None, new: Object | None, expected: bool) -> None:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    before, after = (each and msgspec.convert(each, Service) for each in (old, new))
    assert helped("PodTopologySpread", info(pod), Resource.SERVICE, action, before, after) is expected


def test_a_node_that_gets_a_topology_key_wakes_only_the_pods_that_spread_over_it() -> None:
    recorded = QueueRecorder()
    queue = waiting_for("PodTopologySpread", info(make_pod("over-racks").spread("rack", labels=WEB)), recorded)
    queue.add(info(make_pod("over-zones").spread(ZONE, labels=WEB)))
    popped = queue.pop(0)
    assert isinstance(popped, QueuedPod)
    queue.add_unschedulable(popped, refused("PodTopologySpread"))
    labelled = Change(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), node(zoned()), node(zoned("z")))
    assert (queue.move(labelled), recorded.failed) == (1, [])
