"""Many calls at once in one thread: a fiber (a greenlet) that waits for its socket lets the others go on.

A thread for each call costs more than the call: after every system call each waits for the interpreter's lock again.
Whoever may have to wait asks `ready` or `in_thread`, and need not know where it runs: outside of a fiber they block.
A fiber that waits must hold no lock, for the next one may want it, and both are one thread; for a descriptor waits one
fiber at a time.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped,unused-ignore]  # its stubs are another package

from extender.errors import Refused, TaskFailed
from extender.runtime.threads import OnError

READABLE, WRITABLE = select.POLLIN, select.POLLOUT
_TURN_SECONDS = 0.002  # the longest wait of a new task while others wait for their sockets
_CHECK_SECONDS = 1.0  # how often whoever waits for room asks whether there will be any
_EXPIRY_SECONDS = 0.1  # how often somebody looks whose patience is over
T = TypeVar("T")


class FiberPool:
    """A scheduler.ports.Workers of one thread, which is at work on up to `fibers` tasks at once.

    `on_error` is called with what a task raises.
    """

    def __init__(self, name: str, fibers: int, on_error: OnError) -> None:
        self._on_error = on_error
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()  # beginnings and resumptions; None: stop
        self._room = threading.Semaphore(fibers)
        self._poll = select.poll()
        self._waiting: dict[int, tuple[_Fiber, float]] = {}  # by file descriptor, with the end of its patience
        self._at_work = 0
        self._expires_at = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, task: Callable[[], object]) -> None:
        """See scheduler.ports.Workers. Raises TaskFailed as `check` does."""
        while not self._room.acquire(timeout=_CHECK_SECONDS):
            self.check()
        self._due.put(lambda: _Fiber(self, task).switch())

    def check(self) -> None:
        """Raises TaskFailed if the thread has ended: no other can continue its fibers."""
        if not self._thread.is_alive():
            raise TaskFailed(f"the thread {self._thread.name} has ended, and its tasks with it")

    def stop(self, timeout_seconds: float) -> None:
        """Ends once the tasks submitted so far are done, or that time is over."""
        self._due.put(None)
        self._thread.join(timeout_seconds)

    def wait(self, fiber: _Fiber, descriptor: int, events: int, seconds: float) -> bool:
        """Lets others go on until the descriptor is ready; returns whether it was in that time."""
        self._poll.register(descriptor, events)
        self._waiting[descriptor] = (fiber, time.monotonic() + seconds)
        return bool(fiber.parent.switch())

    def call_in_thread(self, fiber: _Fiber, call: Callable[[], T]) -> T:
        """See `in_thread`."""
        called: Future[T] = Future()

        def work() -> None:
            try:
                called.set_result(call())
            except BaseException as error:  # belongs to the fiber
                called.set_exception(error)
            self._due.put(fiber.switch)

        try:
            threading.Thread(target=work, name=f"{self._thread.name}'s call", daemon=True).start()
        except RuntimeError as error:
            raise Refused(f"{self._thread.name}: {error}", 503) from None
        fiber.parent.switch()
        return called.result()

    def _run(self) -> None:
        stopping = False
        while self._at_work or not stopping:
            try:
                while (go_on := self._due.get(block=not self._waiting)) is not None:
                    go_on()
                stopping = True
            except Empty:
                self._resume_ready()

    def _resume_ready(self) -> None:
        for descriptor, _ in self._poll.poll(_TURN_SECONDS * 1000):
            self._resume(descriptor, ready=True)
        now = time.monotonic()
        if now >= self._expires_at:
            self._expires_at = now + _EXPIRY_SECONDS
            for descriptor in [each for each, (_, ends_at) in self._waiting.items() if ends_at <= now]:
                self._resume(descriptor, ready=False)

    def _resume(self, descriptor: int, *, ready: bool) -> None:
        self._poll.unregister(descriptor)
        fiber, _ = self._waiting.pop(descriptor)
        fiber.switch(ready)

    def work(self, task: Callable[[], object]) -> None:
        self._at_work += 1
        try:
            task()
        except BaseException as error:  # SystemExit too: it would end the thread, and every other fiber with it
            self._on_error(self._thread.name, error)
        finally:
            self._at_work -= 1
            self._room.release()


class _Fiber(greenlet):  # type: ignore[misc,unused-ignore]  # see above
    """One task of a pool."""

    def __init__(self, pool: FiberPool, task: Callable[[], object]) -> None:
        super().__init__(lambda: pool.work(task))
        self.pool = pool


def ready(descriptor: int, events: int, seconds: float) -> bool:
    """Waits until the file descriptor is READABLE or WRITABLE; returns whether it was in that time."""
    fiber = getcurrent()
    if seconds > 0 and isinstance(fiber, _Fiber):
        return fiber.pool.wait(fiber, descriptor, events, seconds)
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(seconds * 1000))


def in_thread(call: Callable[[], T]) -> T:
    """Returns what `call` returns, or raises what it raises; a fiber has a thread call it, and lets others go on.

    Raises Refused where no thread can be started.
    """
    fiber = getcurrent()
    return fiber.pool.call_in_thread(fiber, call) if isinstance(fiber, _Fiber) else call()
