"""Runs many calls at once in one thread. While one fiber (a greenlet) waits for its socket, others run.

When fibers replaced 16 threads, `extender schedule` bound a fifth more pods a second on an idle machine, with a third
less CPU per pod (`make bench-cluster`), because a thread waits for the GIL again after every system call. On a busy
machine, where the API server accepts 300 Bindings a second, both need 0.6 ms of CPU per pod (November 2026).

Code that may have to wait calls `ready` or `in_thread`, and need not know if it runs in a fiber: outside a fiber these
functions block. A fiber must not wait while it holds a lock, because the next fiber of the thread may need the lock.
Only one fiber at a time may wait for a file descriptor.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped,unused-ignore]  # greenlet's type stubs are a separate package

from extender.errors import Refused, TaskFailed
from extender.runtime.threads import OnError

READABLE, WRITABLE = select.POLLIN, select.POLLOUT
_TURN_SECONDS = 0.002  # how long a new task waits at most while all other tasks wait for their sockets
_EXPIRY_SECONDS = 0.1  # the time between two checks of the time limits of waiting fibers
T = TypeVar("T")


class FiberPool:
    """Runs up to `fibers` tasks at once in one thread (implements scheduler_ports.Workers). Further tasks wait.

    Errors of tasks are passed to `on_error`.
    """

    def __init__(self, name: str, fibers: int, on_error: OnError) -> None:
        self._fibers = fibers
        self._on_error = on_error
        self._tasks: deque[Callable[[], object]] = deque()  # the tasks that have not begun
        # Functions that start or resume a fiber; None ends the thread.
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._poll = select.poll()
        # file descriptor -> the fiber that waits for it, and its time limit
        self._waiting: dict[int, tuple[_Fiber, float]] = {}
        self._at_work = 0
        self._expires_at = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, task: Callable[[], object]) -> None:
        """Runs the task as soon as a fiber is free, and returns at once."""
        self._tasks.append(task)
        self._due.put(self._begin)

    def waiting(self) -> int:
        """Returns how many tasks have not begun."""
        return len(self._tasks)

    def check(self) -> None:
        """Raises TaskFailed if the thread has ended, because no other thread can continue its fibers."""
        if not self._thread.is_alive():
            raise TaskFailed(f"thread {self._thread.name} has ended, with all its tasks")

    def stop(self, timeout_seconds: float) -> None:
        """Finishes the submitted tasks and ends the thread; waits at most `timeout_seconds` for that."""
        self._due.put(None)
        self._thread.join(timeout_seconds)

    def wait(self, fiber: _Fiber, descriptor: int, events: int, seconds: float) -> bool:
        """Runs other fibers until the descriptor is ready; returns False if it is not ready within `seconds`."""
        self._poll.register(descriptor, events)
        self._waiting[descriptor] = (fiber, time.monotonic() + seconds)
        return bool(fiber.parent.switch())

    def call_in_thread(self, fiber: _Fiber, call: Callable[[], T]) -> T:
        """Runs `call` in a new thread; returns its result or raises its error.

        In the meantime, the pool's thread runs other fibers.
        """
        result: Future[T] = Future()

        def work() -> None:
            try:
                result.set_result(call())
            except BaseException as error:  # `result.result()` raises the error again in the fiber
                result.set_exception(error)
            self._due.put(fiber.switch)

        try:
            threading.Thread(target=work, name=f"{self._thread.name}'s call", daemon=True).start()
        except RuntimeError as error:
            raise Refused(f"{self._thread.name}: {error}", 503) from None
        fiber.parent.switch()
        return result.result()

    def _begin(self) -> None:
        """Starts a fiber. If all are busy, one of them runs the task when it has finished its own."""
        if self._tasks and self._at_work < self._fibers:
            _Fiber(self).switch()

    def _run(self) -> None:
        stopping = False
        while self._at_work or not stopping:
            try:
                switch_to_fiber = self._due.get(block=not self._waiting)
            except Empty:
                self._resume_ready()
                continue
            if switch_to_fiber is None:
                stopping = True
            else:
                switch_to_fiber()

    def _resume_ready(self) -> None:
        for descriptor, _ in self._poll.poll(_TURN_SECONDS * 1000):
            self._resume(descriptor, ready=True)
        now = time.monotonic()
        if now >= self._expires_at:
            self._expires_at = now + _EXPIRY_SECONDS
            for descriptor in [waiting for waiting, (_, ends_at) in self._waiting.items() if ends_at <= now]:
                self._resume(descriptor, ready=False)

    def _resume(self, descriptor: int, *, ready: bool) -> None:
        self._poll.unregister(descriptor)
        fiber, _ = self._waiting.pop(descriptor)
        fiber.switch(ready)

    def work(self) -> None:
        """Runs waiting tasks, inside a fiber. If a task raises an error, `on_error` is called."""
        self._at_work += 1
        while self._tasks:
            task = self._tasks.popleft()
            try:
                task()
            except BaseException as error:  # includes SystemExit, which would end the thread and all other fibers
                self._on_error(self._thread.name, error)
        self._at_work -= 1


class _Fiber(greenlet):  # type: ignore[misc,unused-ignore]
    """Works for a pool. It can pause, and the pool's thread then runs other fibers."""

    def __init__(self, pool: FiberPool) -> None:
        super().__init__(pool.work)
        self.pool = pool


def ready(descriptor: int, events: int, seconds: float) -> bool:
    """Waits up to `seconds` until the file descriptor is READABLE or WRITABLE; returns False if that takes longer."""
    fiber = getcurrent()
    if seconds > 0 and isinstance(fiber, _Fiber):
        return fiber.pool.wait(fiber, descriptor, events, seconds)
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(seconds * 1000))


def in_thread(call: Callable[[], T]) -> T:
    """Returns the result of `call`, or raises its error.

    In a fiber, `call` runs in a thread of its own, so that the other fibers can continue.

    Raises:
        Refused: no thread can be started.
    """
    fiber = getcurrent()
    return fiber.pool.call_in_thread(fiber, call) if isinstance(fiber, _Fiber) else call()
