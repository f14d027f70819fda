"""Limits the rate of calls, so that they do not overload the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from extender.errors import Refused
from extender.runtime.clock import Clock
from extender.runtime.fibers import in_thread
from extender.runtime.ports import Binder, Binding, Check, always

_YIELDED_TURNS = 9
_TOO_MANY_REQUESTS = 429
_MOST_TRIES = 11
_RETRY_AFTER_SECONDS = 1.0  # the API server's eviction API always sends this Retry-After


class TokenBucket:
    """Limits the rate of calls: `reserve` returns how long a caller must wait (client-go's flowcontrol).

    Up to `burst` calls in a row need not wait; by default, as many calls as are allowed in one second.
    """

    def __init__(self, per_second: float, burst: int | None = None) -> None:
        self._seconds_per_turn = 1.0 / per_second
        self._burst = burst or max(1, int(per_second))
        self._lock = threading.Lock()
        self._paid_until = float("-inf")

    def reserve(self, now: float) -> float:
        """Reserves a turn for one call; returns how many seconds the caller must wait for this turn.

        `now` is in monotonic seconds.
        """
        with self._lock:
            full = now - self._burst * self._seconds_per_turn
            self._paid_until = max(self._paid_until, full) + self._seconds_per_turn
            return max(0.0, self._paid_until - now)


class YieldingBucket(TokenBucket):
    """A bucket that allows only a tenth of its rate while `is_urgent()` is True.

    Attributes:
        is_urgent: returns True while other calls are more urgent; the owner sets it.
    """

    def __init__(self, per_second: float, burst: int | None = None) -> None:
        super().__init__(per_second, burst)
        self.is_urgent: Callable[[], bool] = lambda: False

    def reserve(self, now: float) -> float:
        for _ in range(_YIELDED_TURNS if self.is_urgent() else 0):
            super().reserve(now)
        return super().reserve(now)


class PacedBinder:
    """A ports.Binder that binds at a limited rate, and repeats a bind that the API server answers with 429.

    It repeats a bind as often as client-go does, and after the same pauses. Without a repetition, the pod would go back
    to the queue, and would wait longer there.
    """

    def __init__(
        self, binder: Binder, bucket: TokenBucket, clock: Clock, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._binder = binder
        self._bucket = bucket
        self._clock = clock
        self._sleep = sleep

    def bind(self, binding: Binding, check: Check = always) -> None:
        for tries_left in reversed(range(_MOST_TRIES)):
            self._wait(self._bucket.reserve(self._clock.monotonic()))
            try:
                self._binder.bind(binding, check)
                return
            except Refused as error:
                if error.status != _TOO_MANY_REQUESTS or not tries_left:
                    raise
            self._wait(_RETRY_AFTER_SECONDS)

    def _wait(self, seconds: float) -> None:
        if seconds:
            in_thread(lambda: self._sleep(seconds))
