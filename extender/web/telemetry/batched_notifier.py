"""What calls have to tell, told a moment later and many at once.

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

from extender.runtime.ticker import Ticker

T = TypeVar("T")
_log = logging.getLogger(__name__)
PAUSE_SECONDS = 0.1


class BatchedNotifier(Generic[T]):
    """Calls `tell` with the items that are noted: all of the last `PAUSE_SECONDS`, in their order, again and again.

    At once where it is not started. Who kills the process loses what was noted since; whatever else ends it does not.
    """

    def __init__(self, tell: Callable[[Sequence[T]], object]) -> None:
        self._tell = tell
        self._items: deque[T] = deque()
        self._telling, self._stopping = threading.Lock(), threading.Event()
        self._started = self._awake = False
        self._ticker = Ticker("telling", 0, self._tell_soon)

    def note(self, item: T) -> None:
        """Has the item told soon."""
        self._items.append(item)
        if not self._started:
            self.catch_up()
        elif not self._awake:
            self._awake = True
            self._ticker.wake()

    def catch_up(self) -> None:
        """Tells what has been noted so far."""
        with self._telling:
            items = [self._items.popleft() for _ in range(len(self._items))]
            if not items:
                return
            try:
                self._tell(items)
            except Exception:
                _log.exception("of %d of the last calls nothing is told", len(items))

    def start(self) -> None:
        """In the process that is to tell, for threads die in a fork."""
        self._started = True
        atexit.register(self.catch_up)
        self._ticker.start()

    def stop(self) -> None:
        """Tells the rest; what is noted later is told at once."""
        self._started = False
        self._stopping.set()
        self._ticker.stop()
        self.catch_up()
        atexit.unregister(self.catch_up)

    def _tell_soon(self) -> None:
        self._stopping.wait(PAUSE_SECONDS)
        self._awake = False  # first of all: what is noted from here on wakes it again
        self.catch_up()
