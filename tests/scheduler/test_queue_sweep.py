"""The queue is made to hold the pods that wait, whatever was lost on the way to it."""

from __future__ import annotations

import pytest

from extender.errors import OutcomeUnknown
from extender.queue.entries import Tier
from extender.scheduler.event_router import EventRouter
from tests.scheduler.test_loop import node, pod, waiting
from tests.scheduler.world import NAME, World


@pytest.fixture
def world() -> World:
    """A pod that waits, for it fits nowhere."""
    world = World(node("n1", cpu="1"), pod("p", cpu="2"))
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    return world


def queued(world: World) -> list[str]:
    return sorted(info.pod.name for infos in world.queue.pods().values() for info in infos)


def test_a_waiting_pod_that_the_queue_has_lost_is_added_at_the_second_look(world: World) -> None:
    world.queue.delete("p")
    world.sweep.run()
    assert queued(world) == []
    world.sweep.run()
    assert queued(world) == ["p"]


def test_a_pod_whose_deletion_the_queue_missed_is_deleted_at_the_second_look(world: World) -> None:
    world.cache.listen(None)
    world.delete("Pod", "default/p")
    world.watch()
    world.sweep.run()
    assert queued(world) == ["p"]
    world.sweep.run()
    assert queued(world) == []


def test_pods_that_wait_are_scheduled_or_belong_to_others_are_left_alone(world: World) -> None:
    world.put(pod("gated").gate("example.com/wait"))
    world.put(pod("theirs").scheduler("another"))
    world.put(pod("flying", cpu="500m"))
    world.watch()
    world.attempt()
    for _ in range(3):
        world.sweep.run()
    assert queued(world) == ["gated", "p"]
    assert [info.pod.name for info in world.queue.pods_in_flight()] == ["flying"]


def test_a_terminating_pod_that_was_tried_is_not_added_again(world: World) -> None:
    assert world.mark_victim(world.pod("p"), "")
    assert world.delete_victim(world.pod("p"))
    world.settle()
    world.queue.activate(["p"])
    world.settle()
    assert queued(world) == []
    for _ in range(3):
        world.sweep.run()
    assert queued(world) == []


@pytest.mark.parametrize("faults", [[], [OutcomeUnknown("silence")]], ids=["answered", "without an answer"])
def test_a_pod_whose_bind_the_watch_has_not_shown_yet_is_not_queued_again(faults: list[Exception]) -> None:
    world = World(node("n1"), pod("p"))
    world.faults += faults
    world.attempt()
    world.binders.work()
    for _ in range(3):
        world.sweep.run()
    assert (queued(world), world.queue.pods_in_flight()) == ([], [])


def test_every_rejected_pod_is_tried_again_after_events_were_missed(world: World) -> None:
    attempts = len(world.telemetry.results)
    EventRouter(world.cache, world.queue, [NAME]).missed()
    world.pass_time(5)
    assert len(world.telemetry.results) == attempts + 1
