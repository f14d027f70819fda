"""Threads that end early are restarted; those of a pool are reused, and no item waits for one."""

from __future__ import annotations

import subprocess
import sys
import threading
from queue import SimpleQueue
from threading import Barrier, Event, current_thread, get_ident
from threading import enumerate as all_threads

import pytest

from extender.runtime.threads import LastingThread, ParkedThreads, Ticker
from tests.stock.waiting import wait_until


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_revive_restarts_only_a_thread_that_ended_before_stop() -> None:
    begun, ends = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        ends.wait(60)
        raise SystemExit

    thread = LastingThread("short-lived", work)
    assert not thread.revive()
    thread.start()
    assert begun.acquire(timeout=60)
    assert not thread.revive()
    ends.set()
    assert wait_until(thread.revive)
    assert begun.acquire(timeout=60)
    assert thread.stop(10)
    assert not thread.revive()


@pytest.mark.parametrize(
    "start",
    [
        "threads.LastingThread('lasting', lambda: time.sleep(600)).start()",
        "fibers.FiberPool('fibers', 1, threads.log_error).start()",
    ],
    ids=["LastingThread", "FiberPool"],
)
def test_a_thread_that_works_does_not_keep_the_process_alive(start: str) -> None:
    script = f"import time; from extender.runtime import fibers, threads; {start}"
    assert subprocess.run([sys.executable, "-c", script], timeout=120, check=False).returncode == 0


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
    assert acted.acquire(timeout=60)
    assert wait_until(ticker.revive)
    assert all(acted.acquire(timeout=60) for _ in range(3))
    ticker.stop()


def test_the_next_item_reuses_the_thread_that_is_done() -> None:
    done: SimpleQueue[int] = SimpleQueue()
    threads: ParkedThreads[str] = ParkedThreads(lambda _: done.put(get_ident()), "test")
    threads.take("first")
    first = done.get(timeout=60)
    assert wait_until(lambda: threads.parked == 1)
    threads.take("second")
    assert done.get(timeout=60) == first
    assert wait_until(lambda: threads.parked == 1)


def test_an_item_does_not_wait_for_earlier_ones() -> None:
    release, done = Event(), SimpleQueue[str]()

    def work(item: str) -> None:
        if item == "slow":
            release.wait(60)
        done.put(f"{item} in {current_thread().name}")

    threads = ParkedThreads(work, "test")
    threads.take("slow")
    threads.take("quick")
    assert done.get(timeout=60) == "quick in test"
    release.set()
    assert done.get(timeout=60) == "slow in test"


def test_a_thread_does_not_keep_the_process_alive() -> None:
    done: SimpleQueue[bool] = SimpleQueue()
    ParkedThreads[str](lambda _: done.put(current_thread().daemon), "test").take("item")
    assert done.get(timeout=60) is True


def test_of_many_threads_that_are_done_at_once_four_wait_and_the_others_end() -> None:
    meeting = Barrier(10)
    threads = ParkedThreads[int](lambda _: meeting.wait(60), "crowd")
    for number in range(10):
        threads.take(number)
    assert wait_until(lambda: threads.parked == sum(thread.name == "crowd" for thread in all_threads()) == 4)
