"""Calls of rules in other threads: results and errors are passed on, and hanging calls are left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore, Event

import pytest

from extender.errors import DeadlineExceeded, RuleUnanswered
from extender.framework.status import unresolvable
from extender.plugins.users import pre_enqueue
from extender.plugins.users.rule_calls import MAX_RUNNING, answer_of, described
from extender.runtime.clock import NO_DEADLINE, Deadline, SystemClock
from tests.builders import make_pod
from tests.framework.cluster import pod_info
from tests.plugins.users.failures import Remembered
from tests.stock.waiting import wait_until


def deadline(seconds: float = 60.0) -> Deadline:
    return Deadline(SystemClock(), seconds)


@pytest.mark.parametrize("ends", [False, True], ids=["without an end", "with one"])
def test_the_rules_answer_or_error_is_passed_on(ends: bool) -> None:
    end = deadline() if ends else NO_DEADLINE

    def times_out() -> None:
        raise TimeoutError("the licence server")

    assert answer_of("Rule", lambda: 5, end) == 5
    with pytest.raises(TimeoutError, match="the licence server"):
        answer_of("Rule", times_out, end)


def test_an_attribute_error_that_names_no_attribute_is_described_without_a_suggestion() -> None:
    assert described(AttributeError("the pod has no rack"), "rules.py:3") == (
        "rules.py:3: AttributeError: the pod has no rack"
    )


def test_a_keyboard_interrupt_raised_by_the_rule_is_its_error() -> None:
    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="the rule raised KeyboardInterrupt"):
        answer_of("Rule", interrupts, deadline())


def test_a_keyboard_interrupt_outside_the_main_thread_is_a_failure_of_the_rule() -> None:
    @pre_enqueue
    def interrupts(pod: object) -> None:
        raise KeyboardInterrupt

    host = Remembered()
    rule, pod = interrupts.rule("mine", {}, host), pod_info(make_pod("p").obj())
    with ThreadPoolExecutor(1) as other:
        assert other.submit(rule.refuse, pod).result() == unresolvable("mine", "rule mine failed")
    assert host.told == [("mine", "KeyboardInterrupt")]
    with pytest.raises(KeyboardInterrupt):
        rule.refuse(pod)


def test_calls_that_never_return_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls._places", BoundedSemaphore(MAX_RUNNING))
    end = Event()
    try:
        for _ in range(MAX_RUNNING):
            with pytest.raises(RuleUnanswered, match=r"no decision within 0.02 s: Rule has not answered"):
                answer_of("Rule", lambda: end.wait(60), deadline(0.02))
        with pytest.raises(RuleUnanswered, match=f"Rule was not called: {MAX_RUNNING} calls of rules are"):
            answer_of("Rule", lambda: end.wait(60), deadline())
    finally:
        end.set()
    assert wait_until(answered, 30)


def answered() -> bool:
    try:
        return answer_of("Rule", lambda: True, deadline())
    except DeadlineExceeded:
        return False
