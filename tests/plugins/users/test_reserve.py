"""Rules of Reserve and Permit: what they may answer."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from extender.app.policies import watching
from extender.errors import BindingFailed
from extender.framework.permit import NO_PERMITS, Wait
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.users.binding import permit, post_bind, pre_bind, reserve
from extender.plugins.users.rule_calls import LiveHost, OfflineHost
from extender.runtime.clock import NO_DEADLINE, NO_LIMIT, ManualClock, SystemClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.runtime.threads import HangingCalls
from tests.builders import make_pod
from tests.framework.cluster import pod_info
from tests.queue.queueing import node


class Messages(OfflineHost):
    """The errors of rules, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[str] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.recorded.append(f"{rule}: {type(error).__name__}: {error}")


def asked(decorator: object, answer: object, failures: Messages) -> float:
    """What a rule that gives this answer says of a pod: how many seconds it may wait."""
    function = reserve if decorator is reserve else permit
    rule = function(lambda pod, node: answer).rule("mine", {}, failures)
    return rule.run(pod_info(make_pod("p").obj()).pod, node("n"), NO_PERMITS, NO_DEADLINE)


@pytest.mark.parametrize("decorator", [reserve, permit])
def test_a_pod_that_is_let_through_does_not_wait(decorator: object) -> None:
    assert [asked(decorator, answer, Messages()) for answer in (True, None)] == [0, 0]


@pytest.mark.parametrize("decorator", [reserve, permit])
@pytest.mark.parametrize(
    ("answer", "reason"), [(False, "rejected by mine"), ("", "rejected by mine"), ("no licence", "no licence")]
)
def test_a_pod_that_is_rejected_has_a_reason_and_the_rule_has_not_failed(
    decorator: object, answer: object, reason: str
) -> None:
    failures = Messages()
    with pytest.raises(BindingFailed) as rejected:
        asked(decorator, answer, failures)
    assert (str(rejected.value), failures.recorded) == (reason, [])


def test_a_rule_of_permit_may_have_the_pod_wait() -> None:
    assert asked(permit, Wait(7), Messages()) == 7


@pytest.mark.parametrize(
    ("decorator", "answer", "recorded"),
    [
        (reserve, Wait(7), "a rule of reserve must return True, None, False or a reason, not Wait(timeout_seconds=7)"),
        (reserve, 5, "a rule of reserve must return True, None, False or a reason, not 5"),
        (permit, 5, "a rule of permit must return True, None, Wait(seconds), False or a reason, not 5"),
    ],
)
def test_any_other_answer_is_a_failure_that_says_what_is_allowed(
    decorator: object, answer: object, recorded: str
) -> None:
    failures = Messages()
    point = recorded.split()[3].title()
    with pytest.raises(
        BindingFailed, match=rf'^running {point} plugin "mine": test_reserve\.py:\d+: TypeError: a rule'
    ):
        asked(decorator, answer, failures)
    assert failures.recorded == [f"mine: TypeError: {recorded}"]


def test_an_exception_of_post_bind_is_reported() -> None:
    def fails(pod: Pod, node: Node) -> None:
        raise KeyError("x")

    failures = Messages()
    post_bind(fails).rule("mine", {}, failures).run(pod_info(make_pod("p").obj()).pod, node("n"), NO_PERMITS)
    assert failures.recorded == ["mine: KeyError: 'x'"]


HUNG = "rule has not returned yet rule=mine pod=default/p node=n seconds=5"


@pytest.mark.parametrize("kind", [reserve, permit, pre_bind, post_bind])
@pytest.mark.parametrize(("seconds", "expected"), [(4, []), (9, [HUNG])])
def test_a_rule_that_hangs_is_logged_once_while_it_hangs(
    kind: Any, seconds: int, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    hanging = HangingCalls(clock)

    def slow(_: Pod, __: Node) -> None:
        for _second in range(seconds):
            clock.advance(1)
            hanging.log()

    rule = kind(slow).rule(
        "mine", {}, LiveHost(Telemetry(), clock, NO_LIMIT, lambda *_: None, lambda *_: None, watching(hanging))
    )
    deadline = [NO_DEADLINE] if kind in (reserve, permit) else []
    for turn in (1, 2):
        rule.run(pod_info(make_pod("p").obj()).pod, node("n"), NO_PERMITS, *deadline)
        assert caplog.messages == expected * turn


def test_a_rule_that_hangs_after_its_pod_was_rejected_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, end = ManualClock(), Event()
    hanging = HangingCalls(clock)
    limit = TimeLimit(SystemClock(), 0.1)
    host = LiveHost(Telemetry(), clock, limit, lambda *_: None, lambda *_: None, watching(hanging))
    rule = pre_bind(lambda pod, node: bool(end.wait(60))).rule("mine", {}, host)
    with pytest.raises(BindingFailed, match=r"no decision within 0\.1 s: mine has not answered"):
        rule.run(pod_info(make_pod("p").obj()).pod, node("n"), NO_PERMITS)
    clock.advance(5)
    hanging.log()
    end.set()
    assert caplog.messages == [HUNG]
