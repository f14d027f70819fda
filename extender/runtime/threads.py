"""Threads that last, work every so often or wait for work, and a lock that tells how long its callers have waited."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

from extender.errors import TaskFailed
from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry

_log = logging.getLogger(__name__)

OnError = Callable[[str, BaseException], object]
"""Called with the name of a background task and the error that it raised."""


def log_error(task: str, error: BaseException) -> None:
    """Logs the error of a background task whose next run can make up for the one that failed."""
    _log.error("background task failed task=%s", task, exc_info=error)


class TaskFailures:
    """Ends a process after an unexpected error in a background task, because nothing else knows what it left half done.

    A restart repairs that, since every fact is in the API server. Tasks call `report` in their own threads; the main
    thread calls `check` now and then.
    """

    def __init__(self) -> None:
        self._failed: TaskFailed | None = None

    def report(self, task: str, error: BaseException) -> None:
        """Logs the error; from now on `check` raises. See OnError."""
        _log.critical("background task failed, ending the process task=%s", task, exc_info=error)
        failed = TaskFailed(f"background task {task} failed: {type(error).__name__}: {error}")
        failed.__cause__ = error
        self._failed = self._failed or failed

    def check(self) -> None:
        """Raises TaskFailed if a task has failed."""
        if self._failed is not None:
            raise self._failed


class LastingThread:
    """A daemon thread that `revive` starts again where it has ended before `stop`, by whatever error."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name, self._work = name, work
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begins to work; after the fork, for no thread lives through one."""
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def revive(self) -> bool:
        """Starts the thread again where it has ended; returns whether it had."""
        with self._lock:
            if self._thread is None or self._stopped or self._thread.is_alive():
                return False
            _log.error("thread %s has ended, and is started again", self.name)
            self.start()
            return True

    def let_end(self) -> None:
        """Revives it no more, for the caller is about to ask for the end of the work."""
        with self._lock:
            self._stopped = True

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the end of the work, which the caller has asked for; returns whether it came in that time."""
        self.let_end()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return self._thread is None or not self._thread.is_alive()


class Ticker:
    """Calls `action` every `seconds` (0: only when woken) from `start` to `stop`, even after it has raised.

    Args:
        on_error: called with what `action` raises.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], object], on_error: OnError = log_error) -> None:
        self._seconds = seconds
        self._action = action
        self._on_error = on_error
        self._stopped = False
        self._wakings: SimpleQueue[None] = SimpleQueue()
        self._thread = LastingThread(name, self._run)
        self.name, self.start, self.revive = name, self._thread.start, self._thread.revive

    def wake(self) -> None:
        """Has the action called now; a signal handler may call it, for a SimpleQueue can be filled at any point."""
        self._wakings.put(None)

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Returns when no action is under way any more, or that time is over."""
        self._thread.let_end()
        self._stopped = True
        self.wake()
        self._thread.stop(timeout_seconds)

    def _run(self) -> None:
        while not self._sleep():
            try:
                self._action()
            except Exception as error:
                self._on_error(self.name, error)

    def _sleep(self) -> bool:
        """Sleeps until it is time, or somebody wakes it; returns whether to stop."""
        with suppress(Empty):
            self._wakings.get(timeout=self._seconds or None)
        return self._stopped


T = TypeVar("T")
_MOST_PARKED, _PARKED_SECONDS = 4, 10.0


class ParkedThreads(Generic[T]):
    """Calls `work` with each item in a thread of its own; a thread that is done waits for a while for the next item.

    A scheduler that binds several pods at once dials anew for most of them, for it keeps no more than two idle
    connections to a host; and to start a thread costs as much as to answer a bind.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work, self._name = work, name
        self._lock = Lock()
        self.parked = 0  # how many threads wait for an item
        self._items: SimpleQueue[T] = SimpleQueue()

    def take(self, item: T) -> None:
        """Works on `item` at once, whatever else is under way. Raises RuntimeError where no thread can be started."""
        with self._lock:
            if self.parked:
                self.parked -= 1
                self._items.put(item)
                return
        Thread(target=self._live, args=(item,), name=self._name, daemon=True).start()

    def _live(self, item: T) -> None:
        while True:
            self._work(item)
            with self._lock:
                if self.parked == _MOST_PARKED:
                    return
                self.parked += 1
            try:
                item = self._items.get(timeout=_PARKED_SECONDS)
            except Empty:
                with self._lock:
                    if self.parked:
                        self.parked -= 1
                        return
                item = self._items.get()  # put for this thread in the last moment


class WorkerPool:
    """A scheduler.ports.Workers of `threads` threads; `submit` waits while each has `backlog` tasks before it.

    Lighter than concurrent.futures, because no task returns a result. `on_error` is called with what a task raises.
    """

    def __init__(self, name: str, threads: int, on_error: OnError, backlog: int = 2) -> None:
        self._on_error = on_error
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._room = threading.Semaphore(threads * (1 + backlog))
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], object]) -> None:
        self._room.acquire()
        self._tasks.put(task)

    def stop(self, timeout_seconds: float) -> None:
        """Ends once the tasks submitted so far are done, or that time is over."""
        ends_at = time.monotonic() + timeout_seconds
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(max(0.0, ends_at - time.monotonic()))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException as error:  # SystemExit too: it would end only this thread
                self._on_error(threading.current_thread().name, error)
            finally:
                self._room.release()


class TimedLock:
    """Not reentrant. `lock("assume")` is a context manager that holds it on behalf of the caller so named.

    The managers are made once a caller and hold nothing: a decision takes the lock a dozen times, and what
    contextlib makes of a generator costs more than the lock.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock, self._telemetry = clock, telemetry
        self._lock = threading.Lock()
        self._held_by: dict[str, _Held] = {}

    def __call__(self, caller: str) -> AbstractContextManager[None]:
        held = self._held_by.get(caller)
        if held is None:
            held = self._held_by[caller] = _Held(self._lock, self._clock, self._telemetry, caller)
        return held


class _Held(AbstractContextManager[None]):
    __slots__ = ("_caller", "_clock", "_lock", "_telemetry")

    def __init__(self, lock: threading.Lock, clock: Clock, telemetry: Telemetry, caller: str) -> None:
        self._lock, self._clock, self._telemetry, self._caller = lock, clock, telemetry, caller

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            begin = self._clock.monotonic()
            self._lock.acquire()
            self._telemetry.lock_waited(self._caller, self._clock.monotonic() - begin)

    def __exit__(self, *_error: object) -> None:
        self._lock.release()
