"""Warns of calls that hang while they still hang, because a call that never ends would otherwise leave no trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from extender.runtime.clock import Clock

HANGING_SECONDS = 5.0
Warn = Callable[[float], object]
"""Logs that a call has had no answer for so many seconds."""


@dataclass(slots=True, eq=False)
class _Call:
    warn: Warn
    began_at: float
    is_logged: bool = False


class HangingCalls:
    """The calls in flight. The owner calls `log` regularly, which warns of those without an answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()

    @contextmanager
    def watch(self, warn: Warn) -> Iterator[None]:
        """Watches the call that the block makes; `warn` is called once if the call hangs."""
        call = _Call(warn, self._clock.monotonic())
        with self._lock:
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)

    def log(self) -> None:
        """Warns of each call that has had no answer for HANGING_SECONDS, once."""
        now = self._clock.monotonic()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            seconds = now - call.began_at
            if seconds >= HANGING_SECONDS and not call.is_logged:
                call.is_logged = True
                call.warn(seconds)
