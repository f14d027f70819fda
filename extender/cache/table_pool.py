"""The tables that the cache lends to its readers.

Each reader has a table of its own while it reads, and each table a cursor in the journal of the cache. A table that is
lent first takes in what has changed since it was lent last; the cache's lock is held to read the journal, never while
a table takes anything in.
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
        cursor: the position in the journal up to which changes were handed to the table.
        pending: those of them that it has not taken in yet, because a reader's deadline came first.
    """

    def __init__(self, features: FeatureGates) -> None:
        self._features = features
        self.table = Table(features)
        self.cursor = BEGINNING
        self.pending: Iterator[Update] = iter(())

    def follow(self, changes: Changes) -> None:
        """Adds the changes since `cursor` to the pending ones; replaces a table that is too far behind."""
        missed = changes.since(self.cursor)
        if missed is None:
            self.table.leave_readers()
            self.table = Table(self._features)
            self.pending = iter(changes.all())
        elif len(missed):
            self.pending = chain(self.pending, missed)
        self.cursor = changes.now

    def catch_up(self, deadline: Deadline = NO_DEADLINE, between: Callable[[], object] = lambda: None) -> None:
        """Brings the table up to date; calls `between` now and then.

        Raises:
            DeadlineExceeded: the rest stays pending, and the next call continues with it.
        """
        for number, update in enumerate(self.pending, start=1):
            apply((update,), self.table)
            deadline.check("the rest of the changes since the table was used last")
            if not number % _UPDATES_BETWEEN:
                between()


class TablePool:
    """As many tables as there were readers at once; safe for any number of threads.

    Args:
        changes: the cache's, guarded by its lock.
        features: of the tables.
        locked: takes that lock, on behalf of the caller that it names.
    """

    def __init__(
        self, changes: Changes, locked: Callable[[str], AbstractContextManager[None]], features: FeatureGates
    ) -> None:
        self._changes, self._locked, self._features = changes, locked, features
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []

    def __len__(self) -> int:
        return len(self._replicas)

    def ask(self, question: Callable[[Table], T]) -> tuple[T, int]:
        """Returns the answer of a table, and the position in the journal at which it was up to date."""
        with self._lent("ask") as replica:
            return question(replica.table), replica.cursor

    def ask_locked(self, question: Callable[[Table], T]) -> T:
        """Returns the answer of a table that is up to date, and stays so: the caller holds the lock."""
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
        """Lends a table that is up to date as the block begins, stays as it is, and is the block's own.

        Rules that read it end by the deadline.
        """
        with self._lent(reader, deadline) as replica:
            replica.table.deadline = deadline
            yield replica.table

    @contextmanager
    def _lent(self, reader: str, deadline: Deadline = NO_DEADLINE) -> Iterator[Replica]:
        """Lends a replica; one whose reader failed, perhaps in the middle of a step, is not lent again."""
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
        """Brings that many tables up to date, if they are not lent, so that no reader has to wait for it.

        The first tables of a large cluster take a second or so.
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
        """Brings the tables up to date that are not lent, so that the next reader does not have to.

        One that is alone is left to its readers: they would make another while it is taken.
        """
        if len(self._replicas) > 1:
            self.refresh(len(self._replicas))

    def check(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """Shows every table beside one made anew, both as of one moment; keeps those that are right, and the new one.

        The oldest that is right makes way, and with it what it remembers of objects long gone; so the number stays.
        `breathe` is called now and then. Returns how many were shown.
        """
        with self._locked("check_tables"):
            known = tuple(self._replicas)
            fresh = self._new()
            self._follow(fresh)
        try:
            fresh.catch_up(between=breathe)
        except BaseException:
            self._give_back(fresh, "check_tables", failed=True)
            raise
        checked = [replica for replica in known if self._check(replica, fresh, is_right, breathe)]
        with self._locked("check_tables"):
            self._idle.insert(0, fresh)
            if len(self._replicas) > len(known):
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
        """Returns whether the replica was shown; one that is lent, again and again, is left for the next time."""
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
            with suppress(Exception):  # Then it lacks the change, and is seen not to be right.
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
        """Hands the replica, which is not idle, the latest changes; one for which this fails is not lent again."""
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
        self._replicas = [kept for kept in self._replicas if kept is not replica]
        replica.table.leave_readers()


def _spoils(error: BaseException) -> bool:
    """Returns whether a table may be half changed, or in use still.

    A deadline comes between two steps, and what is malformed in a pod that is asked about is met in reading.
    """
    return not isinstance(error, DeadlineExceeded | MalformedInput) or isinstance(error, RuleUnanswered)
