"""A rule's thread: what it returns or raises comes back, and one that hangs is left behind."""

from __future__ import annotations

from threading import Event

import pytest

from extender.errors import DeadlineExceeded, RuleUnanswered
from extender.plugins.users.calls import MAX_RUNNING, answer_of
from extender.runtime.clock import NO_DEADLINE, Deadline, SystemClock
from tests.stock.waiting import wait_until


def deadline(seconds: float = 60.0) -> Deadline:
    return Deadline(SystemClock(), seconds)


@pytest.mark.parametrize("ends", [False, True], ids=["without an end", "with one"])
def test_the_rule_s_own_answer_and_error_come_back(ends: bool) -> None:
    end = deadline() if ends else NO_DEADLINE

    def times_out() -> None:
        raise TimeoutError("the licence server")

    assert answer_of("Rule", lambda: 5, end) == 5
    with pytest.raises(TimeoutError, match="the licence server"):
        answer_of("Rule", times_out, end)


def test_an_interrupt_that_the_rule_itself_raises_is_an_error_of_its_own() -> None:
    def interrupts() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="the rule raised KeyboardInterrupt"):
        answer_of("Rule", interrupts, deadline())


def test_rules_that_hang_for_good_are_not_asked_for_ever() -> None:
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
