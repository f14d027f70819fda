"""Work that is done every so often, in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from extender.runtime.threads import LastingThread

_log = logging.getLogger(__name__)


class Ticker:
    """Calls `action` every `seconds` (0: only when woken) from `start` to `stop`.

    An action that raises is logged and called again.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], object]) -> None:
        self._seconds, self._action = seconds, action
        self._stopped = False
        self._wakings: SimpleQueue[None] = SimpleQueue()
        self._thread = LastingThread(name, self._run)
        self.name, self.start, self.revive = name, self._thread.start, self._thread.revive

    def wake(self) -> None:
        """Has the action called now; a signal handler may call it, for a SimpleQueue can be filled at any point."""
        self._wakings.put(None)

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Returns when no action is under way any more, or that time is over."""
        self._stopped = True
        self.wake()
        self._thread.stop(timeout_seconds)

    def _run(self) -> None:
        while not self._sleep():
            try:
                self._action()
            except Exception:
                _log.exception("%s failed", self.name)

    def _sleep(self) -> bool:
        """Sleeps until it is time, or somebody wakes it; returns whether to stop."""
        with suppress(Empty):
            self._wakings.get(timeout=self._seconds or None)
        return self._stopped
