"""Which change becomes which event."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.events.cluster_events import Change, Resource
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.event_router import RESOURCE_OF
from tests.builders import Builder, make_node
from tests.builders.storage import make_pv
from tests.scheduler.test_loop import node, pod
from tests.scheduler.world import World

NO_KIND = {
    Resource.ASSIGNED_POD,
    Resource.UNSCHEDULED_POD,
    Resource.TARGET_POD,
    Resource.POD,
    Resource.WILDCARD,
}


def test_every_resource_that_rules_register_for_is_routed() -> None:
    assert set(RESOURCE_OF.values()) == set(Resource) - NO_KIND


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the events that the queue hears of."""
    labels: list[str] = []
    move = PriorityQueue.move

    def noted(queue: PriorityQueue, change: Change, **how: Any) -> int:
        labels.append(change.event.label)
        return move(queue, change, **how)

    monkeypatch.setattr(PriorityQueue, "move", noted)
    return labels


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        pytest.param(None, node("n1"), ["NodeAdd"], id="a node comes"),
        pytest.param(node("n1"), node("n1").label(a="b"), ["NodeUpdateNodeLabel"], id="a label"),
        pytest.param(node("n1"), node("n1").taint("a"), ["NodeUpdateNodeTaint"], id="a taint"),
        pytest.param(node("n1"), node("n1", cpu="8"), ["NodeUpdateNodeAllocatable"], id="room"),
        pytest.param(make_node("n1"), make_node("n1"), [], id="nothing that counts"),
        pytest.param(None, make_pv("v"), ["PersistentVolumeAdd"], id="a volume"),
        pytest.param(None, pod("p").node("n1"), ["AssignedPodAdd"], id="a pod on a node"),
        pytest.param(None, pod("p"), [], id="a pod that waits"),
        pytest.param(pod("p"), pod("p").node("n1"), ["AssignedPodAdd"], id="a pod is bound"),
        pytest.param(
            pod("p").node("n1"), pod("p").node("n1").label(a="b"), ["AssignedPodUpdatePodLabel"], id="a pod's label"
        ),
        pytest.param(pod("p").nominated("n1"), pod("p"), ["AssignedPodDelete"], id="a nomination ends"),
    ],
)
def test_changes_and_their_events(
    before: Builder | dict[str, Any] | None, after: Builder | dict[str, Any], events: list[str], moved: list[str]
) -> None:
    world = World(*([before] if before else []))
    moved.clear()
    world.put(after)
    world.watch()
    assert moved == events


def test_a_pod_leaves_its_node(moved: list[str]) -> None:
    world = World(pod("p").node("n1"))
    moved.clear()
    world.delete("Pod", "default/p")
    world.watch()
    assert moved == ["AssignedPodDelete"]
