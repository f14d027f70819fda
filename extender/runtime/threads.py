"""Threads that are to last as long as their process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


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
