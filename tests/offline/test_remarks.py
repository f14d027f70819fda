"""What an answer says of pods that it judges otherwise than their scheduler would."""

from __future__ import annotations

import pytest

from extender import Cluster, Node, Pod, predicate
from extender.offline.nodes import all_nodes
from extender.offline.state import ClusterState
from extender.policy.loading import read
from extender.snapshots.objects import to_object, with_defaults
from tests.builders import (
    NodeBuilder,
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_resource_claim,
    make_resource_slice,
)

NODE = make_node("n").capacity(cpu="4").obj()
GPU = "example.com/gpu"
URL = "http://127.0.0.1:1/scheduler"
POLICY = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "extenders": [
        {
            "urlPrefix": URL,
            "filterVerb": "filter",
            "managedResources": [{"name": GPU, "ignoredByScheduler": True}],
        }
    ],
}
RULE = "tests.offline.test_remarks:small"
NOTHING = {"disabled": [{"name": "*"}]}
NOT_ASKED = f"the extender {URL} is not asked here: it may refuse or prefer nodes"


@predicate
def small(pod: Pod, node: Node) -> bool:
    return True


def with_policy(*objects: Object) -> Cluster:
    return Cluster.from_objects(objects, read(POLICY).scheduler_profiles())


def test_a_resource_that_the_scheduler_ignores_is_ignored_and_its_extender_is_named() -> None:
    pod = make_pod("p").req({GPU: "1"}).limit({GPU: "1"}).obj()
    explanation = with_policy(NODE, pod).explain(pod)
    assert explanation.decision.feasible == ["n"]
    assert NOT_ASKED in explanation.notes


def test_an_extender_that_would_not_be_asked_about_the_pod_is_not_named() -> None:
    assert with_policy(NODE).explain(make_pod("p").req(cpu="1").obj()).notes == []


def test_simulate_capacity_and_compare_say_that_extenders_are_not_asked() -> None:
    pod = make_pod("p").req({GPU: "1"}).limit({GPU: "1"}).obj()
    cluster = with_policy(NODE, pod)
    assert NOT_ASKED in cluster.simulate().notes
    assert f"Pod default/p: {NOT_ASKED}" in cluster.capacity([pod]).notes
    comparison = Cluster.from_objects([NODE, pod]).compare(POLICY)
    assert (comparison.first.notes, comparison.second.notes) == ([], [NOT_ASKED])


@pytest.mark.parametrize(
    ("point", "pod", "is_noted"),
    [
        ("filter", make_pod("p").resource_claim("gpu").obj(), True),
        ("filter", make_pod("p").obj(), False),
        ("multiPoint", make_pod("p").resource_claim("gpu").obj(), False),
    ],
)
def test_a_note_says_that_a_scheduler_cannot_reserve_devices_without_their_filter(
    point: str, pod: Object, is_noted: bool
) -> None:
    plugins = {point: {"disabled": [{"name": "DynamicResources"}]}}
    policy = read({**POLICY, "extenders": [], "profiles": [{"plugins": plugins}]}).scheduler_profiles()
    cluster = Cluster.from_objects([NODE, make_device_class("gpu"), make_resource_claim("gpu", "gpu"), pod], policy)
    expected = [
        "the policy disables DynamicResources at filter but not at reserve: a scheduler with this policy fails at "
        "Reserve for a pod with a claim to allocate"
    ]
    assert cluster.explain("default/p").fits
    assert cluster.explain("default/p").notes == (expected if is_noted else [])
    assert cluster.simulate().notes == (expected if is_noted else [])


def test_a_device_whose_capacity_has_no_valid_policy_is_left_out_with_a_note_and_the_others_are_used() -> None:
    devices = resource_slice("0"), resource_slice("2")
    claim = make_claim("c", make_request("r", "gpu", capacity={"requests": {"memory": "3"}}))
    pod = make_pod("p").resource_claim("c")
    note = (
        "ResourceSlice gpus-0: device d-0: capacity memory has no valid policy, so no claim gets the device: "
        "validRange.step is 0"
    )
    both = Cluster.from_objects([NODE, make_device_class("gpu"), *devices, claim, pod.obj()])
    assert both.explain("default/p").fits
    assert both.explain("default/p").notes == [note, "fits on d-2 of node n"]
    faulty = Cluster.from_objects([NODE, make_device_class("gpu"), devices[0], claim, pod.obj()])
    assert not faulty.explain("default/p").fits
    assert faulty.explain("default/p").notes == [note]


def resource_slice(step: str) -> Object:
    """One device that may be shared in steps of this size."""
    policy = {"default": "1", "validRange": {"min": "1", "step": step}}
    device = make_device(f"d-{step}", capacity={"memory": {"value": "8", "requestPolicy": policy}})
    built = make_resource_slice("n", "gpu.example.com", {**device, "allowMultipleAllocations": True})
    built["metadata"]["name"] = built["spec"]["pool"]["name"] = f"gpus-{step}"
    return built


def test_pods_of_other_schedulers_are_named_wherever_they_are_judged() -> None:
    pod = make_pod("p").scheduler("other").obj()
    cluster = Cluster.from_objects([NODE, pod])
    assert cluster.explain_pending()[0].blocker == "nothing: does a scheduler named other run?"
    judged = "1 pod with schedulerName other: judged here by the rules of default-scheduler"
    assert cluster.simulate().notes == [judged]
    assert any(judged in note for note in cluster.capacity([pod]).notes)


def test_capacity_says_that_it_ignores_scheduling_gates() -> None:
    assert any(
        "its scheduling gates are ignored" in note
        for note in Cluster.from_objects([NODE]).capacity([make_pod("p").gate("example.com/wait").obj()]).notes
    )


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (make_pod("p").pvc("data").obj(), "PersistentVolumeClaims"),
        (make_pod("p").resource_claim("gpu").obj(), "ResourceClaims"),
    ],
)
def test_a_note_says_that_a_file_has_no_claims(pod: Object, kind: str) -> None:
    notes = Cluster.from_objects([NODE, pod]).explain(pod).notes
    assert [note for note in notes if note.startswith(f"there are no {kind} in this cluster; if it was read")]


@pytest.mark.parametrize(
    "node",
    [
        make_node("n").unschedulable(),
        make_node("n").taint("node.kubernetes.io/unreachable", effect="NoExecute"),
        make_node("n").condition("Ready", "Unknown"),
    ],
)
def test_a_node_that_takes_no_pods_is_not_ready(node: NodeBuilder) -> None:
    objects = with_defaults([obj for obj in [to_object(node.obj(), "node")] if obj])
    assert not all_nodes(ClusterState(objects))["nodes"][0]["ready"]


@pytest.mark.parametrize(
    ("plugins", "asked"),
    [
        pytest.param(
            {"multiPoint": NOTHING, "filter": {"enabled": [{"name": RULE}]}},
            "only the policy's own rules were asked",
            id="rules alone",
        ),
        pytest.param({"multiPoint": NOTHING}, "no filter was asked", id="no plugins"),
        pytest.param({"filter": {"enabled": [{"name": RULE}]}}, None, id="rules beside the in-tree plugins"),
        pytest.param({"filter": {"disabled": [{"name": "NodeName"}]}}, None, id="most in-tree plugins"),
    ],
)
def test_a_policy_without_in_tree_filters_is_said_to_check_nothing_else(plugins: Object, asked: str | None) -> None:
    profiles = read({**POLICY, "extenders": [], "profiles": [{"plugins": plugins}]}).scheduler_profiles()
    pod = make_pod("p").req(cpu="9").obj()
    cluster = Cluster.from_objects([NODE, pod], profiles)
    note = f"profile default-scheduler runs no in-tree filter: {asked}, and room, taints and affinity were not checked"
    expected = [note] if asked else []
    assert cluster.explain("default/p").notes == expected
    assert cluster.simulate().notes == expected
