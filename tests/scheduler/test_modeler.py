"""The picture of all pods: right in each state, and never torn."""

from __future__ import annotations

import threading
from collections import Counter

import msgspec
import pytest

from extender.cache.observed import PodOverview
from extender.errors import OutcomeUnknown
from extender.scheduler.modeler import Modeler, PodView, QueueStatus
from tests.scheduler.test_loop import node, pod
from tests.scheduler.world import NAME, World

SECTIONS = [name for name in QueueStatus.__struct_fields__ if name not in ("scheduled", "leading")]


def modeler(world: World) -> Modeler:
    return Modeler(world.cache, world.queue, world.clock, [NAME])


def sections(world: World) -> dict[str, list[str]]:
    """The sections that are not empty, by the names of their pods."""
    picture = modeler(world).status(leading=True)
    return {name: [view.name for view in views] for name in SECTIONS if (views := getattr(picture, name))}


def only(world: World, section: str) -> PodView:
    (view,) = getattr(modeler(world).status(leading=True), section)
    assert isinstance(view, PodView)
    return view


def test_a_pod_on_its_way_from_the_queue_to_its_node() -> None:
    world = World(node("n", cpu="1"), pod("p").priority(7))
    assert sections(world) == {"active": ["p"]}
    assert (only(world, "active").node, only(world, "active").nominated_node) == ("", "")
    world.clock.advance(3)
    assert (only(world, "active").since_seconds, only(world, "active").priority) == (3.0, 7)
    world.attempt()
    assert sections(world) == {"assumed": ["p"]}
    assert (only(world, "assumed").node, only(world, "assumed").attempts) == ("n", 1)
    world.binders.work()
    assert sections(world) == {"assumed": ["p"]}
    world.watch()
    assert sections(world) == {}
    assert modeler(world).status(leading=True).scheduled == 1


def test_a_pod_in_flight_is_in_no_tier() -> None:
    world = World(node("n", cpu="1"), pod("p"))
    popped = world.queue.pop(0)
    assert popped is not None
    assert sections(world) == {"in_flight": ["p"]}


def test_a_pod_that_found_no_place_says_who_refused_it() -> None:
    world = World(node("n", cpu="1"), pod("p").req(cpu="2"))
    world.settle()
    world.clock.advance(60)
    view = only(world, "unschedulable")
    assert (view.refused_by, view.attempts, view.since_seconds) == (["NodeResourcesFit"], 1, 60.0)


def test_a_gated_pod_names_its_gate() -> None:
    world = World(node("n", cpu="1"), pod("p").gate("wait"))
    view = only(world, "gated")
    assert (view.refused_by, view.waits_for) == (["SchedulingGates"], "waiting for scheduling gates: wait")


def test_a_preemptor_names_the_node_that_it_waits_for() -> None:
    world = World(node("n", cpu="1"), pod("v").req(cpu="1").node("n").priority(1), pod("p").req(cpu="1").priority(9))
    world.settle()
    assert only(world, "unschedulable").nominated_node == "n"


def test_a_pod_of_unknown_outcome_is_assumed_whatever_else_becomes_of_it() -> None:
    """The watch may deliver it first, so that it is in the queue again."""
    world = World(node("n", cpu="1"), pod("p"))
    world.attempt()
    world.faults.append(OutcomeUnknown("no answer"))
    world.binders.work()
    world.put(pod("p").label(touched="yes"))
    world.watch()
    assert sections(world) == {"assumed": ["p"]}


def test_a_pod_that_the_queue_has_yet_to_hear_of_is_arriving() -> None:
    world = World(node("n", cpu="1"))
    world.cache.listen(None)
    world.put(pod("p"))
    world.put(pod("theirs").scheduler("another"))
    world.watch()
    assert sections(world) == {"arriving": ["p"]}
    assert only(world, "arriving").waits_for == ""


def test_nothing_moves_while_the_picture_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod would be bound between the looks at cache and queue, were the queue not held."""
    world = World(node("n", cpu="1"), pod("p"))
    settling, overview = threading.Thread(target=world.settle), world.cache.overview

    def slowly() -> PodOverview:
        seen = overview()
        settling.start()
        settling.join(0.2)
        return seen

    monkeypatch.setattr(world.cache, "overview", slowly)
    assert sections(world) == {"active": ["p"]}
    settling.join()
    monkeypatch.undo()
    assert (sections(world), world.node_of("p")) == ({}, "n")


@pytest.mark.parametrize("seed", range(2))
def test_no_picture_is_torn(seed: int) -> None:
    """One thread takes pictures while another schedules: each pod is in one section, or counted as scheduled."""
    pods = 150
    nodes = [node(f"n{i}", cpu="10") for i in range(20)]
    world = World(*nodes, *(pod(f"p{i}").req(cpu="1") for i in range(pods)), seed=seed)
    pictures: list[QueueStatus] = []
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            pictures.append(modeler(world).status(leading=True))

    photographer = threading.Thread(target=take)
    photographer.start()
    world.settle()
    over.set()
    photographer.join()
    assert len(pictures) > 3
    for picture in pictures:
        seen = Counter(view.uid for name in SECTIONS for view in getattr(picture, name))
        assert set(seen.values()) <= {1}
        assert len(seen) + picture.scheduled == pods


def test_it_is_reported_in_the_names_of_the_api() -> None:
    recorded = msgspec.to_builtins(modeler(World(pod("p"))).status(leading=False))
    assert recorded["leading"] is False
    assert recorded["inFlight"] == []
    assert recorded["active"][0].keys() >= {"namespace", "name", "refusedBy", "sinceSeconds", "nominatedNode"}
