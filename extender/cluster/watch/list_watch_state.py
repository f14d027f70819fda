"""Decides what a reflector does next. This is a state machine without I/O, clock or randomness of its own.

A reflector lists and watches one kind, and passes the objects to a sink, usually the cache.

    LISTING --- last page ---> WATCHING --- ended ---> WATCHING, from the last version
       ^  | page, failure         |  failure ---> WATCHING, after a pause
       '--'                       '--- 410, two broken streams in a row, a failing sink ---> LISTING
                                  '--- nothing but 404 for a minute: no longer served ------> LISTING, every ten minutes
                                  '--- distrust: a survey or event contradicts the watch -> LISTING, unsynced until done

`next` returns the next step, and the caller reports the result with the other methods.

After a failure the reflector pauses:

- The first pause is 0.8 s, and each pause is twice as long as the last, up to 30 s. A random factor between 1 and 2
  makes it longer.
- After two minutes without a failure, pauses start at 0.8 s again, as in client-go's reflector. When a page of a list
  arrives, the pauses after failed lists start at 0.8 s again, too.
- The pauses after an expired version (410) grow separately, because a server that answers 410 is not down.
- A pause ends early if the API server answers another request.
- If the server says when to retry, the reflector retries then, up to ten times in a row (client-go's rest.Request).

A survey checks a watch. It lists only the UID and version of every object, and compares them with the objects that the
watch delivered; see `survey`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

PAGE_SIZE = 500
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, QUIET_SECONDS = 0.8, 30.0, 120.0
UNSERVED_PAUSE_SECONDS = 600.0
# A kind counts as removed after 404 for this long: one 404 may come from a server that is being upgraded.
WITHDRAWN_SECONDS = 60.0
SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS = 300, 600
_SHORT_WATCH_SECONDS = 1.0
_MOST_RETRIES = 10


class ListWatchFailure(Enum):
    """The reason why a list or a watch failed."""

    EXPIRED = auto()
    """The version or the continue token is too old (410)."""
    MALFORMED = auto()
    """The response cannot be decoded, or ends in the middle of a line."""
    SINK = auto()
    """The sink raised an error, so its content is uncertain until the next whole list."""
    UNSERVED = auto()
    """The API server does not know the kind (404)."""
    OTHER = auto()
    """Any other failure, such as a broken connection; the same page or watch is then requested again."""


class _FailureCount(Enum):
    """A type of failure whose pauses grow separately: a failed list, a failed watch, or an expired version."""

    LIST = auto()
    WATCH = auto()
    VERSION = auto()
    """The version to watch from has expired (410). The server has answered, so there is no outage."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The next step is to wait for this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class List:
    """The next step is to fetch a page of the list.

    Attributes:
        continue_token: the token of the page; "" for the first page.
        limit: the largest number of objects in the page; 0 means all objects in one page.
    """

    continue_token: str
    limit: int


@dataclass(frozen=True, slots=True)
class Watch:
    """The next step is to watch the changes since `version`. The server ends the watch after `timeout_seconds`."""

    version: str
    timeout_seconds: int


Step = Pause | List | Watch


class ListWatchState:
    """The state of one kind's reflector. Times are monotonic seconds.

    Attributes:
        synced: True from the delivery of a whole list until `distrust` is called or the server stops serving the kind.
        served: False if the API server does not serve the kind (404).
    """

    def __init__(self, random: Random) -> None:
        self.synced = False
        self.served = True
        self._random = random
        self._version: str | None = None  # the version to watch from; None while the kind is being listed
        self._continue_token = ""
        self._limit = PAGE_SIZE
        self._resume_at = 0.0
        self._failures = Counter[_FailureCount]()
        self._last_failure_at = float("-inf")
        self._retries = 0  # how often in a row the server has set the time of the next attempt by Retry-After
        self._opened_at = 0.0
        self._progress = True  # True if something was delivered since the last watch or list broke
        self._missing_since: float | None = None  # the time since which every answer was 404
        self._distrusted = False  # True from a call of `distrust` until the next list begins

    @property
    def version(self) -> str:
        """The version up to which the sink has all changes; "" while the kind is being listed."""
        return self._version or ""

    def next(self, now: float) -> Step:
        """Returns the reflector's next step: pause, list a page, or watch."""
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
        """Records that a page of the list has arrived; returns True if it was the last page."""
        self._continue_token = continue_token
        self._missing_since = None
        self._retries = 0
        self._failures[_FailureCount.LIST] = 0
        if continue_token:
            return False
        self._version = version
        self._limit = PAGE_SIZE
        self.served = True
        self._progress = True
        self.synced = not self._distrusted
        return True

    def observed(self, version: str) -> None:
        """Records that a watch delivered an object or a bookmark of this version."""
        self._version = version
        self._progress = True

    def distrust(self) -> None:
        """Requests a new list as the next step, because the watch may have lost events.

        The kind is not synced until that list is delivered. Any thread may call this.
        """
        self._distrusted = True
        self.synced = False
        self.answered()

    def answered(self) -> None:
        """Ends the pause after a failure, because the server has answered another request. Thread-safe.

        If the server has said how long to wait (Retry-After), the pause goes on.
        """
        if not self._retries:
            self._resume_at = 0.0

    def opened(self) -> None:
        """Records that the API server has accepted a watch."""
        self._missing_since = None
        self._retries = 0

    def ended(self, now: float) -> None:
        """Handles the normal end of a watch. A watch that lasted less than a second has failed, as in client-go."""
        if now - self._opened_at < _SHORT_WATCH_SECONDS:
            self.failed(ListWatchFailure.OTHER, now)

    def failed(self, failure: ListWatchFailure, now: float, retry_after_seconds: float = 0.0) -> None:
        """Handles a failed list or watch: chooses the next step, and how long to pause before it."""
        watching = self._version is not None
        if failure is ListWatchFailure.EXPIRED:
            # The list took longer than the server keeps a continue token, so the next list has a single page.
            self._start_over(limit=PAGE_SIZE if watching else 0)
        elif failure is ListWatchFailure.SINK:
            self._start_over(limit=PAGE_SIZE)
        elif failure is ListWatchFailure.MALFORMED and watching:
            if not self._progress:
                self._start_over(limit=PAGE_SIZE)
            self._progress = False
        elif failure is ListWatchFailure.UNSERVED and self._is_gone(now):
            self.served = False
            self.synced = False
            self._start_over(limit=PAGE_SIZE)
            self._resume_at = now + UNSERVED_PAUSE_SECONDS * self._random.uniform(1, 1.1)
            return
        if failure is not ListWatchFailure.UNSERVED:
            self._missing_since = None
        if retry_after_seconds and self._retries < _MOST_RETRIES:
            self._retries += 1
            self._resume_at = now + retry_after_seconds
            return
        expired = failure is ListWatchFailure.EXPIRED
        count = _FailureCount.LIST if not watching else _FailureCount.VERSION if expired else _FailureCount.WATCH
        self._resume_at = now + max(self._pause(now, count), retry_after_seconds)

    def _is_gone(self, now: float) -> bool:
        """Returns True if a 404 means that the API server does not serve the kind.

        While the kind is not synced, one 404 is enough. Otherwise, all answers for `WITHDRAWN_SECONDS` must be 404.
        """
        if self._missing_since is None:
            self._missing_since = now
        return not self.synced or now >= self._missing_since + WITHDRAWN_SECONDS

    def _start_over(self, limit: int) -> None:
        self._version = None
        self._continue_token = ""
        self._limit = limit

    def _pause(self, now: float, count: _FailureCount) -> float:
        if now - self._last_failure_at > QUIET_SECONDS:
            self._failures.clear()
        self._last_failure_at = now
        seconds: float = min(FIRST_PAUSE_SECONDS * 2 ** self._failures[count], LONGEST_PAUSE_SECONDS)
        self._failures[count] = min(self._failures[count] + 1, 16)
        return seconds * self._random.uniform(1, 2)
