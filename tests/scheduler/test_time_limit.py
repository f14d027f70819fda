"""Users' predicates and priorities that hang: the loop leaves them in time, and goes on with other pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

from extender import Node, Pod, PodInfo, Rows, Table, predicate, priority
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.framework.find_fit import Fit
from extender.framework.profile import Profile, WeightedPriority
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import UNDECIDED, replay
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import OfflineHost
from extender.queue.entries import Tier
from extender.recording.lines import AttemptLine
from extender.runtime.clock import ManualClock, TimeLimit
from extender.scheduler.other_extenders import Extenders
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.scheduler.world import NAME, World

LONG_SECONDS = 600.0
Rule = Callable[[Callable[[Pod], object]], Profile]


def with_rules(*predicates: Any, priorities: Any = ()) -> Profile:
    default = default_profile()
    ours = [WeightedPriority(rule.rule("Hanging", {}, OfflineHost())) for rule in priorities]
    made = [rule.rule("Hanging", {}, OfflineHost()) for rule in predicates]
    return replace(default, predicates=[*default.predicates, *made], priorities=[*default.priorities, *ours])


def predicate_of_nodes(delay: Callable[[Pod], object]) -> Profile:
    @predicate
    def rule(pod: Pod, node: Node) -> bool:
        delay(pod)
        return True

    return with_rules(rule)


def predicate_of_columns(delay: Callable[[Pod], object]) -> Profile:
    @predicate
    def rule(pod: PodInfo, table: Table, rows: Rows) -> object:
        delay(pod.pod)
        return np.ones(len(rows), np.bool_)

    return with_rules(rule)


def priority_of_nodes(delay: Callable[[Pod], object]) -> Profile:
    @priority
    def rule(pod: Pod, node: Node) -> int:
        delay(pod)
        return 1

    return with_rules(priorities=[rule])


def priority_of_columns(delay: Callable[[Pod], object]) -> Profile:
    @priority
    def rule(pod: PodInfo, table: Table, rows: Rows) -> object:
        delay(pod.pod)
        return np.ones(len(rows))

    return with_rules(priorities=[rule])


def predicate_in_preemption(delay: Callable[[Pod], object]) -> Profile:
    """It hangs on a node without its lesser pods alone, as preemption asks."""

    @predicate(sees_pods=True)
    def rule(pod: PodInfo, table: Table, rows: Rows) -> object:
        taken = table.nodes.requested[0][rows] > 0
        if not taken.all():
            delay(pod.pod)
        return ~taken

    return with_rules(rule)


ANY_RULE = pytest.mark.parametrize(
    "made", [predicate_of_nodes, predicate_of_columns, priority_of_nodes, priority_of_columns]
)


def node(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu="8", memory="16Gi", pods="10").allocatable(cpu="8", memory="16Gi", pods="10")


def pod(name: str) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu="1")


class Hang:
    """A delay that hangs for the pod `p` until `end` is set; it is 10 minutes otherwise, to fail without a limit."""

    def __init__(self) -> None:
        self.end = Event()

    def __call__(self, pod: Pod) -> None:
        if pod.name == "p":
            self.end.wait(LONG_SECONDS)


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.end.set()


def limit() -> TimeLimit:
    return TimeLimit(ManualClock(), 1.0)


LATE = "no decision within 1 s: Hanging has not answered"


@ANY_RULE
def test_a_pod_whose_rule_hangs_goes_back_to_the_queue_and_others_go_on(made: Rule, hang: Hang) -> None:
    world = World(node("n1"), node("n2"), pod("p"), pod("q"), profile=made(hang), limit=limit())
    with world.cache.snapshot("before") as before:
        pass
    world.settle()
    assert (world.node_of("p"), bool(world.node_of("q"))) == ("", True)
    assert world.conditions[0][:3] == ("p", "SchedulerError", LATE)
    assert world.telemetry.results[:2] == ["error", "scheduled"]
    with world.cache.snapshot("after") as after:
        assert after is not before  # the rule may look at it still
    hang.end.set()
    world.pass_time(5)
    assert world.node_of("p") != ""


def test_a_rule_that_hangs_on_the_nominated_node_is_left_too(hang: Hang) -> None:
    world = World(node("n1"), pod("p").nominated("n1"), profile=predicate_of_nodes(hang), limit=limit())
    world.settle()
    assert [message for _, _, message, _ in world.conditions] == [LATE]


def test_a_rule_that_hangs_in_preemption_evicts_no_pod(hang: Hang) -> None:
    lesser = make_pod("lesser").uid("lesser").req(cpu="1").node("n1")
    world = World(node("n1"), lesser, pod("p").priority(9), profile=predicate_in_preemption(hang), limit=limit())
    world.settle()
    assert [message for _, _, message, _ in world.conditions] == [LATE]
    assert not world.pod("lesser").terminating
    hang.end.set()
    world.pass_time(5)
    assert world.pod("lesser").terminating


class SlowClock(ManualClock):
    """Goes on by a second with each look at it."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def with_extender(clock: ManualClock, seconds: float) -> Extenders:
    """An extender that lets every node pass, after so many seconds."""

    class SlowExtenders(Extenders):
        def __bool__(self) -> bool:
            return True

        def filter(self, pod: PodInfo, table: Table, fit: Fit) -> None:
            clock.advance(seconds)

    return SlowExtenders()


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(default_profile(), id="in-tree rules only"),
        pytest.param(predicate_of_nodes(lambda _: None), id="a predicate"),
        pytest.param(priority_of_nodes(lambda _: None), id="a priority"),
    ],
)
def test_every_attempt_has_a_deadline_and_ends_in_an_error_and_a_backoff(profile: Profile) -> None:
    world = World(node("n1"), node("n2"), pod("p"), profile=profile, limit=TimeLimit(SlowClock(), 4.0))
    world.settle()
    assert world.node_of("p") == ""
    name, reason, message, _ = world.conditions[0]
    assert (name, reason) == ("p", "SchedulerError")
    assert message.startswith("no decision within 4 s: ")
    assert "p" in {info.pod.name for info in world.queue.pods()[Tier.BACKOFF]}


def slow_world(*others: PodBuilder, seconds: float = 4.1) -> World:
    """A cluster in which an attempt of the pod `p` takes so long; the limit is 4 s."""
    clock = ManualClock()

    def delay(pod: Pod) -> None:
        if pod.name == "p":
            clock.advance(seconds)

    profile = predicate_of_columns(delay)
    *in_tree, slow = profile.predicates
    profile = replace(profile, predicates=[slow, *in_tree])  # the time is looked at before each rule
    return World(node("n1"), pod("p"), *others, profile=profile, clock=clock, limit=TimeLimit(clock, 4.0))


def test_an_attempt_that_ran_out_of_its_time_says_so_in_condition_and_event() -> None:
    world = slow_world()
    world.attempt()
    [(_, reason, condition, _)] = world.conditions
    [(_, event, note)] = world.events
    assert (reason, event) == ("SchedulerError", "FailedScheduling")
    assert condition.startswith("no decision within 4 s: ")
    assert note == f"{condition} (its last attempt took 4.1 s, so others go first)"


def test_an_attempt_gives_way_to_others_and_says_so_in_condition_and_event() -> None:
    world = slow_world(make_pod("other", "shop").uid("other").scheduler(NAME).req(cpu="1"), seconds=0.6)
    world.attempt()
    [(name, reason, condition, _)] = world.conditions
    [(_, _, note)] = world.events
    assert (name, reason) == ("p", "SchedulerError")
    assert condition.startswith("gave way to other pods after 0.6 s: stopped before ")
    assert note == f"{condition} (its last attempt took 0.6 s, so others go first)"


@pytest.mark.parametrize(("seconds", "others"), [(4.1, ()), (0.6, ("other",))], ids=["no time left", "gave way"])
def test_an_attempt_that_ran_out_of_its_time_is_not_woken_by_events_of_the_cluster(
    seconds: float, others: tuple[str, ...]
) -> None:
    named = [make_pod(name, "shop").uid(name).scheduler(NAME).req(cpu="1") for name in others]
    world = slow_world(*named, seconds=seconds)
    world.settle()
    for number in range(20):
        world.put(node(f"new-{number}"))
        world.put(make_pod(f"gone-{number}").uid(f"gone-{number}").node("n1").req(cpu="1"))
        world.settle()
        world.delete("Pod", f"default/gone-{number}")
        world.settle()
    assert [each[0] for each in world.conditions].count("p") == 1
    assert [info.pod.name for info in world.queue.pods()[Tier.BACKOFF]] == ["p"]


def test_the_time_of_extenders_does_not_count_in_an_attempt() -> None:
    clock = ManualClock()
    cycle = SchedulingCycle(default_profile(), Random(0), with_extender(clock, seconds=30.0))
    world = World(node("n1"), node("n2"), pod("p"))
    with world.cache.snapshot("test", TimeLimit(clock, 4.0).begin()) as table:
        assert isinstance(cycle.schedule_pod(PodInfo(world.pod("p")), table), Chosen)


def test_a_late_attempt_is_recorded_and_left_out_of_a_replay(hang: Hang, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    lesser = make_pod("lesser").uid("lesser").req(cpu="1").node("n1")
    profile = predicate_in_preemption(hang)
    world = World(node("n1"), lesser, pod("p").priority(9), profile=profile, limit=limit(), record=path)
    world.settle()
    world.observed.stop()
    attempt = next(line for line in Recording.load(path).lines if isinstance(line, AttemptLine))
    assert (attempt.message, bool(attempt.draws)) == (LATE, True)  # of preemption, and no later attempt's
    result = replay(path)
    assert (result.left_out, result.changed) == ({UNDECIDED: 1}, [])
