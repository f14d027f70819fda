"""The interests of rules, and the behaviour if a rule has none or its functions raise."""

from __future__ import annotations

from typing import Any

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
from extender.framework.events.queueing_hints import (
    AmountLimits,
    Interest,
    Interests,
    QueueingHints,
    Reads,
    reads_names,
)
from extender.plugins.registry import INTERESTS
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.queue.queueing import Told, info, refused

POD_RULES = {"InterPodAffinity", "PodTopologySpread"}
ON_DELETE = {"DefaultPreemption", "NodePorts", "NodeResourcesFit", "NodeVolumeLimits", "VolumeRestrictions"} | POD_RULES
NODE_RULES = {"NodeAffinity", "NodeDeclaredFeatures", "NodeName", "NodeUnschedulable", "TaintToleration"}
ON_NODE_ADD = (set(INTERESTS) - {"DefaultPreemption", "GangScheduling", "SchedulingGates"}) | NODE_RULES


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
        pytest.param(ClusterEvent(Resource.NODE, Action.DELETE), POD_RULES, id="a node goes"),
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
def test_only_some_rules_register_for_frequent_events(event: ClusterEvent, rules: set[str]) -> None:
    assert hearing(event) == rules


def test_any_event_wakes_pods_of_a_rule_that_registered_nothing() -> None:
    hints = QueueingHints(INTERESTS, lambda rule: None)
    assert hints.help_from("MyRule", info("p"), Change(ClusterEvent(Resource.DEVICE_CLASS, Action.UPDATE)))


def test_a_hint_that_raises_does_not_leave_the_pod_waiting() -> None:
    def faulty(_pod: PodInfo, change: Change) -> bool:
        return bool(change.new.no_such_thing)

    told = Told()
    hints = QueueingHints({"Faulty": Interests((Interest(Resource.NODE, Action.ADD, faulty),))}, told.rule_failed)
    assert hints.help_from("Faulty", info("p"), Change(NODE_ADD))
    assert told.failed == ["Faulty"]


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
    told = Told()
    queue = PriorityQueue(told, ManualClock(), {"Faulty": Interests((interest,))})
    queue.add(info("p"))
    popped = queue.pop(0)
    assert popped is not None
    queue.add_unschedulable(popped, refused("Faulty"))
    assert queue.move(Change(NODE_ADD)) == 1
    assert set(told.failed) == {"Faulty"}
