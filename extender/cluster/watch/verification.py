"""A look after reflectors that are told of nothing for a while: a list shows that they are still told the truth.

Bookmarks do not tell. They may pass while events are lost on the way, or come of a server that knows nothing of what
the reflector has seen, because it was restored from a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.cluster.watch.reflector import Reflector
from extender.cluster.watch.survey import Survey

QUIET_SECONDS = 20.0
PATIENCE_SECONDS = 20.0  # how long a watch may take to tell of an object that a list shows
_LISTED_PER_SECOND = 200  # a kind of many objects is listed more rarely
_LONGEST_SECONDS = 300.0


class Verification:
    """Call `failed` every second or so; `survey` lists a kind."""

    def __init__(self, reflector: Reflector, survey: Callable[[str], Survey]) -> None:
        self.reflector, self._ask = reflector, survey
        self._survey: Survey | None = None
        self._asked_at, self._told = 0.0, reflector.newest
        self._verified_at, self._every_seconds = 0.0, QUIET_SECONDS

    def failed(self, now: float) -> str:
        """Returns why the reflector must list anew; "" as long as nobody knows. `now` in monotonic seconds.

        Raises:
            ClusterError: there is no list to be had; asked again later.
        """
        reflector = self.reflector
        if not reflector.synced:
            self._survey = None
        elif self._survey is None:
            if now - max(reflector.told_at, self._verified_at) >= self._every_seconds:
                self._begin(now)
        elif self._survey.told():
            self._survey = None
        elif reflector.newest != self._told:
            self._asked_at, self._told = now, reflector.newest  # it is behind, and goes on
        elif reflector.synced and now - self._asked_at >= PATIENCE_SECONDS:
            return f"a list shows something new, and the watch has told of nothing for {now - reflector.told_at:.0f} s"
        return ""

    def _begin(self, now: float) -> None:
        self._asked_at = self._verified_at = now
        self._told = self.reflector.newest
        self._survey = self._ask(self.reflector.kind.name)
        self._every_seconds = min(max(QUIET_SECONDS, len(self._survey) / _LISTED_PER_SECOND), _LONGEST_SECONDS)
