"""The journal of a table: the one scheme by which everything derived from the table is kept up to date.

Each change is noted under a topic and a key: an object of another kind under its kind and key, a node under one of the
topics below. A reader keeps a cursor, the number of changes that it has taken in, and asks what came `since`; a Cursor
does so for readers that follow the same topics all the time.

The journal keeps the latest change of each key only, so a reader that lags behind gets each key once, and the journal
is no longer than what there is. Keys that are gone are forgotten after a while: a reader that is further behind gets
None, and reads the whole table again. A new reader has the cursor BEGINNING, and gets None likewise.

A reader catches up when it is asked something, never when something changes: a reader that is not used costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

BEGINNING = -1

RESOURCES = "resources"
"""By row: what a node offers, or what its pods request, has changed."""
NODES = "nodes"
"""By row: a node was added or modified."""
TOPOLOGY = "topology"
"""By name: a node was added or removed, or its labels have changed."""
FREE_VOLUMES = "free volumes"
"""By storage class: volumes without a claim were added, removed or changed."""

MOST_FOLLOWED = 256
"""If more rows have changed, reading all at once is faster than one by one."""

_REMOVED_KEYS_KEPT = 4096


class Journal:
    """The latest change of each key, by topic.

    Attributes:
        now: the number of changes so far: the cursor of a reader that has taken in all of them.
    """

    def __init__(self, removed_keys_kept: int = _REMOVED_KEYS_KEPT) -> None:
        self.now = 0
        self._removed_keys_kept = removed_keys_kept
        self._logs: dict[str, _Log] = {}

    def note(self, topic: str, key: Hashable) -> None:
        """Notes that what stands under the key has come or changed."""
        log = self._logs.get(topic) or self._logs.setdefault(topic, _Log())
        self.now = now = self.now + 1
        log.latest.pop(key, None)  # so that the latest change is always the last
        log.latest[key] = log.position = now

    def note_removed(self, topic: str, key: Hashable) -> None:
        """Notes that what stood under the key is gone."""
        self.note(topic, key)
        log = self._logs[topic]
        log.removed.append((key, self.now))
        # A reader that has missed more removals than this reads the whole table as quickly.
        while len(log.removed) > max(self._removed_keys_kept, len(log.latest) // 4):
            oldest, position = log.removed.popleft()
            if log.latest.get(oldest) == position:  # otherwise the key has come back
                del log.latest[oldest]
                log.forgotten = position

    def begin(self, topic: str) -> None:
        """Makes every reader of the topic start over, because its keys represent something else from now on."""
        self.now += 1
        log = self._logs[topic] = _Log()
        log.position = log.forgotten = self.now

    def since(self, cursor: int, *topics: str) -> list[Any] | None:
        """Returns the keys of these topics that have changed after `cursor`; None if that is too long ago.

        Topic by topic each key once, the latest change last.
        """
        if cursor < 0:
            return None
        keys: list[Any] = []
        for topic in topics:
            log = self._logs.get(topic)
            if log is None:
                continue
            if cursor < log.forgotten:
                return None
            keys += log.since(cursor)
        return keys

    def changed_topics(self, cursor: int) -> list[str]:
        """Returns the topics under which anything has changed after `cursor`."""
        return [topic for topic, log in self._logs.items() if log.position > cursor]

    def has_changed(self, cursor: int, topic: str, key: Hashable) -> bool:
        """Returns whether the key may have changed after `cursor`; True if that is too long ago."""
        log = self._logs.get(topic)
        return log is not None and (cursor < log.forgotten or log.latest.get(key, BEGINNING) > cursor)


class Cursor:
    """A reader's position in the journal. It follows some topics."""

    __slots__ = ("_journal", "_position", "_topics")

    def __init__(self, journal: Journal, *topics: str) -> None:
        self._journal = journal
        self._topics = topics
        self._position = BEGINNING

    def read(self) -> list[Any] | None:
        """Returns the keys that have changed since the last call; None: start over, as on the first call."""
        position = self._position
        self._position = self._journal.now
        return self._journal.since(position, *self._topics)

    def advance(self) -> bool:
        """Returns whether anything has changed since the last call; True on the first."""
        return self.read() != []


class _Log:
    """One topic.

    Attributes:
        latest: the position of the latest change of each key, ascending.
        position: that of the last of them.
        removed: the latest removals, with their positions.
        forgotten: the position of the last removal that `latest` no longer has.
    """

    __slots__ = ("forgotten", "latest", "position", "removed")

    def __init__(self) -> None:
        self.latest: dict[Hashable, int] = {}
        self.removed: deque[tuple[Hashable, int]] = deque()
        self.position = self.forgotten = 0

    def since(self, cursor: int) -> list[Hashable]:
        keys: list[Hashable] = []
        if self.position <= cursor:
            return keys
        for key, position in reversed(self.latest.items()):
            if position <= cursor:
                break
            keys.append(key)
        keys.reverse()
        return keys
