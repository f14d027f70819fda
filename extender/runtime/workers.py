"""Threads for calls that the loop must not wait for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger(__name__)


class WorkerPool:
    """A scheduler.ports.Workers of `threads` threads; `submit` waits while each has `backlog` tasks before it.

    Lighter than concurrent.futures, for nobody asks for a task's result.
    """

    def __init__(self, name: str, threads: int, backlog: int = 2) -> None:
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._room = threading.Semaphore(threads * (1 + backlog))
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], object]) -> None:
        """See scheduler.ports.Workers."""
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
            except Exception:  # a fault in one task must not cost the thread
                _log.exception("%s: a task failed", threading.current_thread().name)
            finally:
                self._room.release()
