"""The interests of rules, and the behaviour if a rule has none or its functions raise."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.cluster_events import (
    NODE_ADD,
    Action,
    Change,
    ClusterEvent,
    Resource,
)
from extender.framework.queueing_hints import (
    AmountLimits,
    Interest,
    Interests,
    QueueingHints,
    Reads,
    reads_names,
)
from extender.plugins.registry import INTERESTS
from extender.queue.entries import QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.queue.queueing import QueueRecorder, info, refused

PODS = (Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD)
ANY = "ADD DELETE UPDATE"
REGISTERED = {
    "DefaultPreemption": {"AssignedPod": "DELETE"},
    "DynamicResources": {
        "TargetPod": "UPDATE_POD_GENERATED_RESOURCE_CLAIM",
        "Node": "ADD UPDATE_NODE_ALLOCATABLE UPDATE_NODE_LABEL",
        "ResourceClaim": ANY,
        "ResourceSlice": "ADD UPDATE",
        "DeviceClass": "ADD UPDATE",
        "DeviceTaintRule": ANY,
    },
    "GangScheduling": {"AssignedPod": "ADD"},
    "InterPodAffinity": {
        "AssignedPod": "ADD DELETE UPDATE_POD_LABEL",
        "TargetPod": "UPDATE_POD_LABEL",
        "Node": "ADD DELETE UPDATE_NODE_LABEL",
        "Namespace": ANY,
    },
    "NodeAffinity": {"Node": "ADD UPDATE_NODE_LABEL"},
    "NodeDeclaredFeatures": {
        "TargetPod": " ".join(str(action.name) for action in Action if str(action.name).startswith("UPDATE_POD_"))
        + " UPDATE",
        "Node": "ADD UPDATE_NODE_DECLARED_FEATURE",
    },
    "NodeName": {"Node": "ADD"},
    "NodePorts": {"AssignedPod": "DELETE", "Node": "ADD"},
    "NodeResourcesFit": {
        "AssignedPod": "DELETE UPDATE_POD_SCALE_DOWN",
        "TargetPod": "UPDATE_POD_SCALE_DOWN",
        "Node": "ADD UPDATE_NODE_ALLOCATABLE",
        "DeviceClass": "ADD UPDATE",
    },
    "NodeUnschedulable": {"TargetPod": "UPDATE_POD_TOLERATION", "Node": "ADD UPDATE_NODE_TAINT"},
    "NodeVolumeLimits": {
        "AssignedPod": "DELETE",
        "Node": "ADD",
        "PersistentVolumeClaim": "ADD",
        "CSINode": "ADD UPDATE",
        "CSIDriver": "DELETE UPDATE",
        "VolumeAttachment": "DELETE",
    },
    "PodTopologySpread": {
        "AssignedPod": "ADD DELETE UPDATE_POD_LABEL",
        "TargetPod": "UPDATE_POD_LABEL UPDATE_POD_TOLERATION",
        "Node": "ADD DELETE UPDATE_NODE_LABEL UPDATE_NODE_TAINT",
        "Service": ANY,
        "ReplicationController": ANY,
        "ReplicaSet": ANY,
        "StatefulSet": ANY,
    },
    "SchedulingGates": {"TargetPod": "UPDATE_POD_SCHEDULING_GATES_ELIMINATED"},
    "TaintToleration": {"TargetPod": "UPDATE_POD_TOLERATION", "Node": "ADD UPDATE_NODE_TAINT"},
    "VolumeBinding": {
        "Node": "ADD UPDATE_NODE_LABEL",
        "PersistentVolume": "ADD UPDATE",
        "PersistentVolumeClaim": "ADD UPDATE",
        "StorageClass": "ADD UPDATE",
        "CSINode": "ADD UPDATE",
        "CSIDriver": "UPDATE",
        "CSIStorageCapacity": "ADD UPDATE",
    },
    "VolumeRestrictions": {"AssignedPod": "DELETE", "Node": "ADD", "PersistentVolumeClaim": "ADD"},
    "VolumeZone": {
        "Node": "ADD UPDATE_NODE_LABEL",
        "PersistentVolume": "ADD UPDATE",
        "PersistentVolumeClaim": "ADD UPDATE",
        "StorageClass": "ADD",
    },
}
"""The changes that may help a pod that the rule refused: kind -> actions."""


def actions_on(resource: Resource) -> list[Action]:
    """Returns the actions that an event about such an object can have."""
    special = "UPDATE_NODE_" if resource is Resource.NODE else "UPDATE_POD_" if resource in PODS else "none"
    return [Action.ADD, Action.DELETE, Action.UPDATE, *(a for a in Action if str(a.name).startswith(special))]


@pytest.mark.parametrize("rule", sorted(INTERESTS))
def test_a_rule_registers_for_exactly_the_changes_that_may_help_its_pods(rule: str) -> None:
    hints = QueueingHints(INTERESTS, lambda rule: None)
    registered: dict[str, set[str]] = {}
    for resource in set(Resource) - {Resource.POD, Resource.WILDCARD}:
        for action in actions_on(resource):
            if hints.interests(rule, ClusterEvent(resource, action)):
                registered.setdefault(resource.value.rpartition("/")[2], set()).add(str(action.name))
    assert registered == {kind: set(actions.split()) for kind, actions in REGISTERED[rule].items()}


def test_any_event_wakes_pods_of_a_rule_that_registered_nothing() -> None:
    hints = QueueingHints(INTERESTS, lambda rule: None)
    assert hints.help_from("MyRule", info("p"), Change(ClusterEvent(Resource.DEVICE_CLASS, Action.UPDATE)))


def test_a_hint_that_raises_does_not_leave_the_pod_waiting() -> None:
    def faulty(_pod: PodInfo, change: Change) -> bool:
        return bool(change.new.no_such_thing)

    recorded = QueueRecorder()
    hints = QueueingHints({"Faulty": Interests((Interest(Resource.NODE, Action.ADD, faulty),))}, recorded.rule_failed)
    assert hints.help_from("Faulty", info("p"), Change(NODE_ADD))
    assert recorded.failed == ["Faulty"]


def raises(*_: object) -> Any:
    raise KeyError("a defect")


@pytest.mark.parametrize(
    "interest",
    [
        pytest.param(Interest(Resource.NODE, Action.ADD, reads=Reads(raises)), id="value"),
        pytest.param(
            Interest(Resource.NODE, Action.ADD, reads=reads_names(raises), about=lambda _: ("n",)), id="names"
        ),
        pytest.param(Interest(Resource.NODE, Action.ADD, reads=reads_names(raises), about=raises), id="about"),
        pytest.param(
            Interest(
                Resource.NODE, Action.ADD, reads=Reads(amounts=raises), limits=lambda *_: AmountLimits(lambda _: 0)
            ),
            id="amounts",
        ),
        pytest.param(
            Interest(Resource.NODE, Action.ADD, reads=Reads(amounts=lambda _: {"cpu": 1}), limits=raises), id="limits"
        ),
    ],
)
def test_an_exception_in_an_index_function_does_not_leave_the_pod_waiting(interest: Interest) -> None:
    recorded = QueueRecorder()
    queue = PriorityQueue(recorded, ManualClock(), {"Faulty": Interests((interest,))})
    queue.add(info("p"))
    popped = queue.pop(0)
    assert isinstance(popped, QueuedPod)
    queue.add_unschedulable(popped, refused("Faulty"))
    assert queue.move(Change(NODE_ADD)) == 1
    assert set(recorded.failed) == {"Faulty"}
