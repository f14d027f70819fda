"""Records which keys of a table changed, so that everything derived from the table can be updated.

Each change is recorded under a topic and a key: a node under one of the topics below, any other object under its kind
and key. A reader remembers its position, the number of changes that it has read, and calls `since` to get the keys that
changed after it. A `Cursor` does this for readers that always read the same topics.

The journal keeps only the latest change of each key. So a reader that lags behind gets each key once, and the journal
has at most one entry for each key. Removed keys are forgotten after a while: a reader whose position is older gets
None, and reads the whole table again. A new reader has the position BEGINNING, and gets None too.

A reader catches up only when it is used, so a reader that is not used costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

BEGINNING = -1

RESOURCES = "resources"
"""The topic for changes of a node's resources, or of the requests of its pods. Its keys are rows."""
NODES = "nodes"
"""The topic for nodes that are added or modified. Its keys are rows."""
TOPOLOGY = "topology"
"""The topic for nodes that are added or removed, or whose labels change. Its keys are node names."""
FREE_VOLUMES = "free volumes"
"""The topic for volumes without a claim that are added, removed or changed. Its keys are storage classes."""

MOST_FOLLOWED = 256
"""If more rows than this have changed, reading all rows at once is faster than reading each changed row."""

_REMOVED_KEYS_KEPT = 4096


class Journal:
    """Stores the latest change of each key, by topic.

    Attributes:
        now: the number of changes so far, which is the position of a reader that has read all of them.
    """

    def __init__(self, removed_keys_kept: int = _REMOVED_KEYS_KEPT) -> None:
        self.now = 0
        self._removed_keys_kept = removed_keys_kept
        self._logs: dict[str, _Log] = {}

    def note(self, topic: str, key: Hashable) -> None:
        """Records that the value of the key was added or changed."""
        log = self._logs.get(topic) or self._logs.setdefault(topic, _Log())
        self.now = now = self.now + 1
        log.latest.pop(key, None)  # moves the key to the end, so that the keys are in the order of their latest change
        log.latest[key] = log.position = now

    def note_removed(self, topic: str, key: Hashable) -> None:
        """Records that the value of the key was removed."""
        self.note(topic, key)
        log = self._logs[topic]
        log.removed.append((key, self.now))
        # Beyond this number of missed removals, reading the whole table again is as quick.
        while len(log.removed) > max(self._removed_keys_kept, len(log.latest) // 4):
            oldest, position = log.removed.popleft()
            if log.latest.get(oldest) == position:  # if the positions differ, the key was added again
                del log.latest[oldest]
                log.forgotten = position

    def begin(self, topic: str) -> None:
        """Makes every reader of the topic read everything again. Call it when the topic's keys change their meaning."""
        self.now += 1
        log = self._logs[topic] = _Log()
        log.position = log.forgotten = self.now

    def since(self, cursor: int, *topics: str) -> list[Any] | None:
        """Returns the keys of these topics that changed after `cursor`; None if the journal has forgotten some.

        Each topic contributes each of its keys once, in the order of their latest changes.
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
        """Returns True if the key has changed after `cursor`, or if the journal has forgotten changes after it."""
        log = self._logs.get(topic)
        return log is not None and (cursor < log.forgotten or log.latest.get(key, BEGINNING) > cursor)


class Cursor:
    """A reader's position in the journal, for the topics that this reader reads."""

    __slots__ = ("_journal", "_position", "_topics")

    def __init__(self, journal: Journal, *topics: str) -> None:
        self._journal = journal
        self._topics = topics
        self._position = BEGINNING

    def read(self) -> list[Any] | None:
        """Returns the keys that have changed since the last call; None if everything must be read again.

        The first call returns None.
        """
        position = self._position
        if position == self._journal.now:
            return []
        self._position = self._journal.now
        return self._journal.since(position, *self._topics)

    def advance(self) -> bool:
        """Returns True if anything has changed since the last call, or if this is the first call."""
        return self.read() != []


class _Log:
    """The changes of one topic. The position of a change is its number in the journal.

    Attributes:
        latest: key -> the position of its latest change, in ascending order of positions.
        position: the position of the last change of this topic.
        removed: (key, position) of the last removals, oldest first.
        forgotten: the position of the last removal that is no longer in `latest`. A reader with an earlier position may
            have missed the removal.
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
