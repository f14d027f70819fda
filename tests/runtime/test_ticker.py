"""A ticker acts at an interval, or when it is woken."""

from __future__ import annotations

import threading

import pytest

from extender.errors import TaskFailed
from extender.runtime.threads import TaskFailures, Ticker


def test_a_ticker_goes_on_after_its_action_failed() -> None:
    thrice = threading.Semaphore(0)

    def act() -> None:
        thrice.release()
        raise ZeroDivisionError

    ticker = Ticker("test", 0.001, act)
    ticker.start()
    assert all(thrice.acquire(timeout=10) for _ in range(3))
    ticker.stop()


def test_the_process_learns_the_error_of_an_action() -> None:
    failures, reported = TaskFailures(), threading.Event()

    def report(task: str, error: BaseException) -> None:
        failures.report(task, error)
        reported.set()

    ticker = Ticker("expiry", 0.001, lambda: 1 / 0, report)
    ticker.start()
    assert reported.wait(10)
    ticker.stop()
    with pytest.raises(TaskFailed, match="background task expiry failed: ZeroDivisionError"):
        failures.check()


def test_without_an_interval_a_ticker_acts_only_when_woken() -> None:
    acted = threading.Semaphore(0)
    ticker = Ticker("test", 0, acted.release)
    ticker.start()
    assert not acted.acquire(timeout=0.05)
    ticker.wake()
    assert acted.acquire(timeout=10)
    ticker.stop()


def test_a_sleeping_ticker_stops_at_once_without_another_action() -> None:
    acted: list[int] = []
    ticker = Ticker("test", 1000, lambda: acted.append(1))
    ticker.start()
    ticker.stop()
    assert acted == []


class RevivedAsItEnds(Ticker):
    """`revive` is called after the thread has ended and before `stop` has returned."""

    revived: bool | None = None

    def wake(self) -> None:
        super().wake()
        for thread in threading.enumerate():
            if thread.name == self.name:
                thread.join(10)
        self.revived = self.revive()


def test_a_ticker_that_is_being_stopped_is_not_revived() -> None:
    ticker = RevivedAsItEnds("is being stopped", 1000, lambda: None)
    ticker.start()
    ticker.stop()
    assert ticker.revived is False
