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
    assert all(thrice.acquire(timeout=60) for _ in range(3))
    ticker.stop()


def ignore(*_: object) -> None: ...


def fail(error: type[Exception]) -> None:
    raise error


@pytest.mark.parametrize("error", [ZeroDivisionError, RecursionError, KeyError])
def test_an_error_about_an_object_does_not_end_the_process(error: type[Exception]) -> None:
    noted: list[tuple[str, str, type[Exception]]] = []
    failures = TaskFailures(lambda task, item, error: noted.append((task, item, type(error))))
    twice = threading.Semaphore(0)

    def report(task: str, error: BaseException) -> None:
        failures.report(task, error)
        twice.release()

    ticker = Ticker("expiry", 0.001, lambda: fail(error), report)
    ticker.start()
    assert all(twice.acquire(timeout=60) for _ in range(2))
    ticker.stop()
    failures.check()
    assert set(noted) == {("expiry", "", error)}


def test_the_process_learns_that_memory_has_run_out() -> None:
    failures, reported = TaskFailures(ignore), threading.Event()

    def report(task: str, error: BaseException) -> None:
        failures.report(task, error)
        reported.set()

    ticker = Ticker("expiry", 0.001, lambda: fail(MemoryError), report)
    ticker.start()
    assert reported.wait(60)
    ticker.stop()
    with pytest.raises(TaskFailed, match="background task expiry failed: MemoryError"):
        failures.check()


def test_without_an_interval_a_ticker_acts_only_when_woken() -> None:
    acted = threading.Semaphore(0)
    ticker = Ticker("test", 0, acted.release)
    ticker.start()
    assert not acted.acquire(timeout=0.05)
    ticker.wake()
    assert acted.acquire(timeout=60)
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
                thread.join(60)
        self.revived = self.revive()


def test_a_ticker_that_is_being_stopped_is_not_revived() -> None:
    ticker = RevivedAsItEnds("is being stopped", 1000, lambda: None)
    ticker.start()
    ticker.stop()
    assert ticker.revived is False
