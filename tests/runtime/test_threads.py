"""Threads that end early are restarted."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from extender.runtime.threads import LastingThread, Ticker
from tests.stock.waiting import wait_until


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_revive_restarts_only_a_thread_that_ended_before_stop() -> None:
    begun, ends = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        ends.wait(30)
        raise SystemExit

    thread = LastingThread("short-lived", work)
    assert not thread.revive()
    thread.start()
    assert begun.acquire(timeout=10)
    assert not thread.revive()
    ends.set()
    assert wait_until(thread.revive)
    assert begun.acquire(timeout=10)
    assert thread.stop(10)
    assert not thread.revive()


@pytest.mark.parametrize(
    "start",
    [
        "threads.LastingThread('lasting', lambda: time.sleep(60)).start()",
        "fibers.FiberPool('fibers', 1, threads.log_error).start()",
    ],
    ids=["LastingThread", "FiberPool"],
)
def test_a_thread_that_works_does_not_keep_the_process_alive(start: str) -> None:
    script = f"import time; from extender.runtime import fibers, threads; {start}"
    assert subprocess.run([sys.executable, "-c", script], timeout=30, check=False).returncode == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_revived_ticker_ticks_again() -> None:
    acted = threading.Semaphore(0)
    dies = iter([True])

    def act() -> None:
        acted.release()
        if next(dies, False):
            raise SystemExit

    ticker = Ticker("test", 0.001, act)
    ticker.start()
    assert acted.acquire(timeout=10)
    assert wait_until(ticker.revive)
    assert all(acted.acquire(timeout=10) for _ in range(3))
    ticker.stop()
