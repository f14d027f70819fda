"""Time as a value that is passed in, so that whatever depends on it can be tested without waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Protocol

from extender.errors import DeadlineExceeded

LATE = "no decision within"
"""The first words of the error of a decision that has met its deadline."""


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


class Deadline:
    """The end of the time that a decision may take, by the monotonic clock."""

    __slots__ = ("_clock", "_ends_at", "_seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        """`seconds` from now; 0: there is no end."""
        self._clock, self._seconds = clock, seconds
        self._ends_at = clock.monotonic() + seconds if seconds else inf

    def check(self, step: str) -> None:
        """Is called between steps; `step` is the next one. Raises DeadlineExceeded."""
        if self._clock.monotonic() > self._ends_at:
            raise DeadlineExceeded(self.told(f"{step} is still to come"))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does not count the time that the block takes."""
        begin = self._clock.monotonic()
        try:
            yield
        finally:
            self._ends_at += self._clock.monotonic() - begin

    @property
    def left_seconds(self) -> float:
        """The seconds that are left, below 0 when it is over; inf: there is no end."""
        return self._ends_at - self._clock.monotonic()

    def told(self, reason: str) -> str:
        """Returns the reason as an error has it."""
        return f"{LATE} {self._seconds:g} s: {reason}"


class TimeLimit:
    """The time that each decision may take; 0 seconds: any."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def begin(self) -> Deadline:
        """Returns the deadline of a decision that begins now."""
        return Deadline(self._clock, self._seconds)


class ManualClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._seconds = start

    def now(self) -> float:
        return self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds


NO_LIMIT = TimeLimit(ManualClock(), 0)
NO_DEADLINE = NO_LIMIT.begin()
