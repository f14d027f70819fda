"""Binds without an answer: what users see while the outcome is unknown, and once it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender import Node, Pod, post_bind
from extender.errors import ExtenderUnanswered, OutcomeUnknown
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.ports import Binding
from tests.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.scheduler.world import NAME, World

NO_ANSWER = OutcomeUnknown("POST /binding: no answer in 10 s")
OPEN = (
    'running Bind plugin "DefaultBinder": POST /binding: no answer in 10 s;'
    " the pod may be bound, and keeps its place on node n1 until this is known"
)
BOUND = ("p", "Scheduled", "Successfully assigned default/p to n1")


def node(name: str) -> Any:
    return make_node(name).capacity(cpu="4", memory="8Gi", pods="10").allocatable(cpu="4", memory="8Gi", pods="10")


def pod(name: str) -> Any:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu="1")


def left_open(*more: Any, error: Exception = NO_ANSWER, pod: Any = pod("p"), **fields: Any) -> World:  # noqa: B008  not changed
    """Returns a world in which the pod p may be bound to n1."""
    world = World(node("n1"), *more, pod, **fields)
    world.faults = [error]
    world.settle()
    return world


def test_an_open_bind_is_reported_and_scheduled_is_written_once_it_is_known() -> None:
    world = left_open()
    assert world.events == [("p", "FailedScheduling", OPEN)]
    assert world.actions["FailedScheduling"] == ("Warning", "Scheduling")
    assert world.conditions == [("p", "SchedulerError", OPEN, None)]
    world.pass_time(5)
    assert world.events == [("p", "FailedScheduling", OPEN)]
    world.put_object(world.pod("p").placed_on("n1"))
    world.pass_time(5)
    assert world.events[1:] == [BOUND]
    assert world.actions["Scheduled"] == ("Normal", "Binding")


@pytest.mark.parametrize(
    ("happens", "later"),
    [
        pytest.param(lambda world: world.put_object(world.pod("p").placed_on("n2")), [], id="it is on another node"),
        pytest.param(lambda world: world.delete("Pod", "default/p"), [], id="it was deleted"),
        pytest.param(
            lambda world: world.pass_time(60), [BOUND], id="it was not bound, and is bound in its next attempt"
        ),
    ],
)
def test_no_bind_is_reported_that_did_not_happen(happens: Callable[[World], object], later: list[Any]) -> None:
    world = left_open()
    happens(world)
    world.pass_time(5)
    assert world.events == [("p", "FailedScheduling", OPEN), *later]


def test_a_successor_of_the_name_is_not_reported_as_the_pod_of_the_open_bind() -> None:
    world = left_open()
    world.delete("Pod", "default/p")
    world.put(make_pod("p").uid("successor").scheduler("another").node("n1"))
    world.pass_time(5)
    assert world.events == [("p", "FailedScheduling", OPEN)]


def test_a_bind_that_the_watch_has_shown_before_its_answer_was_lost_is_reported_as_done() -> None:
    world = World(node("n1"), pod("p"))

    def answer_lost(binding: Binding) -> None:
        world.put_object(world.pod("p").placed_on(binding.node))
        world.watch()
        raise NO_ANSWER

    world.bind = answer_lost  # type: ignore[method-assign, assignment]  # for this world alone
    world.settle()
    world.pass_time(3)
    assert (world.events, world.conditions) == ([BOUND], [])


def test_the_condition_is_left_alone_if_the_pod_is_bound_and_the_watch_is_late() -> None:
    world = World(node("n1"), pod("p"))

    def answer_lost(binding: Binding) -> None:
        world.put_object(world.pod("p").placed_on(binding.node))
        raise NO_ANSWER

    world.bind = answer_lost  # type: ignore[method-assign, assignment]  # for this world alone
    world.attempt()
    world.binders.work()
    assert (world.events, world.conditions) == ([("p", "FailedScheduling", OPEN)], [])
    world.pass_time(3)
    assert world.events[1:] == [BOUND]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            ZeroDivisionError("in the client"), 'running Bind plugin "DefaultBinder": in the client;', id="a bug"
        ),
        pytest.param(ExtenderUnanswered("http://x/bind: no answer"), "http://x/bind: no answer;", id="an extender"),
    ],
)
def test_whatever_the_error_is_the_open_bind_is_reported(error: Exception, expected: str) -> None:
    world = left_open(error=error)
    assert world.conditions[-1][2].startswith(expected)
    world.put_object(world.pod("p").placed_on("n1"))
    world.pass_time(3)
    assert world.events[1:] == [BOUND]


def test_a_pod_whose_volumes_were_bound_first_is_reported_too() -> None:
    volume, claim = make_pv("v", storage_class="late"), make_pvc("c", storage_class="late")
    storage_class = make_storage_class("late", provisioner="kubernetes.io/no-provisioner")
    world = left_open(storage_class, volume, claim, pod=pod("p").pvc("c"))
    world.volumes.complete()
    world.settle()
    assert world.events == [("p", "FailedScheduling", OPEN)]
    world.put_object(world.pod("p").placed_on("n1"))
    world.pass_time(3)
    assert world.events[1:] == [BOUND]


def test_post_bind_runs_once_the_bind_is_known() -> None:
    calls: list[str] = []

    @post_bind
    def done(pod: Pod, node: Node) -> None:
        calls.append(f"{pod.name} on {node.name}")

    rule = done.rule("done", {}, OfflineHost())
    world = left_open(profile=replace(default_profile(), post_bind=[rule]))
    assert calls == []
    world.put_object(world.pod("p").placed_on("n1"))
    world.pass_time(3)
    assert calls == ["p on n1"]
