"""The table of interests, and what happens where it says nothing or says it badly."""

from __future__ import annotations

import pytest

from extender.framework.events.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    Change,
    ClusterEvent,
    Resource,
)
from extender.framework.events.queueing_hints import Interest, Interests, QueueingHints
from extender.plugins.registry import INTERESTS
from extender.table import PodInfo
from tests.queue.queueing import Told, info

POD_RULES = {"InterPodAffinity", "PodTopologySpread"}
ON_DELETE = {"DefaultPreemption", "NodePorts", "NodeResourcesFit", "NodeVolumeLimits", "VolumeRestrictions"} | POD_RULES
NODE_RULES = {"NodeAffinity", "NodeDeclaredFeatures", "NodeName", "NodeUnschedulable", "TaintToleration"}
ON_NODE_ADD = (
    set(INTERESTS) - {"DefaultPreemption", "GangScheduling", "NodeVolumeLimits", "SchedulingGates"}
) | NODE_RULES


def hearing(event: ClusterEvent) -> set[str]:
    hints = QueueingHints(INTERESTS, lambda rule: None)
    return {rule for rule in INTERESTS if hints.interests(rule, event)}


@pytest.mark.parametrize(
    ("event", "rules"),
    [
        pytest.param(ASSIGNED_POD_DELETE, ON_DELETE, id="a pod leaves"),
        pytest.param(ASSIGNED_POD_ADD, POD_RULES, id="a pod is bound"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE), set(), id="a pod's status"),
        pytest.param(NODE_ADD, ON_NODE_ADD, id="a node comes"),
        pytest.param(ClusterEvent(Resource.NODE, Action.DELETE), {"PodTopologySpread"}, id="a node goes"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_CONDITION), set(), id="a heartbeat"),
        pytest.param(
            ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
            {"NodeResourcesFit", "DynamicResources"},
            id="grows",
        ),
        pytest.param(
            ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
            {"SchedulingGates", "NodeDeclaredFeatures"},
            id="the last gate goes",
        ),
        pytest.param(ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD), set(), id="a pod is created"),
    ],
)
def test_who_hears_of_the_frequent_events(event: ClusterEvent, rules: set[str]) -> None:
    assert hearing(event) == rules


def test_a_rule_that_registered_nothing_hears_of_everything() -> None:
    hints = QueueingHints(INTERESTS, lambda rule: None)
    assert hints.help_from("MyRule", info("p"), Change(ClusterEvent(Resource.DEVICE_CLASS, Action.UPDATE)))


def test_a_hint_that_raises_does_not_leave_the_pod_waiting() -> None:
    def faulty(_pod: PodInfo, change: Change) -> bool:
        return bool(change.new.no_such_thing)

    told = Told()
    rule = Interests((Interest(Resource.NODE, Action.ADD, faulty),), alike=lambda pod: 1 // 0)
    hints = QueueingHints({"Faulty": rule}, told.rule_failed)
    assert hints.help_from("Faulty", info("p"), Change(NODE_ADD))
    assert hints.alike("Faulty", info("p")) == info("p").uid
    assert told.failed == ["Faulty", "Faulty"]
