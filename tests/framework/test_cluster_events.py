"""Cluster events: which registrations cover an event, and which events an update causes."""

from __future__ import annotations

import pytest

from extender.framework.cluster_events import Action, ClusterEvent, Resource, node_events, pod_events
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.queue.queueing import info, node

A, R = Action, Resource


@pytest.mark.parametrize(
    ("registered", "happened", "is_met"),
    [
        pytest.param((R.NODE, A.ADD), (R.NODE, A.ADD), True, id="the same"),
        pytest.param((R.NODE, A.ADD | A.UPDATE_NODE_LABEL), (R.NODE, A.UPDATE_NODE_LABEL), True, id="one of several"),
        pytest.param((R.NODE, A.ADD), (R.NODE, A.DELETE), False, id="another action"),
        pytest.param((R.NODE, A.ADD), (R.CSI_NODE, A.ADD), False, id="another resource"),
        pytest.param(
            (R.NODE, A.UPDATE), (R.NODE, A.UPDATE_NODE_TAINT), True, id="a general registration covers a special event"
        ),
        pytest.param((R.NODE, A.UPDATE_NODE_TAINT), (R.NODE, A.UPDATE), False, id="special not of general"),
        pytest.param((R.STORAGE_CLASS, A.ADD | A.UPDATE), (R.STORAGE_CLASS, A.UPDATE), True, id="general of general"),
        pytest.param((R.POD, A.DELETE), (R.ASSIGNED_POD, A.DELETE), True, id="any pod"),
        pytest.param((R.POD, A.UPDATE), (R.TARGET_POD, A.UPDATE_POD_LABEL), True, id="any pod, special"),
        pytest.param((R.ASSIGNED_POD, A.DELETE), (R.UNSCHEDULED_POD, A.DELETE), False, id="another sort of pod"),
        pytest.param((R.WILDCARD, A.ALL), (R.DEVICE_CLASS, A.UPDATE), True, id="everything"),
    ],
)
def test_a_registration_covers_special_cases_of_its_event(
    registered: tuple[Resource, Action], happened: tuple[Resource, Action], is_met: bool
) -> None:
    assert ClusterEvent(*registered).is_met_by(ClusterEvent(*happened)) is is_met


def test_a_registration_for_updates_gets_every_update() -> None:
    updates = {action for action in Action if str(action.name).startswith("UPDATE_")}
    assert set(A.UPDATE) == updates


def test_only_a_placed_pod_that_goes_or_shrinks_frees_room() -> None:
    events = [ClusterEvent(resource, action) for resource in Resource for action in (*Action, Action.UPDATE)]
    assert {event for event in events if event.frees_room} == {
        ClusterEvent(R.ASSIGNED_POD, A.DELETE),
        ClusterEvent(R.ASSIGNED_POD, A.UPDATE_POD_SCALE_DOWN),
    }


@pytest.mark.parametrize(
    ("event", "label"),
    [
        pytest.param(ClusterEvent(R.ASSIGNED_POD, A.DELETE), "AssignedPodDelete", id="pod"),
        pytest.param(ClusterEvent(R.NODE, A.UPDATE_NODE_DECLARED_FEATURE), "NodeUpdateNodeDeclaredFeature", id="node"),
        pytest.param(ClusterEvent(R.CSI_NODE, A.UPDATE), "storage.k8s.io/CSINodeUpdate", id="general update"),
        pytest.param(ClusterEvent(R.WILDCARD, A.ALL, "UnschedulableTimeout"), "UnschedulableTimeout", id="custom"),
    ],
)
def test_labels_are_those_of_kube_scheduler(event: ClusterEvent, label: str) -> None:
    assert event.label == label


def pod() -> PodBuilder:
    return make_pod("p").req(cpu="1")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(pod(), pod().label(a="b"), ["UpdatePodLabel"], id="label"),
        pytest.param(pod(), pod().req(cpu="500m"), ["UpdatePodScaleDown"], id="smaller"),
        pytest.param(pod(), pod().req(cpu="1500m"), ["UpdatePodScaleUp"], id="larger"),
        pytest.param(pod(), pod().req(memory="1Gi"), ["UpdatePodScaleUp"], id="more resources"),
        pytest.param(
            pod(), pod().req(cpu="2", memory="1Gi").label(a="b"), ["UpdatePodLabel", "UpdatePodScaleUp"], id="several"
        ),
        pytest.param(pod().gate("g"), pod(), ["UpdatePodSchedulingGatesEliminated"], id="last gate gone"),
        pytest.param(pod().gate("g").gate("h"), pod().gate("h"), ["Update"], id="one gate of two gone"),
        pytest.param(pod(), pod().toleration("k"), ["UpdatePodToleration"], id="toleration"),
        pytest.param(
            pod(),
            pod().status(resourceClaimStatuses=[{"name": "c", "resourceClaimName": "p-c"}]),
            ["UpdatePodGeneratedResourceClaim"],
            id="claim generated",
        ),
        pytest.param(pod(), pod().nominated("n"), ["Update"], id="nothing special"),
    ],
)
def test_events_of_a_pods_update(old: PodBuilder, new: PodBuilder, expected: list[str]) -> None:
    labels = [event.label for event in pod_events(info(old), info(new), target=True)]
    assert labels == [f"TargetPod{each}" for each in expected]


def test_the_resource_of_a_pods_event() -> None:
    old, new = info(pod()), info(pod().label(a="b"))
    assert pod_events(old, new, target=False)[0].resource is R.UNSCHEDULED_POD
    placed = info(pod().node("n").label(a="b"))
    assert pod_events(info(pod().node("n")), placed, target=False)[0].resource is R.ASSIGNED_POD


def built() -> NodeBuilder:
    return make_node("n")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(built(), built(), [], id="nothing"),
        pytest.param(built(), built().label(a="b"), ["UpdateNodeLabel"], id="label"),
        pytest.param(built(), built().taint("k"), ["UpdateNodeTaint"], id="taint"),
        pytest.param(built().unschedulable(), built(), ["UpdateNodeTaint"], id="uncordoned"),
        pytest.param(built(), built().unschedulable(), [], id="cordoned"),
        pytest.param(
            built().unschedulable(), built().unschedulable().label(a="b"), ["UpdateNodeLabel"], id="still cordoned"
        ),
        pytest.param(built().unschedulable().taint("k"), built(), ["UpdateNodeTaint"], id="both, reported once"),
        pytest.param(built(), built().capacity(cpu="64"), ["UpdateNodeAllocatable"], id="allocatable"),
        pytest.param(built(), built().annotation({"a": "b"}), ["UpdateNodeAnnotation"], id="annotation"),
        pytest.param(built(), built().condition("Ready", "False"), ["UpdateNodeCondition"], id="condition"),
        pytest.param(built(), built().declared_features("F"), ["UpdateNodeDeclaredFeature"], id="features"),
    ],
)
def test_events_of_a_nodes_update(old: NodeBuilder, new: NodeBuilder, expected: list[str]) -> None:
    assert [event.label for event in node_events(node(old), node(new))] == [f"Node{each}" for each in expected]
