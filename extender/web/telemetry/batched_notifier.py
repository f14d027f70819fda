"""Collects items from many threads and passes them on a moment later, many at once.

The first line after a while costs several times as much as the next, for the scheduler and the API server have taken
the processor's caches meanwhile; and the scheduler waits for the answer, not for the line.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from extender.runtime.threads import Ticker

T = TypeVar("T")
_log = logging.getLogger(__name__)
PAUSE_SECONDS = 0.1


class BatchedNotifier(Generic[T]):
    """Calls `notify` with the items that are noted: all of the last `PAUSE_SECONDS`, in their order, again and again.

    At once where it is not started. Who kills the process loses what was noted since; whatever else ends it does not.
    """

    def __init__(self, notify: Callable[[Sequence[T]], object]) -> None:
        self._notify = notify
        self._items: deque[T] = deque()
        self._notifying, self._stopping = threading.Lock(), threading.Event()
        self._started = self._awake = False
        self._ticker = Ticker("notifier", 0, self._notify_soon)

    def note(self, item: T) -> None:
        """Passes the item on soon."""
        self._items.append(item)
        if not self._started:
            self.catch_up()
        elif not self._awake:
            self._awake = True
            self._ticker.wake()

    def catch_up(self) -> None:
        """Passes on what has been noted so far."""
        with self._notifying:
            items = [self._items.popleft() for _ in range(len(self._items))]
            if not items:
                return
            try:
                self._notify(items)
            except Exception:
                _log.exception("%d of the last calls are not counted in full", len(items))

    def start(self) -> None:
        """Starts the thread, in the process that is to notify: threads die in a fork."""
        self._started = True
        atexit.register(self.catch_up)
        self._ticker.start()

    def stop(self) -> None:
        """Passes on the rest; what is noted later is passed on at once."""
        self._started = False
        self._stopping.set()
        self._ticker.stop()
        self.catch_up()
        atexit.unregister(self.catch_up)

    def _notify_soon(self) -> None:
        self._stopping.wait(PAUSE_SECONDS)
        self._awake = False  # first of all: what is noted from here on wakes it again
        self.catch_up()
