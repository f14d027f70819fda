"""Time as a value that is passed in, so that whatever depends on it can be tested without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time of a module."""

    def now(self) -> float:
        """Seconds since the epoch, for what people and the API server read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for deadlines and durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._seconds = start

    def now(self) -> float:
        return self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass."""
        self._seconds += seconds
