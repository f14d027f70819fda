"""Warns of a call while it hangs, because a call that never ends would otherwise leave no trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from extender.runtime.clock import Clock

HANGING_SECONDS = 5.0
Warn = Callable[[float], object]
"""Logs that a call has waited this many seconds for its answer."""


@dataclass(slots=True, eq=False)
class _Call:
    warn: Warn
    began_at: float
    is_logged: bool = False


class HangingCalls:
    """The calls in flight. The owner calls `log` regularly, which warns of calls that hang."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()

    @contextmanager
    def watch(self, warn: Warn) -> Iterator[None]:
        """Watches the call that the `with` block makes. If it hangs, `warn` is called once."""
        call = _Call(warn, self._clock.monotonic())
        with self._lock:
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)

    def log(self) -> None:
        """Warns once of each call that has waited for HANGING_SECONDS."""
        now = self._clock.monotonic()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            seconds = now - call.began_at
            if seconds >= HANGING_SECONDS and not call.is_logged:
                call.is_logged = True
                call.warn(seconds)
