"""The tables that readers of the cache borrow.

A reader has a table to itself while it reads. Each table has a cursor in the journal of the cache; before it is lent,
it takes in what has changed since. The cache's lock is held only to read the journal, never while a table takes
changes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from typing import TypeVar

from extender.cache.changes import Changes, Update, apply
from extender.errors import DeadlineExceeded, MalformedInput, RuleUnanswered
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import Table
from extender.table.features import FeatureGates
from extender.table.journal import BEGINNING

_UPDATES_BETWEEN = 50
_TRIES = 100
T = TypeVar("T")


class Replica:
    """A table, and how far it has followed the journal.

    Attributes:
        cursor: the position up to which changes were handed to the table.
        pending: those of them that it has not taken in yet, because a reader's deadline came first.
    """

    def __init__(self, features: FeatureGates) -> None:
        self._features = features
        self.table = Table(features)
        self.cursor = BEGINNING
        self.pending: Iterator[Update] = iter(())

    def follow(self, changes: Changes) -> None:
        """Adds the changes since `cursor` to the pending ones; starts a new table if they are too many."""
        missed = changes.since(self.cursor)
        if missed is None:
            self.table.leave_readers()
            self.table = Table(self._features)
            self.pending = iter(changes.all())
        elif len(missed):
            self.pending = chain(self.pending, missed)
        self.cursor = changes.now

    def catch_up(self, deadline: Deadline = NO_DEADLINE, between: Callable[[], object] = lambda: None) -> None:
        """Takes in the pending changes; calls `between` now and then.

        Raises:
            DeadlineExceeded: the rest stays pending, and the next call continues with it.
        """
        for number, update in enumerate(self.pending, start=1):
            apply((update,), self.table)
            deadline.check("the rest of the changes since the table was used last")
            if not number % _UPDATES_BETWEEN:
                between()


class TablePool:
    """The tables of a cache, as many as there were readers at the same time. Thread-safe.

    Args:
        changes: the journal of the cache.
        locked: takes the cache's lock, which guards the journal; its argument names the caller in metrics.
    """

    def __init__(
        self, changes: Changes, locked: Callable[[str], AbstractContextManager[None]], features: FeatureGates
    ) -> None:
        self._changes = changes
        self._locked = locked
        self._features = features
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []

    def __len__(self) -> int:
        return len(self._replicas)

    def ask(self, question: Callable[[Table], T]) -> tuple[T, int]:
        """Returns the answer of an up-to-date table, and its cursor."""
        with self._borrowed("ask") as replica:
            return question(replica.table), replica.cursor

    def ask_locked(self, question: Callable[[Table], T]) -> T:
        """Returns the answer of a table that stays up to date, because the caller holds the lock."""
        replica = self._idle.pop() if self._idle else self._new()
        try:
            self._follow(replica)
            replica.catch_up()
            answer = question(replica.table)
        except BaseException:
            self._discard(replica)
            raise
        self._idle.append(replica)
        return answer

    @contextmanager
    def lend(self, reader: str, deadline: Deadline = NO_DEADLINE) -> Iterator[Table]:
        """Lends a table that is up to date when the block begins, and that nothing changes in it.

        Rules that read the table end by the deadline.
        """
        with self._borrowed(reader, deadline) as replica:
            replica.table.deadline = deadline
            yield replica.table

    @contextmanager
    def _borrowed(self, reader: str, deadline: Deadline = NO_DEADLINE) -> Iterator[Replica]:
        """Lends a replica; discards it if the reader fails, because the reader may have changed a part of it."""
        with self._locked(reader):
            replica = self._take_freshest() if self._idle else self._new()
            self._follow(replica)
        self._catch_up(replica, reader, deadline)
        try:
            yield replica
        except BaseException as error:
            self._give_back(replica, reader, failed=_spoils(error))
            raise
        self._give_back(replica, reader, failed=False)

    def _give_back(self, replica: Replica, reader: str, *, failed: bool) -> None:
        if failed:
            with self._locked(reader):
                self._discard(replica)
        else:
            replica.table.deadline = NO_DEADLINE
            self._idle.append(replica)

    def refresh(self, tables: int) -> None:
        """Creates tables up to that number and updates idle ones, so that no reader has to wait.

        The first tables of a large cluster take about a second.
        """
        for _ in range(tables):
            with self._locked("refresh"):
                if not self._idle and len(self._replicas) >= tables:
                    return
                replica = self._idle.pop(0) if len(self._replicas) >= tables else self._new()
                self._follow(replica)
            self._catch_up(replica, "refresh")
            self._idle.append(replica)

    def keep_up(self) -> None:
        """Updates idle tables so that the next reader need not.

        Skipped when there is only one table: taking it would make readers build another.
        """
        if len(self._replicas) > 1:
            self.refresh(len(self._replicas))

    def check(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """Compares every table with a new one, both up to date; discards those that are not right.

        The new table replaces the oldest that is right, which frees what that table remembers of deleted objects.
        Returns how many tables were compared. Calls `breathe` now and then.
        """
        with self._locked("check_tables"):
            replicas = tuple(self._replicas)
            fresh = self._new()
            self._follow(fresh)
        try:
            fresh.catch_up(between=breathe)
            checked = [replica for replica in replicas if self._check(replica, fresh, is_right, breathe)]
        except BaseException:
            self._give_back(fresh, "check_tables", failed=True)
            raise
        with self._locked("check_tables"):
            self._idle.insert(0, fresh)
            if len(self._replicas) > len(replicas):
                oldest = next((replica for replica in checked if replica in self._idle), fresh)
                self._idle.remove(oldest)
                self._discard(oldest)
        return len(checked)

    def _check(
        self,
        replica: Replica,
        fresh: Replica,
        is_right: Callable[[Table, Table], bool],
        breathe: Callable[[], object],
    ) -> bool:
        """Compares the replica with the new one; returns False if it was on loan at each try."""
        for _ in range(_TRIES):
            with self._locked("check_tables"):
                is_idle = replica in self._idle
                if is_idle:
                    self._idle.remove(replica)
                    self._follow(replica)
                    self._follow(fresh)
            if is_idle:
                break
            breathe()
        else:
            return False
        try:
            with suppress(Exception):  # the table then lacks a change, which the comparison shows
                replica.catch_up()
            fresh.catch_up()
            failed = not is_right(replica.table, fresh.table)
        except BaseException:
            self._give_back(replica, "check_tables", failed=True)
            raise
        self._give_back(replica, "check_tables", failed=failed)
        return True

    def _catch_up(self, replica: Replica, reader: str, deadline: Deadline = NO_DEADLINE) -> None:
        try:
            replica.catch_up(deadline)
        except BaseException as error:
            self._give_back(replica, reader, failed=not isinstance(error, DeadlineExceeded))
            raise

    # ---- with the lock held

    def _follow(self, replica: Replica) -> None:
        """Hands the latest changes to a replica that is not idle; discards it if this fails."""
        try:
            replica.follow(self._changes)
        except BaseException:
            self._discard(replica)
            raise

    def _take_freshest(self) -> Replica:
        freshest = max(self._idle, key=lambda replica: replica.cursor)
        self._idle.remove(freshest)
        return freshest

    def _new(self) -> Replica:
        replica = Replica(self._features)
        self._replicas.append(replica)
        return replica

    def _discard(self, replica: Replica) -> None:
        self._replicas = [other for other in self._replicas if other is not replica]
        replica.table.leave_readers()


def _spoils(error: BaseException) -> bool:
    """Returns True if the error may have left a table half changed, or in use.

    A deadline is checked between two steps, and malformed fields of a pod are found before anything changes.
    """
    return not isinstance(error, DeadlineExceeded | MalformedInput) or isinstance(error, RuleUnanswered)
