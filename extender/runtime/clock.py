"""Defines clocks and deadlines. Code gets its clock as an argument, so that tests need not wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import NamedTuple, Protocol

from extender.errors import DeadlineExceeded, GaveWay

LATE = "no decision within"
"""The first words of the error message if a decision misses its deadline."""


class Moment(NamedTuple):
    """One moment by three clocks.

    While the machine is suspended, the monotonic clock stops. The boot clock goes on, but stops with a virtual machine
    that is paused; then the wall clock is set forward later.
    """

    monotonic: float
    boot: float
    wall: float

    def longest_since(self, earlier: Moment) -> float:
        """Returns the seconds since `earlier` by the clock that shows the most."""
        return max(self.monotonic - earlier.monotonic, self.boot - earlier.boot, self.wall - earlier.wall)


class Clock(Protocol):
    def now(self) -> float:
        """Returns the seconds since the epoch, for times that people or the API server read."""

    def monotonic(self) -> float:
        """Returns seconds that never decrease, for deadlines and durations."""

    def moment(self) -> Moment:
        """Returns the present moment, for durations that must not be taken for shorter than they are."""


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has none


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def moment() -> Moment:
        return Moment(time.monotonic(), time.clock_gettime(_BOOT), time.time())


class Deadline:
    """The latest time at which a decision must end, by the monotonic clock."""

    __slots__ = ("_began_at", "_clock", "_ends_at", "_others_wait", "_slice_ends_at", "seconds")

    def __init__(
        self, clock: Clock, seconds: float, slice_seconds: float = inf, others_wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Sets the deadline to `seconds` from now; 0 means that there is no deadline.

        After `slice_seconds`, the decision must end as soon as `others_wait` returns True.
        """
        self._clock = clock
        self._others_wait = others_wait
        self.seconds = seconds
        self._began_at = clock.monotonic()
        self._ends_at = self._began_at + seconds if seconds else inf
        self._slice_ends_at = min(self._began_at + slice_seconds, self._ends_at)

    def check(self, step: str) -> None:
        """Raises DeadlineExceeded if the deadline has passed, or GaveWay if others wait.

        The error says that the work stopped before `step`.
        """
        now = self._clock.monotonic()
        if now <= self._slice_ends_at:
            return
        if now > self._ends_at:
            raise DeadlineExceeded(self.message(f"stopped before {step}"))
        if self._others_wait():
            seconds = now - self._began_at
            raise GaveWay(f"gave way to other pods after {seconds:.1f} s: stopped before {step}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Extends the deadline by the time that the `with` block takes."""
        begin = self._clock.monotonic()
        try:
            yield
        finally:
            paused = self._clock.monotonic() - begin
            self._ends_at += paused
            self._slice_ends_at += paused
            self._began_at += paused

    @property
    def left_seconds(self) -> float:
        """The seconds until the deadline; negative after it, and inf if there is no deadline."""
        return self._ends_at - self._clock.monotonic()

    def message(self, reason: str) -> str:
        """Returns the message of the error for a missed deadline."""
        return f"{LATE} {self.seconds:g} s: {reason}"


class TimeLimit:
    """The time that each decision may take; 0 seconds means that there is no limit."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def begin(self, slice_seconds: float = inf, others_wait: Callable[[], bool] = lambda: False) -> Deadline:
        """Returns the deadline of a decision that starts now; see Deadline."""
        return Deadline(self._clock, self._seconds, slice_seconds, others_wait)

    def at_most(self, clock: Clock, seconds: float) -> TimeLimit:
        """Returns this limit if it is as short as `seconds`, else a limit of `seconds`, measured by `clock`."""
        return self if 0 < self._seconds <= seconds else TimeLimit(clock, seconds)

    def half(self) -> TimeLimit:
        """Returns a limit of half the time."""
        return TimeLimit(self._clock, self._seconds / 2)


INTERRUPTIONS = (DeadlineExceeded, KeyboardInterrupt)
"""What ends work that takes too long: a deadline, the limit of a question, or Ctrl-C."""


def note_subject(error: BaseException, subject: str) -> None:
    """Notes in the error, an interruption, which object was being worked on. The innermost object is noted first."""
    error.add_note(f"{subject} needs it" if getattr(error, "__notes__", ()) else subject)


@contextmanager
def known_so_far(describe: Callable[[], str]) -> Iterator[None]:
    """Notes in the error what was known when the `with` block was interrupted: `3 of 9 pods are placed`."""
    try:
        yield
    except INTERRUPTIONS as error:
        error.add_note(describe())
        raise


class ManualClock:
    """A clock that changes only when `advance` is called."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._seconds = start

    def now(self) -> float:
        return self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def moment(self) -> Moment:
        return Moment(self._seconds, self._seconds, self._seconds)

    def advance(self, seconds: float) -> None:
        self._seconds += seconds


NO_LIMIT = TimeLimit(ManualClock(), 0)
NO_DEADLINE = NO_LIMIT.begin()
