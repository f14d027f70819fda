"""Users' rules of PreEnqueue, QueueSort, PostFilter, PreBind and PostBind in the loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from extender import (
    Handle,
    Node,
    Nominate,
    Pod,
    Service,
    post_bind,
    post_filter,
    pre_bind,
    pre_enqueue,
    predicate,
    queue_sort,
    reserve,
)
from extender.framework.profile import Profile
from extender.model.kinds import custom_kind
from extender.model.meta import CustomObject, ObjectMeta
from extender.plugins.registry import default_profile
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.plugins.users.rule_calls import OfflineHost
from extender.queue.entries import Entity, Tier
from extender.runtime.clock import Deadline, SystemClock, TimeLimit
from extender.runtime.threads import WorkerPool, log_error
from tests.builders import (
    ZONE,
    NodeBuilder,
    PodBuilder,
    expression,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_service,
    make_storage_class,
    node_term,
)
from tests.plugins.users.failures import Remembered
from tests.scheduler.world import NAME, World

WAIT_SECONDS = 60.0


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def pod(name: str, cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def made(rule: Any, name: str, host: Any = None) -> Any:
    return rule.rule(name, {}, host or OfflineHost())


def world_of(*built: Any, **points: Any) -> World:
    """Returns a loop whose profile has these rules; they are in force."""
    profile: Profile = replace(default_profile(), **points)
    world = World(profile=profile)
    put_in_force([profile], RunningProcess(world.queue.wake, world.permits))
    for each in built:
        world.put(each)
    world.watch()
    return world


# ---- PreEnqueue


@pre_enqueue(woken_by={"Service": "Add"})
def after_its_service(pod: Pod, *, handle: Handle) -> str | None:
    return None if handle.objects.get(Service, f"{pod.namespace}/web") else "waiting for the service web"


def test_a_pod_is_not_tried_before_a_pre_enqueue_rule_lets_it_in() -> None:
    world = world_of(node("n1"), pod("p"), pre_enqueue=[made(after_its_service, "gate")])
    world.settle()
    (queued,) = [queued for _, queued in world.queue.queued()]
    assert (world.node_of("p"), queued.attempts) == ("", 0)
    assert queued.gate is not None
    assert (queued.gate.plugin, queued.gate.reasons) == ("gate", ("waiting for the service web",))
    world.put(node("n2"))  # an event that the rule does not name
    world.settle()
    assert [info.pod.name for info in world.queue.pods()[Tier.GATED]] == ["p"]
    world.put(make_service("web", {}))
    world.settle()
    assert world.node_of("p") != ""


def test_a_wake_lets_the_selected_pods_in() -> None:
    let_in: set[str] = set()

    @pre_enqueue(woken_by={"StatefulSet": "Add"})
    def listed(pod: Pod) -> bool:
        return pod.name in let_in

    world = world_of(node("n1"), pod("a").label(app="x"), pod("b").label(app="y"), pre_enqueue=[made(listed, "listed")])
    world.settle()
    let_in |= {"a", "b"}
    world.queue.wake("listed", "default", {"app": "x"})
    world.settle()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    listed.wake()
    world.settle()
    assert world.node_of("b") == "n1"


def test_a_failing_pre_enqueue_rule_holds_back_only_its_own_pods() -> None:
    @pre_enqueue
    def fails_for_bad(pod: Pod) -> bool:
        return not pod.labels["bad"]

    host = Remembered()
    world = world_of(node("n1"), pod("p"), pod("q").label(bad=""), pre_enqueue=[made(fails_for_bad, "gate", host)])
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("", "n1")
    assert ("gate", "KeyError") in host.recorded


class TimedHost(Remembered):
    """A host whose rules have a time limit, and therefore run in other threads."""

    def begin(self) -> Deadline:
        return TimeLimit(SystemClock(), 60.0).begin()


@pytest.mark.parametrize("make_host", [Remembered, TimedHost], ids=["in the queue's thread", "in another thread"])
@pytest.mark.parametrize("method", ["wake", "activate", "decorated.wake"])
def test_a_rule_of_the_queue_that_wakes_pods_fails_at_once(make_host: type[Remembered], method: str) -> None:
    host = make_host()

    @pre_enqueue
    def wakes(pod: Pod, *, handle: Handle) -> bool:
        if method == "wake":
            handle.wake()
        elif method == "activate":
            handle.activate("default", {})
        else:
            wakes.wake()
        return True

    world = world_of(node("n1"), pod("p"), pre_enqueue=[made(wakes, "wakes", host)])
    assert [info.pod.name for info in world.queue.pods()[Tier.GATED]] == ["p"]
    assert host.recorded == [("wakes", "RuntimeError")]
    wakes.wake()  # from outside it works
    assert host.recorded == 2 * [("wakes", "RuntimeError")]


def test_a_sort_that_activates_pods_sorts_the_pod_last() -> None:
    @queue_sort
    def activates(pod: Pod, *, handle: Handle) -> int:
        if pod.name == "first":
            handle.activate("default", {})
        return 0

    host = Remembered()
    world = world_of(queue_sort=made(activates, "activates", host))
    for each in (pod("first"), pod("second")):
        world.put(each)
    world.watch()
    entity = world.queue.pop(0)
    assert entity is not None
    assert (entity.info.pod.name, set(host.recorded)) == ("second", {("activates", "RuntimeError")})


@predicate(woken_by={"CustomObject": "Update"})
def while_open(pod: Pod, node: Node, *, handle: Handle) -> bool:
    door = handle.objects.get("Door", "front")
    return door is not None and door.content["open"]


def test_a_change_of_a_watched_kind_wakes_the_pods_that_a_rule_refused() -> None:
    door = custom_kind("example.com/v1", "Door", "doors").type
    assert issubclass(door, CustomObject)
    profile = default_profile()
    world = world_of(node("n1"), pod("p"), predicates=[*profile.predicates, made(while_open, "while_open")])
    for is_open, placed_on in ((False, ""), (True, "n1")):
        world.put_object(door(metadata=ObjectMeta(name="front"), content={"open": is_open}))
        world.clock.advance(10)
        world.settle()
        assert world.node_of("p") == placed_on


# ---- QueueSort


@queue_sort
def gold_first(pod: Pod) -> int:
    return 0 if pod.labels.get("tier") == "gold" else 1


def test_pods_are_tried_in_the_order_of_the_rule() -> None:
    world = world_of(queue_sort=made(gold_first, "gold"))
    for each in (pod("first"), pod("high").priority(9), pod("gold").label(tier="gold"), pod("last")):
        world.put(each)
        world.clock.advance(1)
        world.watch()
    popped: Iterator[Entity] = iter(lambda: world.queue.pop(0), None)
    assert [queued.info.pod.name for queued in popped] == ["gold", "high", "first", "last"]


# ---- PostFilter


@predicate(woken_by={"StatefulSet": "Add"})
def full(pod: Pod, node: Node) -> str:
    return "node(s) were full"


def test_a_post_filter_rule_nominates_the_pod_to_a_node() -> None:
    seen: list[dict[str, str]] = []

    @post_filter
    def second(pod: Pod, refused: dict[str, str]) -> Nominate:
        seen.append(dict(refused))
        return Nominate("n2")

    profile = default_profile()
    predicates = [*profile.predicates, made(full, "full")]
    world = world_of(node("n1"), node("n2"), pod("p"), predicates=predicates, post_filter=[made(second, "second")])
    world.settle()
    assert seen == [{"n1": "node(s) were full", "n2": "node(s) were full"}]
    assert world.conditions[-1][1:] == ("Unschedulable", "0/2 nodes are available: 2 node(s) were full.", "n2")


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        pytest.param(None, [], id="None"),
        pytest.param("no node will be free", [], id="a reason"),
        pytest.param(5, [("mine", "TypeError")], id="a number"),
        pytest.param(Nominate("n9"), [("mine", "ValueError")], id="no such node"),
    ],
)
def test_preemption_follows_if_no_rule_nominates(answer: object, failures: list[tuple[str, str]]) -> None:
    host = Remembered()
    rule = post_filter(lambda pod, refused: answer).rule("mine", {}, host)
    world = world_of(node("n1", "1"), pod("victim").node("n1"), pod("p").priority(5), post_filter=[rule])
    world.settle()
    assert host.recorded == failures
    assert world.pod("victim").terminating
    placement = "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    assert world.conditions[-1][2] == f"0/1 nodes are available: 1 Insufficient cpu. {placement}"


def test_the_message_has_the_reasons_of_all_that_could_not_help() -> None:
    rules = [
        post_filter(lambda pod, refused, *, reason=reason: reason).rule(reason, {}, Remembered())
        for reason in ("no node will be free", "the queue is closed")
    ]
    world = world_of(node("n1", "1"), pod("first").node("n1"), pod("p"), post_filter=rules)
    world.settle()
    assert world.conditions[-1][2] == (
        "0/1 nodes are available: 1 Insufficient cpu. no node will be free, the queue is closed, "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


# ---- PreBind and PostBind


def binding_rules(calls: list[str], **answers: object) -> dict[str, Any]:
    def called(point: str, pod: Pod) -> object:
        calls.append(f"{point} {pod.name}")
        answer = answers.get(point)
        if isinstance(answer, Exception):
            raise answer
        return answer

    held = reserve(woken_by={"StatefulSet": "Add"})(lambda pod, node: called("reserve", pod))
    held.unreserve(lambda pod, node: called("unreserve", pod))
    prepare = pre_bind(woken_by={"StatefulSet": "Add"})(lambda pod, node: called("prebind", pod))
    done = post_bind(lambda pod, node: called("postbind", pod))
    host = Remembered()
    return {
        "permit": [made(held, "held", host)],
        "pre_bind": [made(prepare, "prepare", host)],
        "post_bind": [made(done, "done", host)],
    }


def test_pre_bind_runs_before_and_post_bind_after_the_bind() -> None:
    calls: list[str] = []
    world = world_of(node("n1"), pod("p"), **binding_rules(calls))
    world.settle()
    assert (world.node_of("p"), calls) == ("n1", ["reserve p", "prebind p", "postbind p"])


def test_decisions_go_on_while_every_pre_binder_is_busy() -> None:
    gate, pods = threading.Event(), [f"p{number}" for number in range(60)]
    slow = made(pre_bind(lambda pod, node: None if gate.wait(WAIT_SECONDS) else "too late"), "slow")
    pre_binders = WorkerPool("pre-binder", 1, log_error)
    world = World(
        node("n1").allocatable(cpu="4", memory="16Gi", pods="100"),
        *(pod(name, "1m") for name in pods),
        profile=replace(default_profile(), pre_bind=(slow,)),
        pre_binders=pre_binders,
    )
    pre_binders.start()
    with ThreadPoolExecutor(1) as loop:
        decided = loop.submit(lambda: [world.attempt() for _ in pods])
        assert decided.result(WAIT_SECONDS) == [True] * 60
    assert len(world.cache.overview().assumed) == 60
    gate.set()
    pre_binders.stop(WAIT_SECONDS)
    assert {world.node_of(name) for name in pods} == {"n1"}


@pytest.mark.parametrize(
    ("answer", "message", "tier"),
    [
        pytest.param("no network", "no network", Tier.UNSCHEDULABLE, id="rejects"),
        pytest.param(
            KeyError("x"), 'running PreBind plugin "prepare": test_users_rules.py:', Tier.BACKOFF, id="raises"
        ),
    ],
)
def test_a_pod_that_pre_bind_rejects_is_not_bound_and_unreserved(answer: object, message: str, tier: Tier) -> None:
    calls: list[str] = []
    world = world_of(node("n1"), pod("p"), **binding_rules(calls, prebind=answer))
    world.settle()
    assert (world.node_of("p"), world.cache.overview().assumed) == ("", [])
    assert calls == ["reserve p", "prebind p", "unreserve p"]
    assert world.conditions[-1][2].startswith(message)
    assert [each.pod.name for each in world.queue.pods()[tier]] == ["p"]


def test_an_event_during_the_call_of_a_pre_bind_rule_wakes_the_pod() -> None:
    answers: list[str | None] = ["no service", None]

    def needs_service(_pod: Pod, _node: Node) -> str | None:
        if len(answers) == 2:
            world.put(make_service("s", {"app": "web"}))
            world.watch()
        return answers.pop(0)

    rule = made(pre_bind(woken_by={"Service": "Add"})(needs_service), "needs-service")
    world = world_of(node("n1"), pod("p"), pre_bind=[rule])
    world.settle()
    world.pass_time(30)
    assert world.node_of("p") == "n1"


def test_pre_bind_runs_once_the_volumes_of_the_pod_are_bound() -> None:
    calls: list[str] = []
    volume = make_pv("v", storage_class="late", node_terms=[node_term(expression(ZONE, "In", "z1"))])
    objects = (make_storage_class("late"), volume, make_pvc("c", storage_class="late"))
    world = world_of(node("n1").label({ZONE: "z1"}), *objects, pod("p").pvc("c"), **binding_rules(calls))
    world.settle()
    assert (world.node_of("p"), calls) == ("", ["reserve p"])
    world.volumes.complete()
    world.settle()
    assert (world.node_of("p"), calls) == ("n1", ["reserve p", "prebind p", "postbind p"])


def test_a_failure_of_post_bind_changes_nothing() -> None:
    calls: list[str] = []
    world = world_of(node("n1"), pod("p"), **binding_rules(calls, postbind=KeyError("x")))
    world.settle()
    assert (world.node_of("p"), calls) == ("n1", ["reserve p", "prebind p", "postbind p"])
