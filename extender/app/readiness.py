"""Readiness: a process answers once its cache is filled, and while its watches are alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from math import inf

from extender.runtime.clock import Clock


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
