"""Which assumed pods expire, and when it is known that they may.

A pod whose time to live is over need not be unbound: the watch may be behind. It expires once the watch has told of
everything that there was after that time: had the pod been bound, the watch would have said so.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.cache.cache import Cache
from extender.runtime.clock import Clock

Survey = Callable[[], Callable[[], bool]]
"""Asks what there is, and gives a probe that tells whether the cache was told of it all; raises ClusterError."""

ASK_AGAIN_SECONDS = 15.0


class Expiry:
    """Call `sweep` every second or so; one thread at a time."""

    def __init__(self, cache: Cache, survey: Survey, clock: Clock) -> None:
        self._cache, self._survey, self._clock = cache, survey, clock
        self._asked_at = self._ask_from = float("-inf")
        self._has_told: Callable[[], bool] | None = None

    def sweep(self) -> list[str]:
        """Lets go of the pods that are over; their `namespace/name`.

        Raises:
            ClusterError: nobody can tell; asked again after a while.
        """
        now = self._clock.monotonic()
        if now >= self._ask_from:
            self._has_told = None
            if not self._cache.overdue(now):
                return []
            self._asked_at, self._ask_from = now, now + ASK_AGAIN_SECONDS
            self._has_told = self._survey()
        if self._has_told is None or not self._has_told():
            return []
        self._ask_from = now
        return self._cache.expire(self._asked_at)
