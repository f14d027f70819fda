"""What a gunicorn worker and the application agree on beside WSGI: limits, start, readiness going down, stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from extender.web.answers import Answer
from extender.web.worker.limits import Limits


def _nothing() -> None:
    pass


def _ignored(status: int) -> None:
    pass


Post = Callable[[bytes], Answer]
"""A body that was posted, in; the answer out. Raises nothing."""


class Lifecycle:
    """One application's life in one process.

    `start` runs what must not run before the fork (threads die in it): watches, timers. It and `stop` run once each,
    whoever asks and however often.

    Attributes:
        posts: by path, what answers a POST of JSON as WSGI would, for a server that can tell one without WSGI.
    """

    def __init__(
        self,
        *,
        start: Callable[[], None] = _nothing,
        stop: Callable[[], None] = _nothing,
        rejected: Callable[[int], None] = _ignored,
        limits: Limits | None = None,
        drain_seconds: float = 0.0,
    ) -> None:
        self._start = start
        self._stop = stop
        self._lock = Lock()
        self.rejected = rejected
        self.limits = limits or Limits()
        self.drain_seconds = drain_seconds
        self.posts: Mapping[str, Post] = {}
        self.started = False
        self.draining = False
        self.stopped = False

    def start(self) -> None:
        """Starts the watches, once."""
        with self._lock:
            if not self.started:
                self._start()
                self.started = True

    def drain(self) -> None:
        """Readiness goes down; calls are still answered."""
        self.draining = True

    def stop(self) -> None:
        """Stops what `start` started, once."""
        with self._lock:
            if self.started and not self.stopped:
                self.stopped = True
                self._stop()
