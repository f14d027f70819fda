"""Readiness: a process answers once its cache is filled, and while its watches are alive.

And once no binding of a process before it can be in flight.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf

from extender.cache.cache import Cache
from extender.cache.expiry import ASK_AGAIN_SECONDS, PodSurvey
from extender.errors import ClusterError, ExtenderError
from extender.runtime.bindings_in_flight import BindingInFlight
from extender.runtime.clock import Clock

_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Readiness:
    """Waits until every kind is listed, and has `prepare` run after the first time; asked at every call."""

    def __init__(self, missing: Callable[[], Sequence[str]], prepare: Callable[[], None]) -> None:
        self._missing, self._prepare = missing, prepare
        self._lock = threading.Lock()
        self._prepared = False

    @property
    def ready(self) -> bool:
        """The cache holds a whole cluster, and was prepared."""
        return not self.waiting_for()["cache"]

    def waiting_for(self) -> Mapping[str, str]:
        """Returns {"cache": what it waits for}, or {"cache": ""}."""
        if missing := self._missing():
            return {"cache": f"waiting for the {'' if self._prepared else 'first '}list of {', '.join(missing)}"}
        if not self._prepared:
            with self._lock:
                if not self._prepared:
                    self._prepare()
                    self._prepared = True
        return {"cache": ""}


class Staleness:
    """Watches the watches: each shows events, bookmarks, or at least that it was opened anew after silence."""

    def __init__(self, staleness: Callable[[], Mapping[str, float]], limit_seconds: float, clock: Clock) -> None:
        self._staleness, self._limit_seconds, self._clock = staleness, limit_seconds, clock
        self._fresh_until = 0.0 if limit_seconds else inf

    def waiting_for(self) -> Mapping[str, str]:
        """Returns {"watches": of which kinds nothing was heard for too long}, or {"watches": ""}."""
        now = self._clock.monotonic()
        if now <= self._fresh_until:
            return {"watches": ""}
        ages = self._staleness()
        stale = {kind: age for kind, age in ages.items() if age > self._limit_seconds}
        if not stale:
            # Till then none can be stale, whatever is heard or not.
            self._fresh_until = now + self._limit_seconds - max(ages.values(), default=0.0)
            return {"watches": ""}
        silent = ", ".join(f"{kind} for {age:.0f} s" for kind, age in sorted(stale.items()))
        return {"watches": f"no word of {silent}, the limit is {self._limit_seconds:g} s"}


def take_over(cache: Cache, left: Iterable[BindingInFlight]) -> None:
    """Counts pods where a worker before was binding them, until the watch tells, or they expire."""
    for each in left:
        info = cache.find_pod(each.uid, f"{each.namespace}/{each.name}")
        if info is not None and cache.placement(each.uid) is None:
            with suppress(ExtenderError):  # the node is gone
                cache.assume(info, each.node)
                cache.finish_binding(each.uid, certain=False)
                _log.warning("%s/%s may have been bound to %s by the worker before", *each[:2], each.node)


class Settling:
    """Has nothing bound until the cache has been told of all that a process before may have bound.

    Nobody knows to which nodes that process was binding pods. So where pods wait, a start waits for as long as a call
    may take, and then for the watch to tell of the pods that a list shows.
    """

    def __init__(
        self, cache: Cache, ready: Readiness, survey: Callable[[], PodSurvey], clock: Clock, seconds: float
    ) -> None:
        """`seconds`: how long a call may be in flight; 0 waits for nothing."""
        self._cache, self._ready, self._ask, self._clock = cache, ready, survey, clock
        self._arrived_at = self._ask_at = clock.monotonic() + seconds
        self._settled = not seconds
        self._pods_wait = False
        self._survey: PodSurvey | None = None

    def waiting_for(self) -> Mapping[str, str]:
        """Returns {"settling": what it waits for}, or {"settling": ""}."""
        if self._settled or not self._ready.ready:
            return {"settling": ""}
        if not self._pods_wait:
            self._pods_wait = any(not held.node_name for held in self._cache.view.pods().values())
            self._settled = not self._pods_wait
            return self.waiting_for()
        left = max(0.0, self._arrived_at - self._clock.monotonic())
        return {"settling": f"a binding of a process before may still arrive, for {left:.0f} s yet"}

    def advance(self) -> None:
        """Asks which pods there are once it is time; to be called now and then.

        And again, for an API server that is restored from a copy may never get to what it has shown.
        """
        now = self._clock.monotonic()
        if self._settled or not self._pods_wait or now < self._arrived_at:
            return
        try:
            if now >= self._ask_at:
                self._survey, self._ask_at = None, now + _AGAIN_SECONDS
                self._survey, self._ask_at = self._ask(), now + ASK_AGAIN_SECONDS
            self._settled = self._survey is not None and self._survey.told()
        except ClusterError as error:
            _log.warning("nobody can tell what a process before has bound, asked again: %s", error)
