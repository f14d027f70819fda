"""bind and users' rules of Reserve and Permit: what is reserved is taken back, a bind that waits holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from examples.rules.gang import GANG, SIZE, whole_gang
from extender import Node, Pod, Wait, permit, reserve
from extender.app.upkeep import settle
from extender.cache.cache import Cache
from extender.cluster.election.lease import Fence
from extender.errors import ExtenderError, OutcomeUnknown, Refused
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.model.pod import Pod as PodObject
from extender.plugins.registry import default_profile
from extender.plugins.users.binding import ReserveFunction
from extender.runtime.clock import NO_LIMIT, ManualClock, TimeLimit
from extender.runtime.ports import Check, Telemetry, always
from extender.runtime.unsettled import UnsettledWrites
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.filter import Filter
from tests.builders import Object, make_node, make_pod
from tests.plugins.users.failures import Remembered
from tests.stock.waiting import wait_until
from tests.verbs.cluster import PROFILES, FakeBinder, answer, args, binding, cache_of, callers_that_share

NODE = make_node("n").allocatable(cpu="4", memory="4Gi", pods="10").obj()
POD = make_pod("p").uid("p").req(cpu="1").obj()
LONG = 600.0
"""Longer than any test: a wait that ends by itself would be seen."""


class WithRules:
    """A Bind with rules."""

    def __init__(
        self,
        cache: Cache,
        binder: Any,
        wait: PermitWait | None,
        rules: Mapping[str, ReserveFunction[..., object]],
        limit: TimeLimit = NO_LIMIT,
        fence: Callable[[], Check] = lambda: always,
    ) -> None:
        made = [rule.rule(name, dict(rule.arguments()), Remembered()) for name, rule in rules.items()]
        self.profiles = Profiles([replace(default_profile(), permit=made)])
        self.cache, self.permits = cache, Permits(cache.snapshot, limit=limit)
        self.permit_wait = wait
        self.verb = Bind(cache, self.profiles, binder, Telemetry(), limit, self.permits, wait, fence=fence)

    def bind(self, pod: Object) -> str:
        error: str = answer(self.verb, binding(pod, "n"))["Error"]
        return error

    def await_waiting(self, *uids: str) -> None:
        """Returns once these pods wait at Permit; a permit is pending a moment before its pod waits."""
        waiting = self.permit_wait
        assert waiting is not None
        assert wait_until(lambda: set(waiting.uids()) == {*uids})


class Licences:
    """A rule of Reserve that knows which pods have a licence, and one of Permit that answers `answer`."""

    def __init__(self, answer: object = None) -> None:
        self.held: list[str] = []
        self.rules: Mapping[str, ReserveFunction[..., object]] = {"take": reserve(self._take), "let": permit(self._let)}
        self.rules["take"].unreserve(self._give_back)
        self.answer = answer

    def _take(self, pod: Pod, node: Node) -> None:
        self.held.append(f"{pod.name} on {node.name}")

    def _let(self, pod: Pod, node: Node) -> object:
        assert self.held == ["p on n"]
        return self.answer

    def _give_back(self, pod: Pod, node: Node) -> None:
        self.held.clear()


TAKE, LET = 'running Reserve plugin "take": ', 'running Permit plugin "let": '


def member(name: str, size: int = 2) -> Object:
    return make_pod(name).uid(name).req(cpu="1").label({GANG: "g"}).annotation({SIZE: str(size)}).obj()


@pytest.mark.parametrize(
    ("answer", "errors", "recorded", "held"),
    [
        pytest.param(None, [], "", ["p on n"], id="bound"),
        pytest.param("not now", [], "not now", [], id="rejected"),
        pytest.param(5, [], 'running Permit plugin "let": test_bind_permit.py:', [], id="fails"),
        pytest.param(Wait(60), [], "rejected due to timeout after waiting 0s at plugin let", [], id="may not wait"),
        pytest.param(None, [Refused("denied", 403)], "denied", [], id="the API server refuses"),
        pytest.param(None, [OutcomeUnknown("silence")], "silence", ["p on n"], id="unknown"),
    ],
)
def test_reserve_and_permit_run_before_the_binding(
    answer: object, errors: list[ExtenderError], recorded: str, held: list[str]
) -> None:
    licences, binder = Licences(answer), FakeBinder(*errors)
    given = WithRules(cache_of(NODE, POD), binder, None, licences.rules)
    assert given.bind(POD)[: len(recorded) or None] == recorded
    assert (licences.held, given.cache.placement("p") is not None) == (held, bool(held))
    assert binder.bound == ([("p", "n")] if recorded == "" else [])


@pytest.mark.parametrize("waits_for", ["a rule", "a connection"])
def test_a_bind_that_waits_into_a_later_term_is_not_sent(waits_for: str) -> None:
    """Another process may have led in between, and filled the node."""
    terms, binder = [1], FakeBinder()

    def lose_and_win(what: str) -> None:
        if what == waits_for:
            terms.append(terms[-1] + 1)

    def rule(pod: Pod, node: Node) -> None:
        lose_and_win("a rule")

    binder.during = lambda: lose_and_win("a connection")
    fence = Fence(UnsettledWrites(10.0), lambda: terms[-1])
    rules = {"let": permit(rule)}
    given = WithRules(cache_of(NODE, POD), binder, None, rules, fence=lambda: fence.of_this_term().check)
    assert given.bind(POD) == "this process is not the leader, so it must not write"
    assert (binder.bound, given.cache.placement("p")) == ([], None)


def test_a_rule_that_hangs_holds_up_no_pod_without_rules() -> None:
    asked, end = threading.Event(), threading.Event()

    @reserve
    def hanging(_: Pod, __: Node) -> None:
        asked.set()
        end.wait(LONG)

    other = make_pod("other").uid("other").scheduler("plain").req(cpu="1").obj()
    given = WithRules(cache_of(NODE, POD, other), FakeBinder(), None, {"hanging": hanging})
    given.profiles.replace([*given.profiles.all, replace(default_profile(), name="plain")])
    with ThreadPoolExecutor() as threads:
        hangs = threads.submit(given.bind, POD)
        try:
            assert asked.wait(LONG)
            assert threads.submit(given.bind, other).result(60) == ""
            assert not hangs.done()
        finally:
            end.set()
        assert hangs.result() == ""


class Hanging:
    """A rule of Reserve and one of Permit that hold what they have seen; `place` is where pod p hangs until `end`."""

    def __init__(self, place: str) -> None:
        self.held: list[str] = []
        self.end, self._place = threading.Event(), place
        self.rules = {"take": self._rule("take", reserve), "let": self._rule("let", permit)}

    def _rule(self, name: str, decorator: Any) -> ReserveFunction[..., object]:
        rule: ReserveFunction[..., object] = decorator(lambda pod, _: self._ask(name, pod))
        rule.unreserve(lambda pod, _: self._give_back(name, pod))
        return rule

    def _ask(self, name: str, pod: Pod) -> str | None:
        self._pass(name, pod)
        self.held.append(f"{name} {pod.name}")
        return "no" if self._place == "unreserve of take" and name == "let" and pod.name == "p" else None

    def _give_back(self, name: str, pod: Pod) -> None:
        self._pass(f"unreserve of {name}", pod)
        self.held = [each for each in self.held if each != f"{name} {pod.name}"]

    def _pass(self, place: str, pod: Pod) -> None:
        if place == self._place and pod.name == "p":
            self.end.wait(LONG)


@pytest.mark.parametrize(
    ("place", "recorded", "again"),
    [
        pytest.param("take", f"{TAKE}no decision within 1 s: take has not answered", "", id="Reserve"),
        pytest.param("let", f"{LET}no decision within 1 s: let has not answered", "", id="Permit"),
        pytest.param("unreserve of take", "no", "no", id="Unreserve"),
    ],
)
def test_a_rule_that_hangs_is_left_in_time_and_takes_back_what_it_did_once_it_ends(
    place: str, recorded: str, again: str
) -> None:
    hanging, other = Hanging(place), make_pod("other").uid("other").req(cpu="1").obj()
    limit = TimeLimit(ManualClock(), 1.0)
    given = WithRules(cache_of(NODE, POD, other), FakeBinder(), None, hanging.rules, limit)
    with ExitStack() as stack:
        stack.callback(hanging.end.set)
        assert given.bind(POD) == recorded
        assert given.cache.placement("p") is None
        assert given.bind(POD) == f"{LET if place == 'let' else TAKE}still busy with an earlier attempt"
        assert given.bind(other) == ""
        settle(given.permits, given.cache)

    # Before it settles the rule is not asked again; after that it may hold what the new attempt took, and no more.
    def settled() -> bool:
        settle(given.permits, given.cache)
        return given.bind(POD) == again

    assert wait_until(settled)
    assert hanging.held == ["take other", "let other", *([] if again else ["take p", "let p"])]


def test_what_is_reserved_for_an_unknown_outcome_is_taken_back_when_the_pod_expires() -> None:
    licences, clock = Licences(), ManualClock()
    given = WithRules(cache_of(NODE, POD, clock=clock), FakeBinder(OutcomeUnknown("silence")), None, licences.rules)
    given.bind(POD)
    settle(given.permits, given.cache)
    assert licences.held == ["p on n"]
    clock.advance(31)
    given.cache.expire(given.cache.overdue(clock.monotonic()), clock.monotonic())
    settle(given.permits, given.cache)
    assert licences.held == []


def test_an_error_of_the_rules_surroundings_frees_the_place() -> None:
    given = WithRules(cache_of(NODE, POD), FakeBinder(), None, Licences().rules)
    given.permits.run = None  # type: ignore[assignment, method-assign]  # a fault in what runs them
    with pytest.raises(TypeError):
        given.bind(POD)
    assert given.cache.placement("p") is None


class Calls:
    """Binds in threads; those that still wait in the end are let go."""

    def __init__(self, given: WithRules, stack: ExitStack) -> None:
        self._given, self._pool = given, stack.enter_context(ThreadPoolExecutor())
        stack.callback(self._let_go)

    def bind(self, pod: Object) -> Future[str]:
        return self._pool.submit(self._given.bind, pod)

    def _let_go(self) -> None:
        for each in self._given.permits.pending("gang"):
            each.reject("gang", "the test is over")


@pytest.fixture
def with_gang(request: pytest.FixtureRequest) -> Callable[..., tuple[WithRules, Calls, FakeBinder]]:
    stack = ExitStack()
    request.addfinalizer(stack.close)

    def make(most_pods: int, *pods: Object) -> tuple[WithRules, Calls, FakeBinder]:
        binder = FakeBinder()
        given = WithRules(cache_of(NODE, *pods), binder, PermitWait(LONG, most_pods), {"gang": whole_gang})
        return given, Calls(given, stack), binder

    return make


def test_the_last_of_a_gang_lets_all_go(with_gang: Any) -> None:
    """While one waits its place counts, and others are judged and bound."""
    pods = [member(f"g{i}", 3) for i in range(3)]
    given, calls, binder = with_gang(9, POD, *pods)
    first, second = calls.bind(pods[0]), calls.bind(pods[1])
    given.await_waiting("g0", "g1")
    big = make_pod("big").req(cpu="3").obj()
    refused = answer(Filter(given.cache, PROFILES, Telemetry()), args(big, names=["n"]))
    assert refused["FailedNodes"] == {"n": "Insufficient cpu"}
    assert given.bind(POD) == ""
    assert binder.bound == [("p", "n")]
    assert calls.bind(pods[2]).result() == ""
    assert (first.result(), second.result()) == ("", "")
    assert sorted(binder.bound) == [("g0", "n"), ("g1", "n"), ("g2", "n"), ("p", "n")]


def test_more_than_may_wait_at_once_are_refused(with_gang: Any) -> None:
    """The threads of the others are for those who call."""
    pods = [member(f"g{i}", 3) for i in range(3)]
    given, calls, binder = with_gang(1, *pods)
    first = calls.bind(pods[0])
    given.await_waiting("g0")
    assert given.bind(pods[1]) == "too many pods are waiting at Permit"
    assert first.result() == "another pod of the gang could not be placed"
    assert (binder.bound, given.cache.size().assumed_pods) == ([], 0)


def test_the_wait_of_a_deleted_pod_ends_and_gives_its_place_and_its_slot_back(with_gang: Any) -> None:
    pods = [member(f"g{i}") for i in range(2)]
    given, calls, binder = with_gang(1, *pods)
    first = calls.bind(pods[0])
    given.await_waiting("g0")
    wait, cache = given.permit_wait, given.cache
    wait.end_deleted(lambda pod: cache.find_pod(pod.uid, pod.key) is not None)
    assert wait.uids() == ["g0"]
    cache.deleted("Pod", msgspec.convert(pods[0], PodObject))
    wait.end_deleted(lambda pod: cache.find_pod(pod.uid, pod.key) is not None)
    assert first.result() == "pod default/g0 no longer exists"
    assert (wait.uids(), given.permits.pending("gang"), cache.size().assumed_pods) == ([], [], 0)
    calls.bind(pods[1])  # the only slot is free again
    given.await_waiting("g1")
    assert binder.bound == []


def test_a_call_that_is_repeated_waits_with_the_first(with_gang: Any) -> None:
    pods = [member("g0"), member("g1")]
    given, calls, binder = with_gang(9, *pods)
    first, again = calls.bind(pods[0]), calls.bind(pods[0])
    given.await_waiting("g0")
    assert wait_until(lambda: callers_that_share(given.verb, "g0") == 1)
    assert given.bind(pods[1]) == ""
    assert (first.result(), again.result()) == ("", "")
    assert sorted(binder.bound) == [("g0", "n"), ("g1", "n")]
