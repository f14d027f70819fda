"""Work that is done every so often, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Ticker:
    """Calls `action` every `seconds` from `start` to `stop`; an action that raises is logged and called again."""

    def __init__(self, name: str, seconds: float, action: Callable[[], object]) -> None:
        self._seconds, self._action = seconds, action
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when no action is under way any more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._action()
            except Exception:
                _log.exception("%s failed", self._thread.name)
