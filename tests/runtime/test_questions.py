"""Limits of questions: the time of a command, and the time and memory of a child process."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import time

import pytest

from extender.errors import TooExpensive
from extender.runtime.clock import INTERRUPTIONS, known_so_far, note_subject
from extender.runtime.questions import in_child, time_limit

MIB = 1 << 20


def spin() -> None:
    while True:
        time.sleep(0.01)


def work_on(claim: str, pod: str) -> None:
    """Works without end on a claim of a pod, as a decision does."""
    with known_so_far(lambda: "3 of 9 pods are placed"):
        try:
            try:
                spin()
            except INTERRUPTIONS as error:
                note_subject(error, f"the claim {claim}")
                raise
        except INTERRUPTIONS as error:
            note_subject(error, f"pod {pod}")
            raise


EXPLAINED = "no answer within 1 s: the claim ml/rc took the time; pod ml/p needs it; 3 of 9 pods are placed"


def test_a_command_ends_in_time_and_says_what_took_it() -> None:
    with pytest.raises(TooExpensive) as caught, time_limit(1):
        work_on("ml/rc", "ml/p")
    assert str(caught.value) == EXPLAINED


def test_a_child_may_run_on_every_cpu_though_its_parent_keeps_to_one() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(allowed)])
    try:
        assert in_child(lambda: os.sched_getaffinity(0)) == allowed
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_limit_is_raised_again_if_code_suppresses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.runtime.questions._AGAIN_SECONDS", 0.1)
    with pytest.raises(TooExpensive), time_limit(0.1):
        try:
            spin()
        except TooExpensive:
            spin()


@pytest.mark.parametrize("seconds", [0.0, 50.0], ids=["no timer", "a timer"])
def test_after_the_block_the_callers_timer_goes_on(seconds: float) -> None:
    handler, (left, _) = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with time_limit(20):
            pass
        remaining, interval = signal.getitimer(signal.ITIMER_REAL)
        assert (20 < remaining <= 50 if seconds else remaining == 0, interval) == (True, 0)
        assert signal.getsignal(signal.SIGALRM) == handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)  # this test's own limit


def test_a_child_may_set_a_timer_of_its_own_as_calls_of_rules_do() -> None:
    faulthandler.dump_traceback_later(60)
    assert in_child(lambda: faulthandler.dump_traceback_later(60)) is None


def test_an_answer_of_a_child_is_the_same() -> None:
    assert in_child(lambda: {"large": b"x" * 5 * MIB}) == {"large": b"x" * 5 * MIB}


def test_a_child_is_another_process_without_our_connections() -> None:
    here, there = socket.socketpair()
    with here, there:

        def answer() -> tuple[int, bool]:
            try:
                there.send(b"damage")
            except OSError:
                return os.getpid(), False
            return os.getpid(), True

        pid, has_sent = in_child(answer)
    assert pid != os.getpid()
    assert not has_sent


def test_a_child_that_takes_too_long_says_what_took_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.runtime.questions._GRACE_SECONDS", 60.0)  # it has a low priority
    with pytest.raises(TooExpensive) as caught:
        in_child(lambda: work_on("ml/rc", "ml/p"), seconds=1)
    assert str(caught.value) == EXPLAINED


def test_a_child_that_ignores_signals_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.runtime.questions._GRACE_SECONDS", 0.2)

    def deaf() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        spin()

    with pytest.raises(TooExpensive, match="took more than 1 s"):
        in_child(deaf, seconds=1)


@pytest.mark.parametrize("build", [lambda: bytearray(1 << 40), lambda: list(range(1 << 40))], ids=["one", "many"])
def test_a_child_that_takes_too_much_memory_ends(build: object) -> None:
    with pytest.raises(TooExpensive, match="it needs more than 64 MiB of memory"):
        in_child(build, memory_bytes=64 * MIB)  # type: ignore[arg-type]


def test_a_child_that_fails_or_ends_gives_no_answer() -> None:
    with pytest.raises(TooExpensive, match="internal error"):
        in_child(lambda: 1 / 0)
    with pytest.raises(TooExpensive, match="the process that computed it ended"):
        in_child(lambda: os._exit(3))


def test_children_of_many_threads_do_not_wait_for_each_other() -> None:
    answers: list[int] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(in_child(lambda: n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(8))
