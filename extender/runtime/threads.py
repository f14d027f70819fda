"""Keeps work going after unexpected errors: loops over many objects, and threads that are restarted or periodic.

`going_on` reports the error of one object, with its traceback the first time, and the loop goes on with the next. So
one object that meets a bug neither ends the process nor delays the others, and the bug stays visible in the log and in
extender_set_aside_total. Only MemoryError is raised to the caller: no object is to blame for it, and a restart helps.

The module also has threads that work for callers, a lock that reports waits, and warnings of a call while it hangs,
because a call that never ends would otherwise leave no trace.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

from extender.errors import TaskFailed
from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry

SetAside = Callable[[str, str, Exception], object]
"""Called with a task, the object that it works on ("" if none is known), and the unexpected error that it raised."""
_log = logging.getLogger(__name__)

OnError = Callable[[str, BaseException], object]
"""Called with the name of a background task and the error that it raised."""
HANGING_SECONDS = 5.0
Warn = Callable[[float], object]


class going_on(AbstractContextManager[None]):  # noqa: N801  it is used like a function
    """Reports the error of a block about one object, instead of raising it. Raises MemoryError.

    After an error `undo` is called; an error that it raises is reported too. It is a class because each pod passes
    three such blocks, and a context manager of contextlib costs more than some of them.
    """

    __slots__ = ("_item", "_set_aside", "_task", "_undo")

    def __init__(
        self, set_aside: SetAside, task: str, item: str = "", undo: Callable[[], object] | None = None
    ) -> None:
        self._set_aside = set_aside
        self._task = task
        self._item = item
        self._undo = undo

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool | None:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self._set_aside(self._task, self._item, error)  # the other objects must not wait for this one
        if self._undo is not None:
            with going_on(self._set_aside, self._task, self._item):
                self._undo()
        return True


def log_error(task: str, error: BaseException) -> None:
    """Logs the error of a background task. Used for tasks whose next run completes what the failed run left undone."""
    _log.error("background task failed task=%s", task, exc_info=error)


class TaskFailures:
    """Decides if an unexpected error in a background task ends the process.

    Most errors do not, because they are about one object, and a restart would meet the same object again. `set_aside`
    receives these errors, and the task goes on. If memory has run out or a task calls sys.exit, the process ends: a
    restart completes the work, because all state is in the API server.

    Tasks call `report` in their own threads; the main thread calls `check` repeatedly.
    """

    def __init__(self, set_aside: SetAside) -> None:
        self._set_aside = set_aside
        self._failed: TaskFailed | None = None

    def report(self, task: str, error: BaseException) -> None:
        """Handles an error that a task has raised. See OnError."""
        if isinstance(error, Exception) and not isinstance(error, MemoryError):
            self._set_aside(task, "", error)
        else:
            self.end(task, error)

    def end(self, task: str, error: BaseException) -> None:
        """Logs the error, and makes every later `check` raise."""
        _log.critical("background task failed, ending the process task=%s", task, exc_info=error)
        if self._failed is None:
            self._failed = TaskFailed(f"background task {task} failed: {type(error).__name__}: {error}")

    def check(self) -> None:
        """Raises TaskFailed if a task has failed."""
        if self._failed is not None:
            raise self._failed


class LastingThread:
    """A daemon thread that `revive` restarts if it has ended before `stop`."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self._work = work
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts the thread. Call it after a fork, because threads do not survive a fork."""
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def revive(self) -> bool:
        """Restarts the thread if it has ended; returns True if it did so."""
        with self._lock:
            if self._thread is None or self._stopped or self._thread.is_alive():
                return False
            _log.error("thread ended, restarting it name=%s", self.name)
            self.start()
            return True

    def let_end(self) -> None:
        """Makes `revive` do nothing from now on, because the caller is about to end the thread's work."""
        with self._lock:
            self._stopped = True

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the thread to end; returns False if it has not. The caller must first make `work` return."""
        self.let_end()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return self._thread is None or not self._thread.is_alive()


class Ticker:
    """A thread that calls `action` every `seconds` from `start` to `stop`, even if a call has raised an error.

    Args:
        seconds: the pause between two calls; 0 means that `action` is called only after `wake`.
        on_error: receives the errors of `action`.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], object], on_error: OnError = log_error) -> None:
        self._seconds = seconds
        self._action = action
        self._on_error = on_error
        self._stopped = False
        self._wakings: SimpleQueue[None] = SimpleQueue()
        self._thread = LastingThread(name, self._run)
        self.name = name
        self.start = self._thread.start
        self.revive = self._thread.revive

    def wake(self) -> None:
        """Makes the action run now. A signal handler may call this, because SimpleQueue.put is reentrant."""
        self._wakings.put(None)

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Ends the thread. Waits at most `timeout_seconds` for a running action; None means without a limit."""
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
        """Sleeps until the next action is due or `wake` is called; returns True if the thread must end."""
        with suppress(Empty):
            self._wakings.get(timeout=self._seconds or None)
        return self._stopped


T = TypeVar("T")
_MOST_PARKED = 4
_PARKED_SECONDS = 10.0


class ParkedThreads(Generic[T]):
    """Calls `work` with each item in its own thread. A thread that is done waits a while for another item.

    Starting a thread takes 110 us of CPU, and reusing a waiting one takes 26 us (measured in November 2026). The
    difference matters if kube-scheduler sends several binds at once. It keeps only two idle connections to a host, so
    most of these binds arrive on new connections, each of which needs a thread. An executor of the standard library
    would either limit the number of threads or keep all of them.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work = work
        self._name = name
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begins without threads, because threads do not survive a fork."""
        self._lock = Lock()
        self._items: SimpleQueue[T] = SimpleQueue()
        self.parked = 0  # the number of threads that wait for an item

    def take(self, item: T) -> None:
        """Starts to work on `item` at once. Raises RuntimeError if no thread can be started."""
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
                item = self._items.get()  # `take` has just put an item into the queue for this thread


class WorkerPool:
    """Runs tasks in `threads` threads (implements scheduler_ports.Workers). Tasks that find no free thread wait.

    `submit` never waits. Errors of tasks are passed to `on_error`. A ThreadPoolExecutor costs three times as much CPU
    per task (measured in November 2026), because it also handles results.
    """

    def __init__(self, name: str, threads: int, on_error: OnError) -> None:
        self._on_error = on_error
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.waiting = self._tasks.qsize  # returns how many tasks have not begun
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], object]) -> None:
        self._tasks.put(task)

    def run_all(self, calls: Sequence[Callable[[], object]]) -> None:
        """Runs the calls, as many at a time as the pool has threads; raises the first error of a call.

        After an error, no further call begins.

        The calls run in the calling thread and in new threads. They do not run in the pool's threads, because all of
        these may be waiting for such calls. The new threads are daemons, so that a call without an answer does not keep
        the process alive.
        """
        remaining, errors = iter(calls), list[BaseException]()
        lock = threading.Lock()

        def work() -> None:
            while not errors:
                with lock:
                    call = next(remaining, None)
                if call is None:
                    return
                try:
                    call()
                except BaseException as error:  # raised below
                    errors.append(error)

        names = [f"helper of {thread.name}" for thread in self._threads[1 : len(calls)]]
        helpers = list(_started(threading.Thread(target=work, name=name, daemon=True) for name in names))
        work()
        for helper in helpers:
            helper.join()
        if errors:
            raise errors[0]

    def stop(self, timeout_seconds: float) -> None:
        """Finishes the submitted tasks and ends the threads; waits at most `timeout_seconds` for that."""
        ends_at = time.monotonic() + timeout_seconds
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(max(0.0, ends_at - time.monotonic()))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException as error:  # includes SystemExit, which would end only this thread
                self._on_error(threading.current_thread().name, error)


def _started(threads: Iterable[Thread]) -> Iterator[Thread]:
    """Starts the threads, as many as the system allows, and yields those that run."""
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:
            return
        yield thread


class TimedLock:
    """A lock that reports how long each caller has waited for it: `with lock("assume"): ...`.

    The lock is not reentrant. Each caller's name has its own context manager, which is reused. A decision takes the
    lock a dozen times, and creating a context manager with contextlib each time would cost more than the lock.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._managers: dict[str, _LockForCaller] = {}

    def __call__(self, caller: str) -> AbstractContextManager[None]:
        manager = self._managers.get(caller)
        if manager is None:
            manager = self._managers[caller] = _LockForCaller(self._lock, self._clock, self._telemetry, caller)
        return manager


class _LockForCaller(AbstractContextManager[None]):
    __slots__ = ("_caller", "_clock", "_lock", "_telemetry")

    def __init__(self, lock: threading.Lock, clock: Clock, telemetry: Telemetry, caller: str) -> None:
        self._lock = lock
        self._clock = clock
        self._telemetry = telemetry
        self._caller = caller

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            begin = self._clock.monotonic()
            self._lock.acquire()
            self._telemetry.lock_waited(self._caller, self._clock.monotonic() - begin)

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


"""Logs that a call has waited this many seconds for its answer."""


@dataclass(slots=True, eq=False)
class _Call(AbstractContextManager[None]):
    calls: set[_Call]
    warn: Warn
    began_at: float
    is_logged: bool = False

    def __enter__(self) -> None:
        self.calls.add(self)

    def __exit__(self, *_error: object) -> None:
        self.calls.remove(self)


class HangingCalls:
    """The calls in flight. The owner calls `log` regularly, which warns of calls that hang."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: set[_Call] = set()  # needs no lock: `add`, `remove` and `copy` of a set are atomic

    def watch(self, warn: Warn) -> AbstractContextManager[None]:
        """Watches the call that the `with` block makes. If it hangs, `warn` is called once."""
        return _Call(self._calls, warn, self._clock.monotonic())

    def log(self) -> None:
        """Warns once of each call that has waited for HANGING_SECONDS."""
        now = self._clock.monotonic()
        for call in self._calls.copy():
            seconds = now - call.began_at
            if seconds >= HANGING_SECONDS and not call.is_logged:
                call.is_logged = True
                call.warn(seconds)
