"""Calls of rules in other threads: results and errors are passed on, and hanging calls are left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from extender.errors import DeadlineExceeded, RuleHangs, RuleUnanswered
from extender.plugins.users.queueing import pre_enqueue
from extender.plugins.users.rule_calls import (
    ENDED_AFTER_SECONDS,
    MAX_ABANDONED,
    CallOutcome,
    EachCall,
    RunningCall,
    answer_of,
    checked,
    described,
    end_abandoned,
)
from extender.runtime.clock import NO_DEADLINE, Deadline, ManualClock, SystemClock
from tests.builders import make_pod
from tests.framework.cluster import pod_info
from tests.plugins.users.failures import FAILED, Remembered
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
        assert other.submit(rule.refuse, pod).result() == FAILED
    assert rule.refuse(pod) == FAILED
    assert host.recorded == [("mine", "RuntimeError")] * 2


def test_calls_that_never_return_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls._abandoned", set())
    end = Event()
    try:
        for _ in range(MAX_ABANDONED):
            with pytest.raises(RuleUnanswered, match=r"no decision within 0.02 s: Rule has not answered"):
                answer_of("Rule", lambda: end.wait(60), deadline(0.02))
        with pytest.raises(RuleUnanswered, match=f"Rule was not called: {MAX_ABANDONED} calls of rules are"):
            answer_of("Rule", lambda: end.wait(60), deadline())
    finally:
        end.set()
    assert wait_until(answered)


def test_a_rule_that_loops_is_ended_long_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls._abandoned", set())
    now, rounds = SystemClock.monotonic(), 0

    def loops() -> None:
        nonlocal rounds
        while True:
            with suppress(Exception):  # rules often catch every Exception
                rounds += 1

    with pytest.raises(RuleUnanswered) as raised:
        answer_of("Rule", loops, deadline(0.02))
    assert end_abandoned(now) == []
    assert not raised.value.has_returned()  # type: ignore[misc]
    end_abandoned(now + ENDED_AFTER_SECONDS + 10)
    assert wait_until(raised.value.has_returned)  # type: ignore[arg-type]
    assert end_abandoned(now + 2 * ENDED_AFTER_SECONDS) == []
    assert answer_of("Rule", lambda: 5, deadline()) == 5


def test_a_call_that_begins_after_its_deadline_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls._abandoned", set())
    now, end = SystemClock.monotonic(), Event()

    def loops() -> None:
        while not end.wait(0.01):
            pass

    call = RunningCall("Rule", loops)
    call.abandon(now)
    assert end_abandoned(now + 1) == []
    with ThreadPoolExecutor(1) as other:
        other.submit(call.run)
        try:
            assert wait_until(lambda: bool(call.place))
            end_abandoned(now + 1)
            assert wait_until(call.outcome.is_known)
        finally:
            end.set()
    assert end_abandoned(now + 2 * ENDED_AFTER_SECONDS) == []


def test_a_call_that_cannot_be_ended_is_reported_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls._abandoned", set())
    now, end = SystemClock.monotonic(), Event()
    with pytest.raises(RuleUnanswered) as raised:
        answer_of("Rule", lambda: end.wait(60), deadline(0.02))
    assert end_abandoned(now + ENDED_AFTER_SECONDS + 10) == []
    [(rule, place)] = end_abandoned(now)
    assert (rule, place.partition(":")[0]) == ("Rule", "test_rule_calls.py")
    end.set()
    assert wait_until(raised.value.has_returned)  # type: ignore[arg-type]
    assert wait_until(lambda: end_abandoned(now) == [])


def test_offline_each_call_has_four_seconds_and_the_line_is_named() -> None:
    def slow() -> str:
        for _ in range(4):
            each.check("a node")
            Event().wait(0.4)
        return "answer"

    each = EachCall(SystemClock(), 1.5)
    assert answer_of("Rule", slow, each) == "answer"
    with pytest.raises(RuleHangs, match=r"^test_rule_calls\.py:\d+ has not returned after 0\.5 s$"):
        answer_of("Rule", lambda: Event().wait(10), EachCall(SystemClock(), 0.5))


@pytest.mark.parametrize(
    ("kind", "checks"), [(Deadline, 16 + 62), (EachCall, 1000)], ids=["in a process: every 16th", "offline: each"]
)
def test_a_deadline_costs_a_rule_few_checks(kind: type[Deadline], checks: int) -> None:
    class Counted(kind):  # type: ignore[valid-type, misc]  # either class
        count = 0

        def check(self, step: str) -> None:
            self.count += 1

    counted = Counted(SystemClock(), 60.0)
    assert list(checked(range(1000), counted, "the rest")) == list(range(1000))
    assert counted.count == checks


@pytest.mark.parametrize(("seconds", "judged"), [(0.75, 2), (0.125, 9), (1 / 32, 48)])
def test_a_rule_stops_soon_after_its_deadline(seconds: float, judged: int) -> None:
    clock, nodes = ManualClock(), list[int]()
    with pytest.raises(DeadlineExceeded, match="no decision within 1 s: stopped before the rest"):
        for node in checked(range(1000), Deadline(clock, 1.0), "the rest"):
            nodes.append(node)
            clock.advance(seconds)
    assert len(nodes) == judged


def test_an_answer_is_done_once_it_is_there() -> None:
    answer = CallOutcome[int]()
    assert (answer.is_known(), answer.wait(0.0), answer.wait(-1.0)) == (False, False, False)
    answer.set(5)
    assert (answer.wait(0.0), answer.is_known(), answer.take(), answer.take()) == (True, True, 5, 5)
    failed = CallOutcome[int]()
    failed.set(None, KeyError("x"))
    with pytest.raises(KeyError):
        failed.take()


def answered() -> bool:
    try:
        return answer_of("Rule", lambda: True, deadline())
    except DeadlineExceeded:
        return False


PROFILED = """
import sys
from extender.plugins.users.rule_calls import answer_of
from extender.runtime.clock import Deadline, SystemClock

answer_of("Rule", lambda: 5, Deadline(SystemClock(), 60.0))
sys.setprofile(lambda *_: None)
print(sum(number for number in range(1000)))
"""


def test_after_a_call_a_profiled_function_returns() -> None:
    ended = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "499500\n"


KEEPS_THE_INTERPRETER = """\
import re
def rule():
    re.match("(a+)+$", "a" * 100 + "b")
"""
OFFLINE = """\
from extender.plugins.users import rule_calls
from extender.runtime.clock import SystemClock
from frozen_rules import rule
rule_calls._FROZEN_SECONDS = 1.0
rule_calls.answer_of("Rule", rule, rule_calls.EachCall(SystemClock(), 0.1))
"""
LIVE = """\
import os, signal, subprocess, sys
from extender.app import upkeep
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Telemetry
from frozen_rules import rule
upkeep.FROZEN_SECONDS = 1.0
subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(3); os.kill({os.getpid()}, 9)"])
upkeep.RuleCalls(SystemClock(), Telemetry()).look()
rule()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "status"), [pytest.param(OFFLINE, 1, id="a command"), pytest.param(LIVE, -9, id="a server")]
)
def test_the_line_that_keeps_the_interpreter_to_itself_is_named(program: str, status: int, tmp_path: Path) -> None:
    """A regular expression holds the interpreter's lock, so no other thread, nor Ctrl-C, gets a turn."""
    (tmp_path / "frozen_rules.py").write_text(KEEPS_THE_INTERPRETER)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == status
    assert f'File "{tmp_path}/frozen_rules.py", line 3 in rule' in result.stderr
