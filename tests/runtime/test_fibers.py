"""Fibers are tasks of one thread; one that waits lets the others run."""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from extender.errors import TaskFailed
from extender.runtime.fibers import READABLE, WRITABLE, FiberPool, in_thread, ready
from extender.runtime.threads import TaskFailures, log_error

WAIT_SECONDS = 60.0
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pool() -> Iterator[FiberPool]:
    pool = FiberPool("test", 4, log_error)
    pool.start()
    yield pool
    pool.stop(WAIT_SECONDS)


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    pairs = [socket.socketpair() for _ in range(3)]
    yield pairs
    for pair in pairs:
        for each in pair:
            each.close()


def read(sock: socket.socket, into: Future[object]) -> None:
    into.set_result(sock.recv(100) if ready(sock.fileno(), READABLE, WAIT_SECONDS) else None)


def test_a_fiber_that_waits_for_its_socket_lets_others_run(pool: FiberPool, pairs: list[Pair]) -> None:
    answers: list[Future[object]] = [Future() for _ in pairs]
    for (ours, _), answer in zip(pairs, answers, strict=True):
        pool.submit(lambda ours=ours, answer=answer: read(ours, answer))  # type: ignore[misc]  # bound here
    for index in (2, 0, 1):  # in another order than they were begun
        pairs[index][1].send(b"%d" % index)
        assert answers[index].result(WAIT_SECONDS) == b"%d" % index


def test_all_tasks_run_in_one_thread(pool: FiberPool, pairs: list[Pair]) -> None:
    threads: list[Future[object]] = [Future() for _ in pairs]

    def look(sock: socket.socket, into: Future[object]) -> None:
        ready(sock.fileno(), WRITABLE, WAIT_SECONDS)
        into.set_result(threading.get_ident())

    for (ours, _), thread in zip(pairs, threads, strict=True):
        pool.submit(lambda ours=ours, thread=thread: look(ours, thread))  # type: ignore[misc]  # bound here
    assert len({each.result(WAIT_SECONDS) for each in threads} - {threading.get_ident()}) == 1


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that is answered again and again"])
def test_a_wait_ends_at_its_time_limit(pool: FiberPool, pairs: list[Pair], beside: bool) -> None:
    answer: Future[bool] = Future()
    ended = threading.Event()

    def chat() -> None:
        while not ended.is_set():
            ready(pairs[1][0].fileno(), WRITABLE, WAIT_SECONDS)

    if beside:
        pool.submit(chat)
    pool.submit(lambda: answer.set_result(ready(pairs[0][0].fileno(), READABLE, 0.05)))
    assert answer.result(WAIT_SECONDS) is False
    ended.set()


def test_a_blocking_call_runs_in_a_thread_of_its_own(pool: FiberPool) -> None:
    gate, answer = threading.Event(), Future[bool]()
    pool.submit(lambda: answer.set_result(in_thread(lambda: gate.wait(WAIT_SECONDS))))
    pool.submit(gate.set)  # could not be done if the first held the thread up
    assert answer.result(WAIT_SECONDS) is True


def test_a_blocking_call_does_not_keep_the_process_alive(pool: FiberPool) -> None:
    answer = Future[bool]()
    pool.submit(lambda: answer.set_result(in_thread(lambda: threading.current_thread().daemon)))
    assert answer.result(WAIT_SECONDS) is True


def test_the_error_of_a_blocking_call_is_raised_in_the_fiber(pool: FiberPool) -> None:
    raised: Future[str] = Future()

    def fail() -> None:
        try:
            in_thread(lambda: 1 / 0)
        except ZeroDivisionError as error:
            raised.set_result(str(error))

    pool.submit(fail)
    assert raised.result(WAIT_SECONDS) == "division by zero"


def test_outside_a_fiber_the_caller_blocks(pairs: list[Pair]) -> None:
    ours, theirs = pairs[0]
    assert not ready(ours.fileno(), READABLE, 0.01)
    theirs.send(b"x")
    assert ready(ours.fileno(), READABLE, WAIT_SECONDS)
    assert in_thread(threading.get_ident) == threading.get_ident()


@pytest.mark.parametrize(
    ("fail", "error"), [(lambda: 1 / 0, "ZeroDivisionError"), (sys.exit, "SystemExit")], ids=["an error", "SystemExit"]
)
def test_a_failed_task_ends_neither_the_thread_nor_takes_room(
    pool: FiberPool, caplog: pytest.LogCaptureFixture, fail: Callable[[], object], error: str
) -> None:
    done = threading.Event()
    for _ in range(10):
        pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(WAIT_SECONDS)
    assert caplog.text.count(f"\n{error}") == 10


def test_the_process_learns_the_error_of_a_fiber() -> None:
    failures = TaskFailures(lambda *_: None)
    pool = FiberPool("binder", 1, failures.report)
    pool.start()
    pool.submit(sys.exit)
    pool.stop(WAIT_SECONDS)
    with pytest.raises(TaskFailed, match="background task binder failed: SystemExit"):
        failures.check()


class BrokenPoll:
    """The thread fails while it waits for its fibers' sockets, and no other thread can continue them."""

    def register(self, *_: int) -> None: ...

    def poll(self, _milliseconds: float) -> None:
        raise MemoryError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_check_reports_that_the_thread_has_ended(pairs: list[Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "poll", BrokenPoll)
    pool = FiberPool("test", 1, log_error)
    pool.start()
    pool.check()
    pool.submit(lambda: ready(pairs[0][0].fileno(), READABLE, WAIT_SECONDS))
    with pytest.raises(TaskFailed, match="thread test has ended"):
        for _ in range(900):
            pool.check()
            time.sleep(0.1)
    pool.submit(lambda: None)


def test_submit_never_waits_for_a_fiber(pool: FiberPool, pairs: list[Pair]) -> None:
    ours, theirs = pairs[0]
    busy, done, gate, answer = threading.Semaphore(0), list[int](), threading.Event(), Future[object]()

    def wait() -> None:
        busy.release()
        in_thread(lambda: gate.wait(WAIT_SECONDS))

    for _ in range(3):
        pool.submit(wait)
    pool.submit(lambda: read(ours, answer))
    assert all(busy.acquire(timeout=WAIT_SECONDS) for _ in range(3))
    with ThreadPoolExecutor(1) as other:
        for number in range(100):
            other.submit(pool.submit, partial(done.append, number)).result(WAIT_SECONDS)
        assert (pool.waiting() >= 100, done) == (True, [])
        theirs.send(b"x")  # frees one fiber
        last = Future[None]()
        pool.submit(lambda: last.set_result(None))
        last.result(WAIT_SECONDS)
    assert (done, pool.waiting()) == (list(range(100)), 0)
    gate.set()


def test_stop_ends_the_thread_when_the_last_call_in_a_thread_returns() -> None:
    pool = FiberPool("test", 4, log_error)
    pool.start()
    pool.submit(lambda: in_thread(lambda: pool.stop(0)))
    with pytest.raises(TaskFailed, match="has ended"):
        for _ in range(900):
            pool.check()
            time.sleep(0.1)


def test_stop_finishes_the_submitted_tasks(pairs: list[Pair]) -> None:
    pool, answer = FiberPool("test", 4, log_error), Future[object]()
    pool.start()
    pool.submit(lambda: read(pairs[0][0], answer))
    with ThreadPoolExecutor(1) as other:
        stopped = other.submit(pool.stop, WAIT_SECONDS)
        pairs[0][1].send(b"x")
        stopped.result(WAIT_SECONDS)
    assert answer.result(0) == b"x"
