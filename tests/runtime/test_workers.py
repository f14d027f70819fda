"""A pool of threads runs the submitted tasks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from extender.errors import TaskFailed
from extender.runtime.threads import TaskFailures, WorkerPool, log_error

WAIT_SECONDS = 60.0


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool("test", threads=2, on_error=log_error)
    pool.start()
    yield pool
    pool.stop(WAIT_SECONDS)


def test_tasks_run_at_the_same_time(pool: WorkerPool) -> None:
    both = threading.Barrier(3)
    for _ in range(2):
        pool.submit(lambda: both.wait(WAIT_SECONDS))
    both.wait(WAIT_SECONDS)


@pytest.mark.parametrize("fail", [lambda: 1 / 0, sys.exit], ids=["an error", "SystemExit"])
def test_a_failed_task_ends_no_thread(pool: WorkerPool, fail: Callable[[], object]) -> None:
    done = threading.Event()
    for _ in range(10):
        pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(WAIT_SECONDS)


def test_the_process_learns_that_a_task_wanted_to_exit_but_goes_on_after_other_errors() -> None:
    noted: list[str] = []
    failures = TaskFailures(lambda task, _item, error: noted.append(f"{task}: {error!r}"))
    failures.check()
    pool = WorkerPool("test", threads=1, on_error=failures.report)
    pool.start()
    pool.submit(lambda: 1 / 0)
    pool.submit(sys.exit)
    pool.stop(WAIT_SECONDS)
    assert noted == ["test-0: ZeroDivisionError('division by zero')"]
    with pytest.raises(TaskFailed, match="background task test-0 failed: SystemExit"):
        failures.check()


def test_calls_run_side_by_side_even_if_every_thread_of_the_pool_waits_for_some(pool: WorkerPool) -> None:
    both = [threading.Barrier(2), threading.Barrier(2)]
    ended = [threading.Event(), threading.Event()]

    def task(barrier: threading.Barrier, done: threading.Event) -> None:
        pool.run_all([lambda: barrier.wait(WAIT_SECONDS)] * 2)
        done.set()

    for barrier, done in zip(both, ended, strict=True):
        pool.submit(partial(task, barrier, done))
    assert all(done.wait(WAIT_SECONDS) for done in ended)


def test_after_an_error_no_further_call_begins(pool: WorkerPool) -> None:
    called: list[int] = []
    with pytest.raises(ZeroDivisionError):
        pool.run_all([lambda: 1 / 0, lambda: 1 / 0, *(partial(called.append, number) for number in range(1000))])
    assert len(called) < 1000


def test_calls_run_even_if_no_further_thread_can_be_started(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    called: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.run_all([partial(called.append, number) for number in range(10)])
    assert called == list(range(10))


def test_submit_never_waits_for_a_thread(pool: WorkerPool) -> None:
    gate, busy, done = threading.Event(), threading.Barrier(3), threading.Semaphore(0)

    def work() -> None:
        busy.wait(WAIT_SECONDS)
        gate.wait(WAIT_SECONDS)

    for _ in range(2):
        pool.submit(work)
    busy.wait(WAIT_SECONDS)  # both threads are busy until the gate opens
    with ThreadPoolExecutor(1) as other:
        for _ in range(100):
            other.submit(pool.submit, done.release).result(WAIT_SECONDS)
    assert pool.waiting() == 100
    gate.set()
    assert all(done.acquire(timeout=WAIT_SECONDS) for _ in range(100))


def test_stop_finishes_the_submitted_tasks() -> None:
    pool = WorkerPool("test", threads=1, on_error=log_error)
    done: list[int] = []
    pool.start()
    for i in range(3):
        pool.submit(partial(done.append, i))
    pool.stop(WAIT_SECONDS)
    assert done == [0, 1, 2]
