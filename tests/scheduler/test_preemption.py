"""Preemption carried out: which pods go, which wait, and that none goes twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from extender.engine.decision import Failure
from extender.errors import OutcomeUnknown, Refused
from extender.framework.status import unresolvable
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.queue.entries import QueuedPod, Tier
from extender.scheduler.preemption import EvictionsInProgress
from extender.table import PodInfo
from extender.table.features import VERSIONS
from tests.builders import (
    expression,
    make_claim,
    make_device_class,
    make_request,
    make_resource_slice,
    node_term,
)
from tests.scheduler.test_loop import node, pod, waiting
from tests.scheduler.world import NAME, World


@pytest.fixture
def world() -> World:
    """A full node, and a pod that may preempt."""
    return World(node("n1", cpu="1"), pod("victim").node("n1").priority(1), pod("p").priority(10))


def evicted(world: World) -> list[str]:
    return [name for name, reason, _ in world.events if reason == "Preempted"]


def test_the_victim_goes_and_the_preemptor_comes(world: World) -> None:
    world.settle()
    assert world.pod("victim").terminating
    assert world.pod("p").status.nominated_node_name == "n1"
    assert ("victim", "Preempted", "Preempted by pod p on node n1") in world.events
    assert world.actions["Preempted"] == ("Normal", "Preempting")
    assert world.telemetry.evictions == [("pod", "success", 0.0)]
    placement = "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    message = f"0/1 nodes are available: 1 Insufficient cpu. {placement}"
    assert world.conditions == [("p", "Unschedulable", message, "n1")]
    world.delete("Pod", "default/victim")
    world.pass_time(3)
    assert world.node_of("p") == "n1"
    assert world.nominations() == {}
    assert world.telemetry.victims == [1]


def test_while_the_victim_terminates_no_other_goes(world: World) -> None:
    world.put(node("n2", cpu="1"))
    world.put(pod("bystander").node("n2").priority(2))
    world.settle()
    world.queue.activate(["p"])
    world.pass_time(30)
    assert evicted(world) == ["victim"]
    assert "not eligible due to a terminating pod on the nominated node." in world.conditions[-1][2]
    assert world.pod("p").status.nominated_node_name == "n1"


@pytest.mark.parametrize(
    ("version", "victims", "nominated"),
    [
        pytest.param("1.37", ["victim"], "n1", id="before 1.38 it waits for its victims"),
        pytest.param("1.38", ["victim", "other"], "n2", id="since 1.38 it is tried again and preempts elsewhere"),
    ],
)
def test_a_preemptor_whose_nominated_node_shrinks(version: str, victims: list[str], nominated: str) -> None:
    cluster = (
        node("n1", cpu="1"), node("n2", cpu="1"), pod("victim").node("n1").priority(1),
        pod("other").node("n2").priority(2), pod("p").priority(10),
    )  # fmt: skip
    world = World(*cluster, features=VERSIONS[version].features)
    world.settle()
    assert evicted(world) == ["victim"]
    world.put(node("n1", cpu="500m"))
    world.pass_time(30)
    assert evicted(world) == victims
    assert world.pod("p").status.nominated_node_name == nominated


def test_the_preemptor_is_not_tried_before_its_victims_are_evicted(world: World) -> None:
    world.attempt()
    world.watch()
    world.queue.activate(["p"])
    assert waiting(world, Tier.GATED) == ["p"]
    assert not world.attempt()
    world.preemptors.work()
    world.delete("Pod", "default/victim")
    world.pass_time(3)
    assert world.node_of("p") == "n1"


def test_a_preemptor_is_admitted_once_its_last_victim_leaves() -> None:
    victim = pod("victim").node("n1")
    world = World(node("n1"), victim, pod("p").priority(10))
    preemptor, evicted_last = PodInfo(world.pod("p")), PodInfo(world.pod("victim"))
    evictions = EvictionsInProgress(world.cache)
    evictions.begin(preemptor, "n1")
    evictions.begin_last(preemptor, evicted_last)
    assert evictions.refuse(preemptor) == unresolvable("DefaultPreemption", "waiting until its victims are evicted")
    world.put(victim.deleted())
    world.watch()
    assert evictions.refuse(preemptor) is None
    world.delete("Pod", "default/victim")
    world.watch()
    assert evictions.refuse(preemptor) is None


def test_pods_that_wait_for_evictions_are_tried_though_the_preemptor_begins_again() -> None:
    world = World(node("n1"), pod("p").priority(10), pod("other").priority(10))
    preemptor, other = PodInfo(world.pod("p")), PodInfo(world.pod("other"))
    evictions = EvictionsInProgress(world.cache)
    evictions.begin(preemptor, "n1")
    assert evictions.hold_back(other, "n1")
    evictions.begin(preemptor, "n1")
    assert evictions.end(preemptor) == {other.uid}


def test_a_victim_that_is_gone_before_it_is_evicted_has_left_in_silence(world: World) -> None:
    world.attempt()
    world.delete("Pod", "default/victim")
    world.watch()
    world.preemptors.work()
    world.pass_time(3)
    assert world.node_of("p") == "n1"


def test_no_second_victim_is_evicted_if_the_first_is_deleted_before_its_watch_event() -> None:
    standing = [pod(name).node(f"n-{name}").priority(priority) for priority, name in ((1, "gone"), (2, "other"))]
    world = World(node("n-gone", cpu="1"), node("n-other", cpu="1"), *standing, pod("p").priority(10))
    world.attempt()
    world.delete("Pod", "default/gone")
    deletion = world.untold.pop()
    world.preemptors.work()
    world.queue.activate(["p"])
    assert world.attempt()
    assert world.telemetry.victims == [1]
    world.untold.append(deletion)
    world.pass_time(3)
    assert world.node_of("p") == "n-gone"
    assert evicted(world) == []


def test_where_all_victims_terminate_already_nothing_holds_the_preemptor_back(world: World) -> None:
    world.settle()
    world.put(pod("greater").priority(20))
    world.watch()
    world.attempt()
    world.delete("Pod", "default/victim")
    world.watch()
    world.preemptors.work()
    world.pass_time(3)
    assert world.node_of("greater") == "n1"
    assert world.nominations() == {}
    assert evicted(world) == ["victim"]


def test_a_preemptor_is_not_retried_while_another_deletes_its_victims() -> None:
    world = World(node("n1", cpu="1"), pod("victim").node("n1").priority(1))
    victim = world.pod("victim")
    leaving = msgspec.structs.replace(victim.metadata, deletion_timestamp=datetime.now(UTC))
    world.put_object(msgspec.structs.replace(victim, metadata=leaving))
    world.put(pod("p").priority(10))
    world.settle()
    assert len(world.telemetry.results) == 1
    world.delete("Pod", "default/victim")
    world.pass_time(3)
    assert (world.node_of("p"), evicted(world)) == ("n1", [])


class Hasty(World):
    """The first victim is gone before the next is evicted."""

    def delete_victim(self, victim: Pod) -> bool:
        evicted = super().delete_victim(victim)
        if victim.name == "first":
            self.delete("Pod", victim.key)
            self.watch()
        return evicted


def test_what_wakes_the_preemptor_while_victims_are_being_evicted_is_not_lost() -> None:
    first, second = pod("first").node("n1").host_port(80).priority(2), pod("second").node("n1").priority(1)
    world = Hasty(node("n1", cpu="2"), first, second, pod("p").req(cpu="2").host_port(80).priority(10))
    world.settle()
    assert evicted(world) == ["first", "second"]
    world.delete("Pod", "default/second")
    world.pass_time(3)
    assert world.node_of("p") == "n1"


def test_a_preemptor_waits_while_its_node_is_cleared_for_another() -> None:
    """Its own victim is gone, and with the other's it will fit: it evicts no other pod, as kube-scheduler would."""
    nodes = node("n1", cpu="2"), node("n2", cpu="2")
    standing = [pod(f"{name}-{number}").node(name).priority(1) for name in ("n1", "n2") for number in range(2)]
    world = World(*nodes, *standing, pod("first").priority(10))
    world.settle()
    [gone] = evicted(world)
    world.delete("Pod", f"default/{gone}")
    world.put(pod("second").priority(10))
    world.watch()
    assert [world.attempt(), world.attempt()] == [True, True]  # the second's victim is still to be evicted
    assert len(set(world.nominations().values())) == 1
    world.settle()
    assert len(evicted(world)) == 2
    world.delete("Pod", f"default/{evicted(world)[1]}")
    world.pass_time(5)
    assert world.node_of("first") == world.node_of("second") != ""
    assert len(evicted(world)) == 2


def test_a_preemptor_that_waits_for_anothers_evictions_is_tried_when_they_fail() -> None:
    """No event would tell it: nothing has happened. Found by the simulation."""
    standing = [pod(f"standing-{number}").node("n1").priority(1) for number in range(2)]
    world = World(node("n1", cpu="2"), *standing, pod("first").priority(10))
    world.settle()
    [gone] = evicted(world)
    world.delete("Pod", f"default/{gone}")
    world.put(pod("second").priority(10))
    world.watch()
    assert [world.attempt(), world.attempt(), world.attempt()] == [True, True, False]
    world.faults = [Refused("the API server is down", 503)]
    world.preemptors.work()
    assert world.attempt()


def test_room_that_is_made_is_kept_from_lesser_pods(world: World) -> None:
    world.settle()
    world.delete("Pod", "default/victim")
    world.put(pod("lesser").priority(5))
    world.watch()
    world.pass_time(3)
    assert (world.node_of("p"), world.node_of("lesser")) == ("n1", "")


@pytest.mark.parametrize("fault", [Refused("no", 403), OutcomeUnknown("no answer")], ids=str)
def test_an_eviction_that_fails_is_tried_again(world: World, fault: Refused | OutcomeUnknown) -> None:
    world.faults = [fault]
    world.settle()
    world.pass_time(3)
    assert evicted(world) == ["victim"]


class Overtaken(World):
    """While a victim is marked, the preemptor ceases to need room. `ends` does that, once `marks` victims were marked.

    Attributes:
        marked: the names of the victims that were marked.
    """

    def __init__(self, *built: Any, ends: Callable[[World], object], marks: int) -> None:
        self.marked: list[str] = []
        self._ends = ends
        self._marks = marks
        super().__init__(*built)

    def mark_victim(self, victim: Pod, message: str) -> bool:
        self.marked.append(victim.name)
        if len(self.marked) == self._marks:
            self._ends(self)
            self.watch()
        return super().mark_victim(victim, message)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda world: world.delete("Pod", "default/p"), id="deleted"),
        pytest.param(lambda world: world.put(pod("p").req(cpu="2").priority(10).deleted()), id="terminating"),
        pytest.param(lambda world: world.put(pod("p").req(cpu="2").priority(10).node("n2")), id="bound"),
    ],
)
@pytest.mark.parametrize(("marks", "deleted"), [(1, []), (2, ["first"])])
def test_no_victim_is_deleted_once_its_preemptor_needs_no_room(
    ends: Callable[[World], object], marks: int, deleted: list[str]
) -> None:
    victims = pod("first").node("n1").priority(2), pod("second").node("n1").priority(1)
    preemptor = pod("p").req(cpu="2").priority(10)
    world = Overtaken(node("n1", cpu="2"), *victims, preemptor, ends=ends, marks=marks)
    world.settle()
    assert (evicted(world), len(world.marked)) == (deleted, marks)


class Unreachable(World):
    """An API server that evicts no pod for a while."""

    def __init__(self, *built: Any) -> None:
        self.calls = 0
        super().__init__(*built)

    def delete_victim(self, victim: Pod) -> bool:
        self.calls += 1
        if self.calls < 50:
            raise Refused("the API server cannot be reached", 503)
        return super().delete_victim(victim)


def test_while_evictions_fail_their_preemptor_backs_off() -> None:
    world = Unreachable(node("n1", cpu="1"), pod("victim").node("n1").priority(1), pod("p").priority(10))
    world.settle()
    assert world.calls == 1
    world.put(node("n2", cpu="1").taint("a"))  # an event that another pod would be tried again by
    world.pass_time(60)
    assert 5 <= world.calls <= 10


def test_a_lesser_pod_loses_its_nomination_to_the_node() -> None:
    world = World(
        node("n1", cpu="1"),
        pod("victim").node("n1").priority(1).deleted(),
        pod("lesser").priority(5).nominated("n1"),
        pod("p").priority(10),
    )
    world.put(pod("victim").node("n1").priority(1))
    world.settle()
    assert world.pod("lesser").status.nominated_node_name == ""
    assert world.nominations() == {"p": "n1"}


@pytest.mark.parametrize(
    ("nominated", "reasons"),
    [
        ("n1", "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity NodeResourcesFit]"),
        (
            "n2",
            "1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
        ("gone", "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    ],
)
def test_the_message_has_the_refusal_of_the_nominated_node_beside_those_that_are_no_choice(
    nominated: str, reasons: str
) -> None:
    """kube-scheduler checks the nominated node first, even if the pod is bound to another by its name."""
    only_n1 = node_term(fields=[expression("metadata.name", "In", "n1")])
    waiting_pod = pod("p").priority(10).nominated(nominated).require_node(only_n1).preemption_policy("Never")
    world = World(
        *(node(name, cpu="1") for name in ("n1", "n2", "n3")), pod("peer").node("n1").priority(10), waiting_pod
    )
    world.settle()
    never = "preemption: not eligible due to preemptionPolicy=Never."
    assert world.conditions[-1][2] == f"0/3 nodes are available: {reasons}. {never}"


def test_a_nomination_by_another_scheduler_is_left_alone() -> None:
    world = World(
        node("n1", cpu="1"),
        pod("victim").node("n1").priority(1),
        pod("theirs").scheduler("another").priority(5).nominated("n1"),
        pod("p").priority(10),
    )
    world.settle()
    assert world.pod("victim").terminating
    assert world.pod("theirs").status.nominated_node_name == "n1"


def test_a_preemptor_that_is_deleted_evicts_no_pod(world: World) -> None:
    world.delete("Pod", "default/p")
    popped = world.queue.pop(0)
    assert isinstance(popped, QueuedPod)
    world.watch()
    with world.cache.snapshot("test") as table:
        unfit = world.cycles[NAME].schedule_pod(popped.info, table)
    assert isinstance(unfit, Failure)
    world.scheduler.pods.failures.handle(popped, unfit, 0.0)
    world.settle()
    assert evicted(world) == []
    assert world.scheduler.pods.failures.preemption.in_progress.refuse(popped.info) is None


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world: world.delete("Pod", "default/p"), id="deleted"),
        pytest.param(lambda world: world.put_object(world.pod("p").placed_on("n2")), id="bound by another"),
    ],
)
def test_a_preemptor_that_no_longer_needs_room_evicts_no_pod(world: World, happens: Callable[[World], object]) -> None:
    world.attempt()
    happens(world)
    world.watch()
    world.settle()
    assert evicted(world) == []


def test_the_log_says_why_no_preemption_was_tried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "extender.scheduler")
    profile = replace(default_profile(), preemption=None)
    world = World(node("n1", cpu="1"), pod("victim").node("n1"), pod("p").priority(10), profile=profile)
    world.settle()
    reason = "'the profile has no DefaultPreemption'"
    assert f"preemption not tried pod=default/p reason={reason}" in caplog.messages
    assert world.telemetry.searches == 0


def test_a_pod_that_must_not_preempt_waits() -> None:
    world = World(
        node("n1", cpu="1"), pod("other").node("n1").priority(1), pod("p").priority(10).preemption_policy("Never")
    )
    world.settle()
    assert evicted(world) == []
    assert world.conditions[0][2].endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_every_search_for_victims_is_counted_and_the_victims_of_those_that_find_some(world: World) -> None:
    world.put(pod("hopeless", cpu="9").priority(10))
    world.settle()
    assert (world.telemetry.searches, world.telemetry.victims) == (2, [1])


def test_a_preemptor_without_less_important_pods_is_reported() -> None:
    world = World(node("n1", cpu="1"), pod("peer").node("n1").priority(10), pod("p").priority(10))
    world.settle()
    assert (world.telemetry.searches, world.telemetry.victims) == (1, [])
    recorded = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    assert world.conditions[0][2] == f"0/1 nodes are available: 1 Insufficient cpu. {recorded}"


def test_a_preemptor_waits_for_a_victim_that_was_about_to_be_bound() -> None:
    claim, device = (
        make_claim("c", make_request("device", "gpu")),
        make_resource_slice("n1", "gpu.example.com", "gpu-0"),
    )
    world = World(node("n1", cpu="1"), make_device_class("gpu"), device, claim, pod("victim").resource_claim("c"))
    world.claims.faults["bind"] = OutcomeUnknown("silence")
    world.claims.while_binding = lambda: preempt(world)  # the API server is slow to answer
    world.settle()
    world.pass_time(3)
    assert (world.node_of("p"), world.node_of("victim")) == ("n1", "")
    assert world.telemetry.victims == [1]


def preempt(world: World) -> None:
    """A more important pod comes, and has its victims evicted, as long as it makes any."""
    world.put(pod("p").priority(10))
    for _ in range(10):
        world.watch()
        world.attempt()
        world.preemptors.work()
    assert world.node_of("p") == ""


def test_an_unexpected_error_in_an_eviction_is_reported_and_the_preemptor_tries_again(world: World) -> None:
    world.attempt()
    world.faults.append(ZeroDivisionError("as the answer was read"))
    world.preemptors.work()
    assert world.telemetry.aside == ["preemption p: as the answer was read"]
    world.pass_time(15)
    assert world.pod("victim").terminating
