"""Expiry of assumed pods.

A pod whose time to live is over need not be unbound: the watch may be behind. It expires once the watch has told of
everything that there was after that time: had the pod been bound, the watch would have said so. A pod that is listed
otherwise than the watch has told does not expire, whatever the watch says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.runtime.clock import Clock

ASK_AGAIN_SECONDS = 15.0


class PodSurvey(Protocol):
    """The pods that the API server had at one moment, beside those that the cache has."""

    def confirmed(self) -> bool:
        """Returns True once the cache has each of them in this version or a newer one."""

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:
        """Returns True if the API server had a later version of the pod than `pod`, the one in the cache, if any."""


class Expiry:
    """Call `sweep` every second or so; one thread at a time."""

    def __init__(self, cache: Cache, survey: Callable[[], PodSurvey], clock: Clock) -> None:
        """`survey` asks which pods there are; it raises ClusterError."""
        self._cache, self._ask, self._clock = cache, survey, clock
        self._asked_at = self._ask_from = float("-inf")
        self._survey: PodSurvey | None = None

    def sweep(self) -> list[str]:
        """Lets go of the pods that are over; returns their `namespace/name`.

        Raises:
            ClusterError: nobody can tell; asked again after a while.
        """
        now = self._clock.monotonic()
        if now >= self._ask_from:
            self._survey = None
            if not self._cache.overdue(now):
                return []
            self._asked_at, self._ask_from = now, now + ASK_AGAIN_SECONDS
            self._survey = self._ask()
        if self._survey is None or not self._survey.confirmed():
            return []
        survey, self._survey = self._survey, None
        over = self._cache.overdue(self._asked_at)
        expired = [uid for uid, pod in over.items() if not survey.shows_newer(uid, pod)]
        if len(expired) == len(over):
            self._ask_from = now
        return self._cache.expire(expired, self._asked_at)
