"""Users' rules of Reserve and Permit in the loop: their order, pods that wait, and that each is given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from threading import Event
from typing import Any

import pytest

from examples.rules.gang import GANG, SIZE, whole_gang
from extender import Handle, Node, Pod, Wait, permit, reserve
from extender.app.upkeep import settle
from extender.engine.decide import SchedulingCycle
from extender.errors import OutcomeUnknown, Refused
from extender.plugins.registry import default_profile
from extender.plugins.users.binding import ReserveFunction
from extender.queue.entries import Tier
from extender.runtime.clock import ManualClock, TimeLimit
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.plugins.users.failures import OfItsOwnBase, Remembered
from tests.scheduler.world import NAME, World
from tests.stock.waiting import wait_until

NONE = "0/1 nodes are available: 1"
FIRST_FAILED, LAST_FAILED = (
    f'running {point} plugin "{name}": test_permit.py:' for point, name in (("Reserve", "first"), ("Permit", "last"))
)
LONG_SECONDS = 600.0
NEVER = {"StatefulSet": "Add"}  # no event of these tests


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def pod(name: str, cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def member(name: str, gang: str, size: int, cpu: str = "1") -> PodBuilder:
    return pod(name, cpu).label({GANG: gang}).annotation({SIZE: str(size)})


def world_with(*built: Any, rules: dict[str, ReserveFunction[..., object]], failures: Any = None, **more: Any) -> World:
    made = [rule.rule(name, dict(rule.arguments()), failures or Remembered()) for name, rule in rules.items()]
    return World(*built, profile=replace(default_profile(), permit=made), **more)


class Rules:
    """Two rules of Reserve and one of Permit that note their calls; `answers`: what they answer other than None."""

    def __init__(self, **answers: object) -> None:
        self.calls: list[str] = []
        self.answers = answers
        self.rules = {"first": self._rule("first", reserve), "second": self._rule("second", reserve)}
        self.rules["last"] = self._rule("last", permit)

    def _rule(self, name: str, decorator: Any) -> ReserveFunction[..., object]:
        def rule(pod: Pod, node: Node) -> object:
            self.calls.append(f"{name} {pod.name} on {node.name}")
            answer = self.answers.get(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        def undo(pod: Pod, node: Node) -> None:
            self.calls.append(f"undo {name} {pod.name}")

        decorated: ReserveFunction[..., object] = decorator(woken_by=NEVER)(rule)
        decorated.unreserve(undo)
        return decorated


ASKED = ["first p on n1", "second p on n1", "last p on n1"]
UNDONE = ["undo last p", "undo second p", "undo first p"]


def test_reserve_and_permit_run_in_their_order_and_the_pod_is_bound() -> None:
    rules = Rules()
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.settle()
    assert (world.node_of("p"), rules.calls) == ("n1", ASKED)


@pytest.mark.parametrize(
    ("answers", "asked", "message", "tier"),
    [
        pytest.param(
            {"first": "no licence"}, 1, "0/1 nodes are available: 1 no licence.", Tier.UNSCHEDULABLE, id="reserve"
        ),
        pytest.param(
            {"second": False}, 2, "0/1 nodes are available: 1 rejected by second.", Tier.UNSCHEDULABLE, id="False"
        ),
        pytest.param({"last": "not now"}, 3, "0/1 nodes are available: 1 not now.", Tier.UNSCHEDULABLE, id="permit"),
        pytest.param({"last": KeyError("x")}, 3, LAST_FAILED, Tier.BACKOFF, id="raises"),
        pytest.param(
            {"last": OfItsOwnBase()},
            3,
            LAST_FAILED,
            Tier.BACKOFF,
            id="raises what ends a process",
        ),
        pytest.param({"last": 5}, 3, LAST_FAILED, Tier.BACKOFF, id="a number"),
        pytest.param(
            {"first": Wait(5)},
            1,
            FIRST_FAILED,
            Tier.BACKOFF,
            id="Reserve cannot wait",
        ),
    ],
)
def test_a_pod_that_is_rejected_gives_everything_back(
    answers: dict[str, object], asked: int, message: str, tier: Tier
) -> None:
    rules = Rules(**answers)
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.settle()
    assert rules.calls == [*ASKED[:asked], *UNDONE]
    assert (world.node_of("p"), world.cache.overview().assumed) == ("", [])
    assert world.conditions[-1][2].startswith(message)
    assert [each.pod.name for each in world.queue.pods()[tier]] == ["p"]


def test_a_waiting_pod_keeps_its_place_and_others_go_on() -> None:
    rules = Rules(last=Wait(30))
    world = world_with(node("n1", cpu="2"), pod("p"), rules=rules.rules)
    world.settle()
    assert [each.node_name for each in world.cache.overview().assumed] == ["n1"]
    assert world.pod("p").status.nominated_node_name == "n1"
    rules.answers = {}
    world.put(pod("q"))
    world.put(pod("too-many"))
    world.settle()
    assert (world.node_of("p"), world.node_of("q"), world.node_of("too-many")) == ("", "n1", "")


def test_a_pod_that_waits_too_long_is_rejected_and_woken_by_the_events_of_its_rule_alone() -> None:
    rules = Rules(last=Wait(30))
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.settle()
    world.pass_time(31)
    assert rules.calls == [*ASKED, *UNDONE]
    assert "rejected due to timeout after waiting 30s at plugin last" in world.conditions[-1][2]
    assert world.pod("p").status.nominated_node_name == ""
    rules.answers = {}
    world.put(node("n2"))
    world.settle()
    world.pass_time(20)
    assert world.node_of("p") == ""
    world.pass_time(300)
    assert world.node_of("p") != ""


def test_a_wait_at_permit_needs_no_worker_and_its_time_is_written_as_go_does() -> None:
    world = world_with(node("n1"), pod("p"), rules=Rules(last=Wait(90)).rules)
    world.attempt()
    world.clock.advance(91)
    world.waiting.poll()
    assert world.binders.tasks == []
    world.preemptors.work()
    assert "rejected due to timeout after waiting 1m30s at plugin last" in world.conditions[-1][2]
    assert world.telemetry.permit_waits == [("Unschedulable", 91.0)]


def test_a_pod_that_is_preempted_at_permit_fails_in_the_words_of_kube_scheduler() -> None:
    rules = Rules(last=Wait(90))
    world = world_with(node("n1", cpu="1"), pod("low").priority(1), rules=rules.rules)
    world.settle()
    rules.answers = {}
    world.put(pod("high").priority(2))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("high"), world.pod("low").terminating) == ("n1", False)
    assert ("low", "SchedulerError", "waiting on permit for pod: preempted", "") in world.conditions
    assert [status for status, _ in world.telemetry.permit_waits] == ["Error"]


def test_nothing_is_written_for_a_pod_that_waits() -> None:
    """PreBind comes after Permit: a volume is no pod's before its gang is whole."""
    built = (make_storage_class("late", provisioner="kubernetes.io/no-provisioner"), make_pv("v", storage_class="late"))
    rules = Rules(last=Wait(30))
    world = world_with(node("n1"), *built, make_pvc("c", storage_class="late"), pod("p").pvc("c"), rules=rules.rules)
    world.settle()
    assert world.volumes.calls == []
    world.pass_time(31)
    assert world.cache.effective("PersistentVolume", "v") == world.objects["PersistentVolume", "v"]
    assert world.telemetry.permit_waits[0] == ("Unschedulable", 30.0)


def test_a_waiting_pod_that_is_preempted_or_deleted_gives_everything_back() -> None:
    rules = Rules(last=Wait(300))
    world = world_with(node("n1", cpu="1"), pod("low").priority(1), rules=rules.rules)
    world.settle()
    rules.answers = {}
    world.put(pod("high").priority(2))
    world.settle()
    world.pass_time(3)
    assert (world.node_of("high"), world.pod("low").terminating) == ("n1", False)
    assert [call for call in rules.calls if "low" in call][-3:] == [
        "undo last low",
        "undo second low",
        "undo first low",
    ]
    rules.answers = {"last": Wait(300)}
    world.put(node("n2"))
    world.put(pod("gone"))
    world.settle()
    world.delete("Pod", "default/gone")
    world.settle()
    assert rules.calls[-3:] == ["undo last gone", "undo second gone", "undo first gone"]


@pytest.mark.parametrize("answer", [Wait(300), None], ids=["it would wait", "it need not wait"])
def test_a_preemptor_rejects_a_pod_whose_binding_cycle_has_not_begun(answer: object) -> None:
    rules = Rules(last=answer)
    world = world_with(node("n1", cpu="1"), pod("low").priority(1), rules=rules.rules)
    world.attempt()  # no worker has taken up the binding cycle yet
    world.put(pod("high").priority(2))
    world.watch()
    world.attempt()
    world.preemptors.work()
    rules.answers = {}
    world.settle()
    world.pass_time(3)
    assert (world.node_of("high"), world.node_of("low"), world.pod("low").terminating) == ("n1", "", False)
    assert [call for call in rules.calls if "low" in call][3:6] == [
        "undo last low",
        "undo second low",
        "undo first low",
    ]


@pytest.mark.parametrize(
    ("fault", "undone_after"),
    [pytest.param(Refused("no", 403), 0, id="refused"), pytest.param(OutcomeUnknown("silence"), 40, id="unknown")],
)
def test_what_was_reserved_for_a_pod_that_is_not_bound_after_all_is_taken_back(
    fault: Exception, undone_after: int
) -> None:
    """A Binding without an answer keeps it until the watch, or the expiry, settles it."""
    rules = Rules()
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.faults = [fault]
    world.attempt()
    world.binders.work()
    settle(world.permits, world.cache)
    assert (rules.calls == ASKED) is bool(undone_after)
    over_at = world.clock.monotonic() + undone_after
    world.cache.expire(world.cache.overdue(over_at), over_at)
    settle(world.permits, world.cache)
    assert rules.calls == [*ASKED, *UNDONE]


def test_what_was_reserved_on_another_node_than_the_pod_turns_out_to_be_bound_to_is_taken_back() -> None:
    rules = Rules()
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.faults = [OutcomeUnknown("silence")]
    world.settle()
    world.put(node("n2"))
    world.put_object(world.pod("p").placed_on("n2"))
    world.settle()
    settle(world.permits, world.cache)
    assert rules.calls == [*ASKED, *UNDONE]


def test_what_the_next_attempt_has_reserved_is_not_taken_back_for_the_last_one() -> None:
    rules = Rules()
    world = world_with(node("n1"), pod("p"), rules=rules.rules)
    world.faults = [OutcomeUnknown("silence")]
    world.settle()
    over_at = world.clock.monotonic() + 40
    world.cache.expire(world.cache.overdue(over_at), over_at)
    world.clock.advance(40)
    world.queue.flush_backoff()

    def is_bound(_uid: str, _node_name: str) -> bool:
        assert world.attempt()  # just now
        return False

    world.permits.settle(is_bound)
    world.settle()
    assert world.node_of("p") == "n1"
    assert rules.calls == [*ASKED, *UNDONE, *ASKED]


@pytest.mark.parametrize("error", [RuntimeError("unreachable"), OfItsOwnBase()], ids=["an error", "of its own base"])
def test_a_rule_that_fails_to_undo_keeps_no_other_rule_from_undoing(error: BaseException) -> None:
    def fails(pod: Pod, node: Node) -> None:
        raise error

    rules, failures = Rules(last=False), Remembered()
    rules.rules["second"].unreserve(fails)
    world = world_with(node("n1"), pod("p"), rules=rules.rules, failures=failures)
    world.settle()
    assert rules.calls == [*ASKED, UNDONE[0], UNDONE[2]]
    assert [name for name, _ in failures.recorded] == ["second"]
    assert world.cache.overview().assumed == []


@pytest.mark.parametrize(("place", "point"), [("second", "Reserve"), ("last", "Permit")])
def test_a_rule_that_hangs_holds_the_loop_up_for_no_longer_than_a_decision_may_take(place: str, point: str) -> None:
    end, rules = Event(), Rules()
    rule = rules.rules[place]
    rule.function = partial(_hang, rule.function, end)
    world = world_with(node("n1"), pod("p"), pod("q"), rules=rules.rules, limit=TimeLimit(ManualClock(), 1.0))
    try:
        world.settle()
        assert (world.node_of("p"), world.node_of("q")) == ("", "n1")
        error = f"no decision within 1 s: {place} has not answered"
        assert world.conditions[0][2] == f'running {point} plugin "{place}": {error}'
        assert world.cache.overview().assumed == []
        undone = [call for call in UNDONE if place not in call]
        assert [call for call in rules.calls if call.startswith("undo")] == undone
    finally:
        end.set()

    def undone_late() -> bool:
        settle(world.permits, world.cache)
        return f"undo {place} p" in rules.calls

    assert wait_until(undone_late)
    world.pass_time(20)
    assert (world.node_of("p"), rules.calls[-3:]) == ("n1", ASKED)


def _hang(rule: Callable[..., object], end: Event, pod: Pod, node: Node) -> object:
    if pod.name == "p":
        end.wait(LONG_SECONDS)
    return rule(pod, node)


def test_a_rule_has_pods_tried_again_that_no_event_would_wake() -> None:
    @permit(woken_by=NEVER)
    def after_late(pod: Pod, node: Node, handle: Handle) -> str | None:
        if pod.name == "late":
            handle.activate(pod.namespace, {"app": "x"})
            return None
        return None if handle.count_placed(pod.namespace, {"role": "late"}) else "not yet"

    pods = [pod("early").label(app="x"), pod("other").label(app="y")]
    world = world_with(node("n1"), *pods, rules={"after_late": after_late})
    world.settle()
    world.pass_time(60)
    world.put(pod("late").label(role="late"))
    world.settle()
    assert [world.node_of(name) for name in ("early", "other", "late")] == ["n1", "", "n1"]


def test_a_pod_waits_for_no_rule_that_is_taken_out_while_it_is_asked() -> None:
    """The policy is adopted before the pod is among those that wait."""

    @permit(woken_by=NEVER)
    def goes(pod: Pod, node: Node) -> Wait:
        cycles = world.cycles
        assert isinstance(cycles, dict)
        cycles[NAME] = SchedulingCycle(default_profile(), Random(1))
        world.queue.rules_changed({})
        return Wait(900)

    world = world_with(node("n1"), pod("p"), rules={"goes": goes})
    world.settle()
    assert world.conditions[-1][2] == "0/1 nodes are available: 1 rule goes is no longer in the policy."
    world.pass_time(10)
    assert world.node_of("p") == "n1"


def test_a_pod_that_is_to_be_tried_again_while_a_rule_rejects_it_is_tried_again() -> None:
    """Another thread has seen in this moment that what the rule asks for is to be had."""
    free: list[str] = []

    @reserve(woken_by=NEVER)
    def licence(pod: Pod, node: Node, handle: Handle) -> str | None:
        if free:
            return None
        free.append("licence")
        handle.activate(pod.namespace, {"app": "x"})
        return "no licence"

    world = world_with(node("n1"), pod("p").label(app="x"), rules={"licence": licence})
    world.settle()
    world.pass_time(10)
    assert world.node_of("p") == "n1"


# ---- the gang of examples/rules/gang.py


def gangs(*built: Any, **more: Any) -> World:
    return world_with(*built, rules={"gang": whole_gang}, **more)


def test_a_gang_is_bound_once_it_is_whole() -> None:
    world = gangs(node("n1"), *(member(f"a{i}", "a", 3) for i in range(2)), pod("alone"))
    world.settle()
    assert [world.node_of(name) for name in ("a0", "a1", "alone")] == ["", "", "n1"]
    world.put(member("a2", "a", 3))
    world.settle()
    assert [world.node_of(f"a{i}") for i in range(3)] == ["n1"] * 3


def test_a_gang_without_room_for_all_gives_way_to_one_that_fits() -> None:
    world = gangs(node("n1", cpu="3"), *(member(f"a{i}", "a", 4) for i in range(4)))
    world.settle()
    for i in range(2):
        world.put(member(f"b{i}", "b", 2))
    world.settle()
    world.pass_time(300)
    assert [world.node_of(f"b{i}") for i in range(2)] == ["n1"] * 2
    assert [world.node_of(f"a{i}") for i in range(4)] == [""] * 4


def test_a_member_that_comes_late_finds_the_others() -> None:
    """They have given up by then: it has them tried again while it waits itself."""
    world = gangs(node("n1"), *(member(f"a{i}", "a", 3) for i in range(2)))
    world.settle()
    world.pass_time(100)
    world.put(member("a2", "a", 3))
    world.pass_time(30)
    assert [world.node_of(f"a{i}") for i in range(3)] == ["n1"] * 3


def test_a_member_that_is_replaced_goes_to_the_others_that_run() -> None:
    running = [member(f"a{i}", "a", 3).node("n1") for i in range(2)]
    world = gangs(node("n1"), *running, member("a2", "a", 3))
    world.settle()
    assert world.node_of("a2") == "n1"


class Story:
    """One seed's: gangs come, and everything happens in any order. The scheduler is killed now and then."""

    sizes = {"a": 3, "b": 4, "c": 2}  # noqa: RUF012  never written to

    def __init__(self, seed: int) -> None:
        self.random, self.seed = Random(seed), seed
        self.world = gangs(node("n1", cpu="5"), seed=seed)
        self.coming = [member(f"{gang}{i}", gang, size) for gang, size in self.sizes.items() for i in range(size)]
        self.random.shuffle(self.coming)

    def step(self) -> None:
        world, random = self.world, self.random
        may_happen: list[Callable[[], object]] = [
            self._come,
            world.attempt,
            lambda: world.binders.tasks and world.binders.tasks.pop(0)(),
            lambda: world.untold and world.untold.pop(0)(),
            world.waiting.poll,
            lambda: world.pass_time(random.choice((1, 20))),
            lambda: self._restart() if random.random() < 0.1 else None,
        ]
        random.choice(may_happen)()

    def _come(self) -> None:
        if self.coming:
            self.world.put(self.coming.pop())

    def _restart(self) -> None:
        """A new scheduler begins with the objects that the old one has left."""
        objects, self.world = self.world.objects, gangs(seed=self.seed)
        for obj in objects.values():
            self.world.put_object(obj)

    def pods(self) -> dict[str, str]:
        """Returns the node of each pod that has come."""
        return {obj.name: obj.node_name for obj in self.world.objects.values() if isinstance(obj, Pod)}


@pytest.mark.parametrize("seed", range(10))
def test_gangs_in_any_order_of_events_and_restarts(seed: int) -> None:
    """No pod is bound before its gang is whole; in the end all are bound, and nothing is left behind."""
    story = Story(seed)
    for _ in range(150):
        story.step()
        pods = story.pods()
        for gang in {name[0] for name, node_name in pods.items() if node_name}:
            assert sum(name[0] == gang for name in pods) == story.sizes[gang]
    for each in story.coming:
        story.world.put(each)
    story.world.pass_time(70)
    story.world.put(node("n2"))
    story.world.pass_time(100)
    assert [name for name, node_name in story.pods().items() if not node_name] == []
    assert (story.world.cache.overview().assumed, story.world.waiting.uids()) == ([], [])
