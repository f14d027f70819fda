"""The next step of a reflector, as a machine without I/O, time or randomness of its own.

    LISTING --- last page ---> WATCHING --- ended ---> WATCHING, from the last version
       ^  | page, failure         |  failure ---> WATCHING, after a pause
       '--'                       '--- 410, two broken streams in a row, a failing sink ---> LISTING
                                  '--- nothing but 404 for a minute: served no more -------> LISTING, every ten minutes
                               '--- distrust: what came contradicts itself -------------> LISTING, not synced till then

`next` says what to do; what came of it goes back in by one of the other methods. Pauses grow from 0.8 s to 30 s, each
stretched by up to its own length at random, and are short again after two quiet minutes (client-go's reflector), those
of a list after every page that comes; they end as the server is seen to answer others. A version that has expired is no
outage, and has pauses of its own. A server that says when to ask again is asked then, up to ten times in a row
(client-go's rest.Request).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

PAGE_SIZE = 500
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, QUIET_SECONDS = 0.8, 30.0, 120.0
UNSERVED_PAUSE_SECONDS = 600.0
# How long a kind that was there is missed: a 404 may come from one of several API servers in the midst of an upgrade.
WITHDRAWN_SECONDS = 60.0
SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS = 300, 600
_SHORT_WATCH_SECONDS = 1.0
_MOST_RETRIES = 10


class ListWatchFailure(Enum):
    """A reason for which a list or a watch came to nothing."""

    EXPIRED = auto()
    """The version or the continue token is too old (410)."""
    MALFORMED = auto()
    """An answer that cannot be read, or breaks off in the middle of a line."""
    SINK = auto()
    """It came, but the sink could not take it: whatever it holds now, a whole list puts it right."""
    UNSERVED = auto()
    """The API server does not know the kind (404)."""
    OTHER = auto()
    """Everything else; the next attempt goes on from where this one was."""


class _Counted(Enum):
    """The requests that failures are counted for, each for pauses of its own."""

    LIST = auto()
    WATCH = auto()
    VERSION = auto()
    """A watch from a version that the server has forgotten: it answers, after whatever failures came before."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class List:
    """Fetch a page of the list; the first where `continue_token` is empty. `limit` 0: everything in one."""

    continue_token: str
    limit: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Follow the changes since `version`; the server is asked to end the watch after `timeout_seconds`."""

    version: str
    timeout_seconds: int


Step = Pause | List | Watch


class ListWatchState:
    """One kind's machine. Times are monotonic seconds.

    Attributes:
        synced: the whole list has come since the kind is served, and since it was distrusted.
        served: the API server knows the kind, as far as is known.
    """

    def __init__(self, random: Random) -> None:
        self.synced = False
        self.served = True
        self._random = random
        self._version: str | None = None  # None: listing
        self._continue_token = ""
        self._limit = PAGE_SIZE
        self._resume_at = 0.0
        self._failures = Counter[_Counted]()
        self._last_failure_at = float("-inf")
        self._retries = 0  # in a row, when the server had said
        self._opened_at = 0.0
        self._progress = True  # something has come since the last stream broke
        self._missed_since: float | None = None  # nothing but 404 has come since then
        self._distrusted = False  # and not begun to list since

    @property
    def version(self) -> str:
        """Returns the version that the sink is at; "" while a list is under way."""
        return self._version or ""

    def next(self, now: float) -> Step:
        if now < self._resume_at:
            return Pause(self._resume_at - now)
        if self._distrusted:
            self._distrusted = False
            self._start_over(limit=PAGE_SIZE)
        if self._version is None:
            return List(self._continue_token, self._limit)
        self._opened_at = now
        return Watch(self._version, self._random.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS))

    def paged(self, version: str, continue_token: str) -> bool:
        """Takes a page; returns whether it was the last."""
        self._continue_token, self._missed_since, self._retries = continue_token, None, 0
        self._failures[_Counted.LIST] = 0
        if continue_token:
            return False
        self._version, self._limit = version, PAGE_SIZE
        self.served = self._progress = True
        self.synced = not self._distrusted
        return True

    def observed(self, version: str) -> None:
        """Notes that a watch delivered an object or a bookmark of this version."""
        self._version, self._progress = version, True

    def distrust(self) -> None:
        """Lists anew as soon as it may, and counts as not synced till then; any thread may say so."""
        self._distrusted = True
        self.synced = False
        self.answered()

    def answered(self) -> None:
        """Ends a pause, for the API server answers others; not one that it asked for. Any thread may say so."""
        if not self._retries:
            self._resume_at = 0.0

    def opened(self) -> None:
        """Notes that the API server has taken up a watch."""
        self._missed_since, self._retries = None, 0

    def ended(self, now: float) -> None:
        """Notes that a watch ended as it should; one that ended at once and empty is a failure, as in client-go."""
        if now - self._opened_at < _SHORT_WATCH_SECONDS:
            self.failed(ListWatchFailure.OTHER, now)

    def failed(self, failure: ListWatchFailure, now: float, retry_after_seconds: float = 0.0) -> None:
        """Notes that a list or a watch came to nothing."""
        watching = self._version is not None
        if failure is ListWatchFailure.EXPIRED:
            # A continue token that expires once will do so again: the list takes longer than the server remembers.
            self._start_over(limit=PAGE_SIZE if watching else 0)
        elif failure is ListWatchFailure.SINK:
            self._start_over(limit=PAGE_SIZE)
        elif failure is ListWatchFailure.MALFORMED and watching:
            if not self._progress:
                self._start_over(limit=PAGE_SIZE)
            self._progress = False
        elif failure is ListWatchFailure.UNSERVED and self._is_missed_for_good(now):
            self.served = self.synced = False
            self._start_over(limit=PAGE_SIZE)
            self._resume_at = now + UNSERVED_PAUSE_SECONDS * self._random.uniform(1, 1.1)
            return
        if failure is not ListWatchFailure.UNSERVED:
            self._missed_since = None
        if retry_after_seconds and self._retries < _MOST_RETRIES:
            self._retries += 1
            self._resume_at = now + retry_after_seconds
            return
        expired = failure is ListWatchFailure.EXPIRED
        counted = _Counted.LIST if not watching else _Counted.VERSION if expired else _Counted.WATCH
        self._resume_at = now + max(self._pause(now, counted), retry_after_seconds)

    def _is_missed_for_good(self, now: float) -> bool:
        if self._missed_since is None:
            self._missed_since = now
        return not self.synced or now >= self._missed_since + WITHDRAWN_SECONDS

    def _start_over(self, limit: int) -> None:
        self._version, self._continue_token, self._limit = None, "", limit

    def _pause(self, now: float, counted: _Counted) -> float:
        if now - self._last_failure_at > QUIET_SECONDS:
            self._failures.clear()
        self._last_failure_at = now
        seconds: float = min(FIRST_PAUSE_SECONDS * 2 ** self._failures[counted], LONGEST_PAUSE_SECONDS)
        self._failures[counted] = min(self._failures[counted] + 1, 16)
        return seconds * self._random.uniform(1, 2)
