"""The behaviour of the queue, case by case, as in upstream's tests of its queue."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from extender.errors import IllegalTransition
from extender.framework.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, NODE_ADD, Change
from extender.framework.queueing_hints import Interests
from extender.framework.rules import PreEnqueue
from extender.framework.status import NO_REJECTION, Refusal, Rejection, unresolvable, unschedulable
from extender.plugins.registry import INTERESTS
from extender.plugins.scheduling_gates import SchedulingGates
from extender.queue.entries import QueuedPod, Tier
from extender.queue.priority_queue import BACKLOG, PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import PodBuilder, make_node, make_pod
from tests.queue.queueing import QueueRecorder, info, node, refused

A_POD_LEFT = Change(ASSIGNED_POD_DELETE, info(make_pod("left").node("n1").host_port(80)))
A_NODE_CAME = Change(NODE_ADD, None, node("n9"))
EVICTING = unresolvable("DefaultPreemption", "evicting")
FIT, PORTS = "NodeResourcesFit", "NodePorts"


class Rig:
    """A queue with a clock."""

    def __init__(self, *pods: PodBuilder | str, pre_enqueue: Iterable[PreEnqueue] = (SchedulingGates(),)) -> None:
        self.recorded = QueueRecorder()
        self.clock = ManualClock(100.0)
        self.queue = PriorityQueue(self.recorded, self.clock, INTERESTS, tuple(pre_enqueue))
        for pod in pods:
            self.add(pod)

    def add(self, pod: PodBuilder | str) -> PodInfo:
        self.clock.advance(0.001)
        added = info(pod)
        self.queue.add(added)
        return added

    def pop(self) -> QueuedPod:
        pod = self.queue.pop(0)
        assert isinstance(pod, QueuedPod)
        return pod

    def fail(self, pod: QueuedPod, rejection: Rejection = NO_REJECTION) -> Tier | None:
        return self.queue.add_unschedulable(pod, rejection)

    def refuse(self, *rules: str, unresolvable: str = "", pending: str = "", after_seconds: float = 10.0) -> QueuedPod:
        """Pops a pod, rejects it, and advances the clock past its backoff."""
        pod = self.pop()
        self.fail(pod, refused(*rules, unresolvable=unresolvable, pending=pending))
        self.clock.advance(after_seconds)
        return pod

    def flush_backoff(self, after_seconds: float) -> None:
        self.clock.advance(after_seconds)
        self.queue.flush_backoff()

    def flush_unschedulable(self, after_seconds: float) -> int:
        self.clock.advance(after_seconds)
        return self.queue.flush_unschedulable()

    def tiers(self) -> dict[str, list[str]]:
        waiting = {tier.value: sorted(pod.pod.name for pod in pods) for tier, pods in self.queue.pods().items()}
        return {tier: names for tier, names in waiting.items() if names}


# ---- the order


def test_pods_are_popped_by_priority_and_then_by_arrival() -> None:
    rig = Rig("first", "second", make_pod("urgent").priority(10))
    assert [rig.pop().info.pod.name for _ in range(3)] == ["urgent", "first", "second"]
    assert rig.queue.pop(0) is None
    assert [pod.pod.name for pod in rig.queue.pods_in_flight()] == ["urgent", "first", "second"]


def test_there_is_a_backlog_while_many_pods_are_ready() -> None:
    rig = Rig(*(f"p-{number}" for number in range(BACKLOG + 1)))
    assert rig.queue.has_backlog()
    rig.pop()
    assert not rig.queue.has_backlog()


def test_a_rejected_pod_goes_behind_pods_that_waited_in_the_meantime() -> None:
    rig = Rig("a")
    rig.refuse(FIT)
    rig.add("b")
    rig.queue.move(A_POD_LEFT)
    rig.add("c")
    assert [rig.pop().info.pod.name for _ in range(3)] == ["a", "b", "c"]


def test_a_backing_off_pod_is_popped_when_no_other_is_ready() -> None:
    rig = Rig("refused")
    rig.refuse(FIT, after_seconds=0)
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"backoff": ["refused"]}
    rig.add("fresh")
    assert [rig.pop().info.pod.name for _ in range(2)] == ["fresh", "refused"]
    assert ("active", "PopFromBackoffQ") in rig.recorded.arrivals


def test_a_pod_backs_off_for_its_whole_time_after_an_error() -> None:
    rig = Rig("p")
    assert rig.fail(rig.pop()) is Tier.BACKOFF
    assert rig.queue.pop(0) is None
    rig.flush_backoff(after_seconds=1.0)
    assert rig.queue.pop(0) is None
    rig.flush_backoff(after_seconds=1.0)
    assert rig.pop().attempts == 2


# ---- rejected


@pytest.mark.parametrize(
    ("rejection", "changes", "tier"),
    [
        pytest.param(refused(FIT), [], Tier.UNSCHEDULABLE, id="nothing happened"),
        pytest.param(refused(FIT), [A_POD_LEFT], Tier.BACKOFF, id="something happened that may help"),
        pytest.param(refused("NodeAffinity"), [A_POD_LEFT], Tier.UNSCHEDULABLE, id="something else happened"),
        pytest.param(refused("NodeAffinity", FIT), [A_POD_LEFT], Tier.BACKOFF, id="it may help with one of two"),
        pytest.param(refused(FIT, unresolvable=FIT), [A_POD_LEFT], Tier.UNSCHEDULABLE, id="room is not what it lacks"),
        pytest.param(refused(FIT, unresolvable=FIT), [A_NODE_CAME], Tier.BACKOFF, id="a node may resolve it"),
        pytest.param(refused("MyRule"), [A_POD_LEFT], Tier.BACKOFF, id="an unknown rule"),
        pytest.param(refused(pending=FIT), [A_POD_LEFT], Tier.ACTIVE, id="the event that a rule was waiting for"),
        pytest.param(refused(PORTS, pending=FIT), [A_NODE_CAME, A_POD_LEFT], Tier.ACTIVE, id="the best of several"),
        pytest.param(NO_REJECTION, [], Tier.BACKOFF, id="an error"),
    ],
)
def test_a_pod_that_was_not_scheduled_enters_the_right_tier(
    rejection: Rejection, changes: list[Change], tier: Tier
) -> None:
    rig = Rig("p")
    pod = rig.pop()
    for change in changes:
        rig.queue.move(change)
    assert rig.fail(pod, rejection) is tier
    assert rig.recorded.arrivals[-1] == (tier.queue, "ScheduleAttemptFailure")


def test_an_event_for_a_pending_rule_outranks_earlier_events() -> None:
    rig = Rig(make_pod("p").req(cpu="64"))
    pod = rig.pop()
    rig.queue.move(A_NODE_CAME)  # helps with the name, but is too small
    rig.queue.move(A_POD_LEFT)
    assert rig.fail(pod, refused("NodeName", pending=FIT)) is Tier.ACTIVE


def test_an_event_before_the_pop_does_not_count() -> None:
    rig = Rig("p")
    rig.queue.move(A_POD_LEFT)
    assert rig.fail(rig.pop(), refused(FIT)) is Tier.UNSCHEDULABLE


def test_rejections_and_errors_are_counted_apart() -> None:
    rig = Rig("p")
    counts = []
    for rejection in (refused(FIT), NO_REJECTION, NO_REJECTION, refused(FIT)):
        pod = rig.pop()
        rig.fail(pod, rejection)
        counts.append((pod.attempts, pod.unschedulable_count, pod.consecutive_errors))
        rig.queue.activate([pod.uid])
    assert counts == [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 2, 0)]


@pytest.mark.parametrize("given_back", [pytest.param(True, id="given back"), pytest.param(False, id="done")])
def test_a_pod_that_is_not_in_flight_cannot_be_given_back(given_back: bool) -> None:
    rig = Rig("p")
    pod = rig.pop()
    rig.fail(pod) if given_back else rig.queue.done(pod.uid)
    before = rig.tiers()
    with pytest.raises(IllegalTransition, match="default/p is not in flight"):
        rig.fail(pod)
    assert rig.tiers() == before


def test_a_pod_that_was_gone_and_waits_again_outlives_its_attempt() -> None:
    """It was deleted while it was being bound, and is back after the API server was restored from a copy."""
    rig = Rig("p")
    pod = rig.pop()
    rig.queue.delete(pod.uid)
    rig.add("p")
    rig.queue.done(pod.uid)
    assert rig.pop().uid == pod.uid


# ---- events


@pytest.mark.parametrize(
    ("rejection", "change", "moved"),
    [
        pytest.param(refused(FIT), A_POD_LEFT, True, id="registered, and the hint says yes"),
        pytest.param(refused(PORTS), A_POD_LEFT, False, id="registered, but the hint says no"),
        pytest.param(refused(FIT), Change(ASSIGNED_POD_ADD, None, A_POD_LEFT.old), False, id="not registered"),
        pytest.param(refused(FIT, PORTS), A_POD_LEFT, True, id="one of two"),
        pytest.param(refused(FIT, unresolvable=FIT), A_POD_LEFT, False, id="too big for any node"),
        pytest.param(refused(FIT, PORTS, unresolvable=FIT), A_NODE_CAME, True, id="a node for what is too big"),
    ],
)
def test_an_event_moves_the_pods_that_it_may_help(rejection: Rejection, change: Change, moved: bool) -> None:
    rig = Rig("p")
    rig.fail(rig.pop(), rejection)
    rig.clock.advance(10)
    assert rig.queue.move(change) == moved
    assert rig.tiers() == {"active" if moved else "unschedulable": ["p"]}


def test_an_event_moves_a_pod_into_backoff_until_its_backoff_ends() -> None:
    rig = Rig("p")
    rig.refuse(FIT, after_seconds=0)
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"backoff": ["p"]}
    rig.flush_backoff(after_seconds=2)
    assert rig.tiers() == {"active": ["p"]}
    assert rig.recorded.arrivals == [
        ("active", "UnscheduledPodAdd"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "AssignedPodDelete"),
        ("active", "BackoffComplete"),
    ]


def test_an_event_for_a_pending_rule_spares_the_backoff() -> None:
    rig = Rig("p")
    rig.refuse(PORTS, pending=FIT, after_seconds=0)
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"active": ["p"]}


def test_the_end_of_a_nomination_helps_only_pods_of_low_priority() -> None:
    rig = Rig(make_pod("low").priority(1), make_pod("high").priority(9))
    rig.refuse(FIT)
    rig.refuse(FIT)
    rig.queue.move(A_POD_LEFT, up_to_priority=5)
    assert rig.tiers() == {"active": ["low"], "unschedulable": ["high"]}


@pytest.mark.parametrize(("port", "tier"), [(80, "active"), (81, "unschedulable")])
def test_the_end_of_a_nomination_helps_only_pods_that_the_nominated_pod_kept_out(port: int, tier: str) -> None:
    rig = Rig(make_pod("p").host_port(80))
    rig.refuse(PORTS)
    rig.queue.nomination_ended(info(make_pod("nominated").host_port(port).nominated("n1").priority(9)))
    assert rig.tiers() == {tier: ["p"]}


def test_only_waiting_pods_back_off_on_request() -> None:
    rig = Rig("p")
    rig.queue.back_off("unknown")
    rig.queue.back_off(info("p").uid)
    assert rig.tiers() == {"active": ["p"]}


def test_pods_that_waited_long_are_requeued_in_batches() -> None:
    rig = Rig("p", "q")
    rig.refuse(FIT)
    rig.refuse(FIT)
    with rig.queue.lock:
        assert rig.queue._tiers.retry_overdue(rig.clock.monotonic(), 1.0, most=1) == 1
    assert len(rig.queue.pods()[Tier.UNSCHEDULABLE]) == 1


def test_an_event_requeues_only_pods_for_which_its_room_is_enough() -> None:
    rig = Rig(make_pod("small").req(cpu="1"), make_pod("large").req(cpu="3"))
    rig.refuse(FIT)
    rig.refuse(FIT)
    rig.queue.move(A_POD_LEFT._replace(room=lambda priority: {"cpu": 2000, "pods": 9}))
    assert rig.tiers() == {"active": ["small"], "unschedulable": ["large"]}


# ---- time


def test_pods_that_no_event_helps_are_tried_again_after_the_longest_wait() -> None:
    rig = Rig("p", make_pod("gated").gate("g"))
    rig.refuse("NodeAffinity", after_seconds=0)
    assert rig.flush_unschedulable(300) == 0
    assert rig.flush_unschedulable(1) == 2
    assert rig.tiers() == {"active": ["p"], "gated": ["gated"]}
    assert rig.flush_unschedulable(1) == 0
    assert rig.flush_unschedulable(301) == 1


# ---- gates


def test_a_gated_pod_waits_until_its_last_gate_is_removed() -> None:
    rig = Rig(make_pod("p").gate("a").gate("b"))
    assert rig.tiers() == {"gated": ["p"]}
    assert rig.queue.move(A_NODE_CAME) == 0
    rig.queue.add(info(make_pod("p").gate("b")))
    rig.flush_unschedulable(301)
    assert rig.tiers() == {"gated": ["p"]}
    rig.queue.add(info("p"))
    assert rig.tiers() == {"active": ["p"]}
    assert rig.recorded.arrivals == [
        ("unschedulable", "UnscheduledPodAdd"),
        ("active", "TargetPodUpdatePodSchedulingGatesEliminated"),
    ]
    assert rig.pop().attempts == 1


class Preempting:
    """A PreEnqueue rule like that of preemption, which admits no preemptor before its victims are evicted."""

    def __init__(self) -> None:
        self.under_way = True
        self.refusal: Refusal = EVICTING
        self.calls = 0

    def refuse(self, pod: PodInfo) -> Refusal | None:
        self.calls += 1
        return self.refusal if self.under_way else None


@pytest.mark.parametrize("backing_off", [pytest.param(True, id="into backoff"), pytest.param(False, id="active")])
def test_a_pre_enqueue_rule_gates_pods_that_are_requeued(backing_off: bool) -> None:
    preempting = Preempting()
    preempting.under_way = False
    rig = Rig("p", pre_enqueue=[preempting])
    pod = rig.refuse(FIT, after_seconds=0 if backing_off else 10)
    preempting.under_way = True
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"gated": ["p"]}
    preempting.under_way = False
    rig.queue.move(A_NODE_CAME)  # the gating rule has not registered for it
    assert rig.tiers() == {"gated": ["p"]}
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"backoff" if backing_off else "active": ["p"]}
    assert pod.gate is None


def test_the_events_of_a_rule_that_gates_a_gated_pod_wake_it_too() -> None:
    preempting = Preempting()
    preempting.refusal = unschedulable(PORTS, "no port")
    rig = Rig("p", pre_enqueue=[preempting])
    preempting.refusal = unschedulable(FIT, "no room")
    rig.queue.move(A_NODE_CAME)
    assert {rule for rule, _ in rig.queue.rejections()} == {PORTS, FIT}
    preempting.under_way, preempting.calls = False, 0
    rig.queue.move(A_POD_LEFT)
    assert rig.tiers() == {"active": ["p"]}
    assert preempting.calls == 1


# ---- activate


@pytest.mark.parametrize(
    ("rejection", "before"),
    [
        pytest.param(refused("NodeAffinity"), Tier.UNSCHEDULABLE, id="unschedulable"),
        pytest.param(NO_REJECTION, Tier.BACKOFF, id="backing off"),
    ],
)
def test_activate_makes_a_pod_ready_without_backoff(rejection: Rejection, before: Tier) -> None:
    rig = Rig("p")
    pod = rig.pop()
    assert rig.fail(pod, rejection) is before
    rig.queue.activate([pod.uid, "unknown"])
    assert rig.tiers() == {"active": ["p"]}
    assert rig.recorded.arrivals[-1] == ("active", "ForceActivate")


def test_activate_does_not_open_gates() -> None:
    rig = Rig(make_pod("p").gate("g"))
    rig.queue.activate([info("p").uid])
    assert rig.tiers() == {"gated": ["p"]}


def test_activate_does_not_ask_the_rules_again_that_admitted_a_pod_before_its_backoff() -> None:
    preempting = Preempting()
    preempting.under_way = False
    rig = Rig("p", pre_enqueue=[preempting])
    pod = rig.pop()
    rig.fail(pod)
    preempting.under_way = True
    rig.queue.activate([pod.uid])
    assert rig.tiers() == {"active": ["p"]}


def test_a_pod_that_is_activated_in_flight_does_not_wait_for_an_event() -> None:
    rig = Rig("p")
    pod = rig.pop()
    rig.queue.activate([pod.uid])
    assert rig.fail(pod, refused("NodeAffinity")) is Tier.BACKOFF


# ---- updates and deletions


def test_an_update_of_an_active_pod_moves_it_to_where_it_belongs() -> None:
    rig = Rig("a", "b")
    rig.queue.add(info(make_pod("b").priority(5).label(v="2")))
    popped = rig.pop()
    assert popped.info.pod.labels == {"v": "2"}


def test_an_update_of_a_backing_off_pod_leaves_it_there() -> None:
    rig = Rig("p")
    rig.fail(rig.pop())
    rig.queue.add(info(make_pod("p").label(v="2")))
    assert rig.tiers() == {"backoff": ["p"]}
    rig.flush_backoff(after_seconds=2)
    assert rig.pop().info.pod.labels == {"v": "2"}


@pytest.mark.parametrize(
    ("rule", "updated", "tier"),
    [
        pytest.param(FIT, make_pod("p").req(cpu="1"), "active", id="asks for less"),
        pytest.param(FIT, make_pod("p").req(cpu="2").label(a="b"), "unschedulable", id="has other labels"),
        pytest.param("TaintToleration", make_pod("p").req(cpu="2").toleration("k"), "active", id="tolerates more"),
        pytest.param("InterPodAffinity", make_pod("p").req(cpu="2").label(a="b"), "active", id="labels that matter"),
    ],
)
def test_an_update_of_an_unschedulable_pod_may_help_it(rule: str, updated: PodBuilder, tier: str) -> None:
    rig = Rig(make_pod("p").req(cpu="2"))
    rig.refuse(rule)
    rig.queue.add(info(updated))
    assert rig.tiers() == {tier: ["p"]}


def test_an_updated_pod_is_filed_by_its_new_fields() -> None:
    rig = Rig(make_pod("p").node_selector(disk="ssd"))
    rig.refuse("NodeAffinity")
    rig.queue.add(info(make_pod("p").node_selector(disk="hdd")))
    rig.queue.move(Change(NODE_ADD, None, node(make_node("n").label(disk="ssd"))))
    assert rig.tiers() == {"unschedulable": ["p"]}
    rig.queue.move(Change(NODE_ADD, None, node(make_node("n").label(disk="hdd"))))
    assert rig.tiers() == {"active": ["p"]}


def test_a_pod_that_is_updated_in_flight_comes_back_as_it_is_now() -> None:
    rig = Rig(make_pod("p").req(cpu="2"))
    pod = rig.pop()
    rig.queue.add(info(make_pod("p").req(cpu="1")))
    assert pod.info.requests["cpu"] == 2000
    assert rig.fail(pod, refused(FIT)) is Tier.BACKOFF
    assert pod.info.requests["cpu"] == 1000


def test_an_update_of_another_pod_in_flight_does_not_help() -> None:
    rig = Rig(make_pod("p").req(cpu="2"), make_pod("other").req(cpu="2"))
    pod = rig.pop()
    rig.pop()
    rig.queue.add(info(make_pod("other").req(cpu="1")))
    assert rig.fail(pod, refused(FIT)) is Tier.UNSCHEDULABLE


def test_an_update_of_an_unknown_pod_adds_it_and_an_addition_of_a_known_one_updates_it() -> None:
    rig = Rig()
    rig.queue.add(info("p"))
    assert rig.tiers() == {"active": ["p"]}
    rig.add(make_pod("p").label(v="2"))
    assert rig.tiers() == {"active": ["p"]}
    assert rig.pop().info.pod.labels == {"v": "2"}
    rig.add("p")
    assert rig.tiers() == {}


@pytest.mark.parametrize("tier", [pytest.param(tier, id=tier.value) for tier in Tier])
def test_a_pod_is_deleted_from_any_tier(tier: Tier) -> None:
    rig = Rig(make_pod("p").gate("g") if tier is Tier.GATED else "p")
    if tier in (Tier.BACKOFF, Tier.UNSCHEDULABLE):
        rig.fail(rig.pop(), NO_REJECTION if tier is Tier.BACKOFF else refused(FIT))
    assert rig.tiers() == {tier.value: ["p"]}
    assert rig.queue.pending() == {each.value: int(each is tier) for each in Tier}
    rig.queue.delete(info("p").uid)
    assert rig.tiers() == {}
    assert rig.queue.pop(0) is None
    assert rig.queue.move(A_POD_LEFT) == 0


def test_a_pod_that_is_deleted_in_flight_does_not_come_back() -> None:
    rig = Rig("p")
    pod = rig.pop()
    rig.queue.delete(pod.uid)
    assert rig.fail(pod, refused(FIT)) is None
    assert rig.tiers() == {}
    assert rig.queue.pods_in_flight() == []


# ---- what it costs


def test_an_event_does_not_look_at_a_thousand_pods_that_it_cannot_help() -> None:
    rig = Rig()
    for number in range(1_000):
        rig.queue.add(info(make_pod(f"p{number}").req(cpu="64")))
    while isinstance(pod := rig.queue.pop(0), QueuedPod):
        rig.fail(pod, refused(FIT))
    asked = []

    def room(priority: int) -> dict[str, int]:
        asked.append(priority)
        return {"cpu": 1000, "pods": 1}

    assert rig.queue.move(A_POD_LEFT._replace(room=room)) == 0
    assert len(asked) == 1  # a hint is called once for equivalent pods
    assert rig.queue.pending()["unschedulable"] == 1_000


# ---- rules that wake their pods


def test_a_rule_wakes_the_pods_that_it_rejected() -> None:
    rig = Rig("p", "other")
    rig.refuse("rules:licence", FIT)
    rig.refuse(FIT)
    rig.queue.wake("rules:licence")
    assert rig.tiers() == {"active": ["p"], "unschedulable": ["other"]}
    assert rig.recorded.arrivals[-1] == ("active", "RuleWake")


def test_a_pod_that_a_rule_wakes_backs_off_first() -> None:
    rig = Rig("p")
    rig.refuse("rules:licence", after_seconds=0.0)
    rig.queue.wake("rules:licence")
    assert rig.tiers() == {"backoff": ["p"]}


@pytest.mark.parametrize(("rule", "tier"), [("rules:licence", Tier.BACKOFF), (FIT, Tier.UNSCHEDULABLE)])
def test_a_pod_in_flight_is_tried_again_if_the_rule_that_rejects_it_was_woken(rule: str, tier: Tier) -> None:
    rig = Rig("p")
    pod = rig.pop()
    rig.queue.wake("rules:licence")
    assert rig.fail(pod, refused(rule)) is tier


def test_every_rejected_pod_is_tried_again_after_events_may_have_been_missed() -> None:
    rig = Rig("p", "other")
    in_flight = rig.pop()
    rig.refuse("rules:a")
    rig.queue.events_missed()
    assert rig.recorded.arrivals[-1] == ("active", "EventsMissed")
    assert rig.fail(in_flight, refused(FIT)) is Tier.BACKOFF


def test_pods_that_the_previous_rules_rejected_are_requeued_and_filed_by_the_new_ones() -> None:
    rig = Rig("p", "other")
    rig.refuse("rules:a")
    rig.queue.rules_changed({"rules:b": Interests()})
    assert rig.tiers() == {"active": ["other", "p"]}
    assert rig.recorded.arrivals[-1] == ("active", "PolicyReload")
    rig.refuse("rules:b")
    assert rig.queue.move(A_NODE_CAME) == 0
    pod = rig.pop()
    rig.queue.rules_changed({})
    assert rig.fail(pod, refused("rules:b")) is Tier.BACKOFF


def test_a_pod_that_is_being_given_back_while_the_rules_change_is_tried_again() -> None:
    rig = Rig("p")
    pod = rig.pop()
    rig.queue.stop_recording_events(pod.uid)
    rig.queue.rules_changed({})
    assert rig.fail(pod, refused("rules:permit")) is Tier.BACKOFF
