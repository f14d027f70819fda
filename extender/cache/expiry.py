"""Expires assumed pods that the watch has not confirmed.

A pod whose time to live has ended may still be bound, because the watch may be late. So all pods are listed with their
versions (a survey). When the cache has received every listed version, it also knows every bind before the list. Pods
that are still unconfirmed then expire. A pod that the list has in a newer version than the cache does not expire.

A survey is kept until it is confirmed, however late the watch is. If each survey replaced the last one, a watch that is
always late would confirm none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.runtime.clock import Clock

SURVEY_SECONDS = 15.0
"""The shortest time between two lists of all pods while some assumed pods are past their time to live."""


class PodSurvey(Protocol):
    """The UIDs and versions of all pods in the API server at one moment, to compare the cache with."""

    def confirmed(self) -> bool:
        """Returns True if the cache has every listed pod in the listed version or a newer one.

        A survey is always confirmed in the end: if the watch is too late, the pods are listed again.
        """

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:
        """Returns True if the listed version is newer than `pod`, the cached version (None: not in the cache)."""


class Expiry:
    """Expires assumed pods whose time to live has ended. One thread calls `sweep` every second or so.

    Args:
        take_survey: lists all pods; raises ClusterError if that fails.
    """

    def __init__(self, cache: Cache, take_survey: Callable[[], PodSurvey], clock: Clock) -> None:
        self._cache = cache
        self._take_survey = take_survey
        self._clock = clock
        self._survey: PodSurvey | None = None
        self._surveyed_at = float("-inf")
        self._next_survey_at = float("-inf")

    def sweep(self) -> list[str]:
        """Removes expired pods from their nodes in the cache; returns their `namespace/name`.

        Raises:
            ClusterError: the pods cannot be listed; the next call tries again.
        """
        now = self._clock.monotonic()
        if self._survey is None:
            if now < self._next_survey_at or not self._cache.overdue(now):
                return []
            self._surveyed_at = now
            self._next_survey_at = now + SURVEY_SECONDS
            self._survey = self._take_survey()
        if not self._survey.confirmed():
            return []
        survey = self._survey
        self._survey = None
        overdue = self._cache.overdue(self._surveyed_at)
        expired = [uid for uid, pod in overdue.items() if not survey.shows_newer(uid, pod)]
        if len(expired) == len(overdue):
            self._next_survey_at = now
        return self._cache.expire(expired, self._surveyed_at)
