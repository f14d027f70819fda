"""Loop, queue, cache and engine together, step by step and without threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.config.settings import Settings
from extender.errors import Conflict, OutcomeUnknown, Refused
from extender.framework.status import Rejection
from extender.plugins.registry import default_profile
from extender.queue.entries import Tier
from extender.scheduler.event_router import EventRouter
from tests.builders import NodeBuilder, PodBuilder, expression, make_node, make_pod, node_term
from tests.builders.storage import make_pv, make_pvc, make_storage_class
from tests.scheduler.world import NAME, World


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def pod(name: str, cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def waiting(world: World, tier: Tier) -> list[str]:
    return [info.pod.name for info in world.queue.pods()[tier]]


def test_a_pod_is_bound_and_confirmed() -> None:
    world = World(node("n1"), pod("p"))
    world.settle()
    assert world.node_of("p") == "n1"
    assert world.events == [("p", "Scheduled", "Successfully assigned default/p to n1")]
    assert world.cache.overview().assumed == []
    assert world.queue.pods_in_flight() == []
    assert (world.telemetry.results, world.telemetry.attempts) == (["scheduled"], [1])


@pytest.mark.parametrize("ttl_seconds", [0.0, 30.0])
def test_a_bind_that_got_no_answer_and_never_happened_is_settled_by_asking(ttl_seconds: float) -> None:
    world = World(node("n1"), pod("p"), settings=Settings(assumed_ttl_seconds=ttl_seconds, settle_seconds=0.0))
    world.faults.append(OutcomeUnknown("the connection was lost"))
    world.settle()
    world.pass_time(29)
    assert (world.node_of("p"), world.cache.size().assumed_pods) == ("", 1)
    world.pass_time(30)
    assert (world.node_of("p"), world.cache.size().assumed_pods) == ("n1", 0)


def test_a_bind_that_got_no_answer_and_happened_is_not_repeated() -> None:
    world = World(node("n1"), pod("p"), settings=Settings(assumed_ttl_seconds=0.0, settle_seconds=0.0))
    world.faults.append(OutcomeUnknown("the connection was lost"))
    world.settle()
    world.put_object(world.pod("p").placed_on("n1"))  # the API server has bound it; the watch is late
    world.clock.advance(31)
    assert world.expiry.sweep() == []
    world.pass_time(30)
    assert (world.node_of("p"), world.telemetry.results, world.cache.overview().assumed) == ("n1", ["error"], [])


@pytest.mark.parametrize(("seconds", "counted"), [(400, 1), (10, 0)], ids=["it waited too long", "an event woke it"])
def test_a_pod_that_no_event_woke_is_counted_when_it_is_bound(seconds: float, counted: int) -> None:
    world = World(node("n1", cpu="1"), pod("p", cpu="2"))
    world.settle()
    router = EventRouter(world.cache, world.queue, world.cycles)
    world.cache.listen(None if counted else router)  # None: the queue misses the event
    world.put(node("n1", cpu="4"))
    world.watch()
    world.cache.listen(router)
    world.pass_time(seconds)
    assert (world.node_of("p"), world.telemetry.after_flush) == ("n1", counted)


def test_the_time_of_every_search_for_a_node_is_observed_once() -> None:
    world = World(node("n1", cpu="1"), pod("fits"), pod("huge", cpu="64"))
    world.settle()
    assert sorted(world.telemetry.results) == ["scheduled", "unschedulable"]
    assert len(world.telemetry.decisions) == 2


def test_what_is_assumed_counts_for_the_next_pod_before_it_is_bound() -> None:
    world = World(node("n1", cpu="1"), node("n2", cpu="1"), pod("p1"), pod("p2"))
    assert world.attempt()
    assert world.attempt()
    assert {placed.node_name for placed in world.cache.overview().assumed} == {"n1", "n2"}
    assert not world.attempt()


def test_pods_of_other_schedulers_are_left_alone() -> None:
    world = World(node("n1"), pod("mine"), pod("theirs").scheduler("another"))
    world.settle()
    assert (world.node_of("mine"), world.node_of("theirs")) == ("n1", "")


def test_the_higher_priority_goes_first() -> None:
    world = World(node("n1", cpu="1"), pod("low").priority(1), pod("high").priority(2))
    world.settle()
    assert (world.node_of("low"), world.node_of("high")) == ("", "n1")


def test_the_same_seed_makes_the_same_choices() -> None:
    def choices(seed: int) -> list[str]:
        world = World(*(node(f"n{i}") for i in range(20)), pod("p"), seed=seed)
        world.settle()
        return [world.node_of("p")]

    assert choices(7) == choices(7)
    assert len({choices(seed)[0] for seed in range(10)}) > 3


def test_why_a_pod_waits_reads_as_from_the_stock_scheduler() -> None:
    world = World(node("n1", cpu="1"), node("n2").taint("dedicated"), node("n3", cpu="2"), pod("p", cpu="3"))
    world.settle()
    message = (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert world.conditions == [("p", "Unschedulable", message, "")]
    assert world.events == [("p", "FailedScheduling", message)]
    assert world.actions == {"FailedScheduling": ("Warning", "Scheduling")}
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]


def test_without_nodes_a_pod_waits_for_one_that_can_take_it() -> None:
    world = World(pod("p"))
    world.settle()
    assert world.conditions == [("p", "Unschedulable", "no nodes available to schedule pods", "")]
    world.put(node("small", cpu="500m"))
    world.settle()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["p"]
    world.put(node("large"))
    world.settle()
    world.pass_time(1)
    assert world.node_of("p") == "large"


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        pytest.param(lambda world: world.put(node("n2")), "n2", id="a node comes"),
        pytest.param(lambda world: world.put(node("n1", cpu="2")), "n1", id="a node grows"),
        pytest.param(lambda world: world.delete("Pod", "default/other"), "n1", id="a pod leaves"),
    ],
)
def test_an_event_brings_the_pod_back_that_it_may_help(happens: Callable[[World], None], expected: str) -> None:
    world = World(node("n1", cpu="1"), pod("other").node("n1"), pod("p"))
    world.settle()
    assert world.node_of("p") == ""
    happens(world)
    world.pass_time(3)
    assert world.node_of("p") == expected


def test_an_event_that_cannot_help_costs_no_attempt() -> None:
    world = World(node("n1", cpu="1"), pod("p", cpu="2"))
    world.settle()
    world.put(node("n1", cpu="1").label(colour="blue"))
    world.pass_time(20)
    assert world.telemetry.results == ["unschedulable"]


def test_a_pod_with_gates_waits_until_they_are_gone() -> None:
    world = World(node("n1"), pod("p").gate("quota"))
    world.settle()
    assert waiting(world, Tier.GATED) == ["p"]
    world.put(pod("p"))
    world.settle()
    assert world.node_of("p") == "n1"


@pytest.mark.parametrize("fault", [Refused("no", 403), Conflict("recreated", 409), Refused("busy", 429)], ids=str)
def test_a_refused_bind_frees_the_place_and_is_tried_again(fault: Refused) -> None:
    world = World(node("n1", cpu="1"), pod("p"))
    world.faults = [fault]
    world.settle()
    assert world.cache.overview().assumed == []
    assert world.conditions == [("p", "SchedulerError", f'running Bind plugin "DefaultBinder": {fault}', "")]
    world.pass_time(3)
    assert world.node_of("p") == "n1"
    assert world.telemetry.binds == ["refused", "bound"]


def test_a_refused_bind_makes_way_for_those_that_waited_for_the_place() -> None:
    world = World(node("n1", cpu="1"), pod("first").priority(1))
    world.attempt()
    world.put(pod("second"))
    world.watch()
    world.attempt()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["second"]
    world.faults = [Refused("no", 403)]
    world.delete("Pod", "default/first")
    world.settle()
    world.pass_time(3)
    assert world.node_of("second") == "n1"


def test_a_bind_of_unknown_outcome_keeps_the_place_until_the_watch_delivers_the_pod() -> None:
    world = World(node("n1"), pod("p"))
    world.faults = [OutcomeUnknown("no answer")]
    world.settle()
    assert [placed.node_name for placed in world.cache.overview().assumed] == ["n1"]
    assert (world.telemetry.binds, world.telemetry.results) == (["unknown"], ["error"])
    world.put(pod("p").node("n1"))
    world.settle()
    assert world.cache.overview().assumed == []
    assert world.queue.pods_in_flight() == []


def test_the_place_of_a_pod_that_turns_out_to_be_elsewhere_goes_to_those_that_wait_for_it() -> None:
    world = World(node("n1", cpu="1"), node("n2", cpu="2").taint("dedicated"), pod("first"))
    world.attempt()
    world.put(pod("second"))
    world.watch()
    world.attempt()
    assert waiting(world, Tier.UNSCHEDULABLE) == ["second"]
    world.put_object(world.pod("first").placed_on("n2"))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("first"), world.node_of("second")) == ("n2", "n1")


def test_a_bind_that_never_happened_expires_and_is_tried_again() -> None:
    world = World(node("n1"), pod("p"))
    world.faults = [OutcomeUnknown("no answer")]
    world.settle()
    world.clock.advance(31)
    world.put(pod("another").node("n1"))  # the watch is alive
    world.watch()
    world.pass_time(3)
    assert world.node_of("p") == "n1"
    assert world.telemetry.binds == ["unknown", "bound"]


def test_a_pod_that_is_deleted_while_it_is_bound_frees_its_place() -> None:
    world = World(node("n1", cpu="1"), pod("p"))
    world.attempt()
    world.delete("Pod", "default/p")
    world.settle()
    assert world.cache.overview().assumed == []
    assert world.queue.pods_in_flight() == []
    assert sum(world.queue.pending().values()) == 0


@pytest.mark.parametrize(
    ("attempts", "results"),
    [
        pytest.param(0, [], id="before it was tried"),
        pytest.param(1, ["error"], id="while it was being bound: the API server refuses"),
    ],
)
def test_a_pod_that_another_binds_is_not_tried_again(attempts: int, results: list[str]) -> None:
    world = World(node("n1"), pod("p"))
    world.put(node("n2", cpu="100m"))
    world.put(pod("p").node("n2"))
    for _ in range(attempts):
        world.attempt()
        world.binders.work()
    world.settle()
    assert world.node_of("p") == "n2"
    assert world.telemetry.results == results
    assert sum(world.queue.pending().values()) == 0
    assert world.queue.pods_in_flight() == []


def test_a_pod_that_is_being_deleted_is_not_placed() -> None:
    world = World(node("n1"), pod("p").deleted())
    world.settle()
    assert world.events == [("p", "FailedScheduling", "skip schedule deleting pod: default/p")]
    assert world.telemetry.results == []


def test_a_pod_that_cannot_be_judged_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(node("n1"), pod("bad").priority(1), pod("good"))
    cycle = world.cycles[NAME]
    schedule_pod = cycle.schedule_pod

    def failing(info: object, table: object) -> object:
        if getattr(info, "uid", "") == "bad":
            raise RuntimeError("a user's rule")
        return schedule_pod(info, table)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(cycle, "schedule_pod", failing)
    world.settle()
    assert world.node_of("good") == "n1"
    assert world.conditions[0][:3] == ("bad", "SchedulerError", "RuntimeError: a user's rule")


def test_a_preference_that_cannot_be_read_fails_the_pod_and_no_other() -> None:
    unreadable = pod("p").prefer_node(1, node_term(expression("rank", "Gt", "many")))
    world = World(node("n1"), node("n2"), unreadable, pod("other"))
    world.settle()
    assert world.node_of("p") == ""
    assert world.node_of("other")
    assert "error" in world.telemetry.results


def test_a_pod_is_placed_whose_volume_is_bound_already() -> None:
    volume, claim = make_pv("v", claim="default/c"), make_pvc("c", storage_class="late", volume="v")
    world = World(node("n1"), make_storage_class("late"), claim, volume, pod("p").pvc("c"))
    world.settle()
    assert world.node_of("p") == "n1"
    assert (world.volumes.calls, world.conditions) == ([], [])


@pytest.mark.parametrize(
    ("reserving", "calls"),
    [
        pytest.param(frozenset({"VolumeBinding"}), True, id="VolumeBinding reserves"),
        pytest.param(frozenset[str](), False, id="VolumeBinding is off at reserve and preBind"),
    ],
)
def test_a_profile_that_switches_volume_binding_off_leaves_claims_alone(reserving: frozenset[str], calls: bool) -> None:
    profile = replace(default_profile(), reserving=reserving)
    claim = make_pvc("c", storage_class="late")
    world = World(node("n1"), make_storage_class("late"), claim, pod("p").pvc("c"), profile=profile)
    world.settle()
    assert bool(world.volumes.calls) is calls
    assert world.node_of("p") == ("" if calls else "n1")  # the provisioner never answers


@pytest.mark.parametrize(
    ("disk", "rules"),
    [
        pytest.param("ssd", {"NodeAffinity", "NodeResourcesFit"}, id="the node that matches is full"),
        pytest.param("none", {"NodeAffinity"}, id="no node matches"),
    ],
)
def test_a_rejection_says_which_plugins_no_eviction_can_satisfy(disk: str, rules: set[str]) -> None:
    nodes = node("n1", cpu="2").label(disk="ssd"), node("n2")
    world = World(*nodes, pod("other").node("n1"), pod("p", cpu="2").node_selector(disk=disk))
    world.settle()
    expected = Rejection(frozenset(rules), unresolvable=frozenset({"NodeAffinity"}))
    assert [each.rejection for _, each in world.queue.queued()] == [expected]
