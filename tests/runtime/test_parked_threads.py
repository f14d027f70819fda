"""Threads are reused, and no item waits for one."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Barrier, Event, current_thread, get_ident
from threading import enumerate as all_threads

from extender.runtime.threads import ParkedThreads
from tests.stock.waiting import wait_until


def test_the_next_item_reuses_the_thread_that_is_done() -> None:
    done: SimpleQueue[int] = SimpleQueue()
    threads: ParkedThreads[str] = ParkedThreads(lambda _: done.put(get_ident()), "test")
    threads.take("first")
    first = done.get(timeout=10)
    assert wait_until(lambda: threads.parked == 1, 10)
    threads.take("second")
    assert done.get(timeout=10) == first
    assert wait_until(lambda: threads.parked == 1, 10)


def test_an_item_does_not_wait_for_earlier_ones() -> None:
    release, done = Event(), SimpleQueue[str]()

    def work(item: str) -> None:
        if item == "slow":
            release.wait(10)
        done.put(f"{item} in {current_thread().name}")

    threads = ParkedThreads(work, "test")
    threads.take("slow")
    threads.take("quick")
    assert done.get(timeout=10) == "quick in test"
    release.set()
    assert done.get(timeout=10) == "slow in test"


def test_a_thread_does_not_keep_the_process_alive() -> None:
    done: SimpleQueue[bool] = SimpleQueue()
    ParkedThreads[str](lambda _: done.put(current_thread().daemon), "test").take("item")
    assert done.get(timeout=10) is True


def test_of_many_threads_that_are_done_at_once_four_wait_and_the_others_end() -> None:
    meeting = Barrier(10)
    threads = ParkedThreads[int](lambda _: meeting.wait(10), "crowd")
    for number in range(10):
        threads.take(number)
    assert wait_until(lambda: threads.parked == sum(thread.name == "crowd" for thread in all_threads()) == 4, 10)
