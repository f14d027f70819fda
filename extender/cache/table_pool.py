"""The tables that the cache lends to its readers.

Each reader has a table of its own while it reads, and each table a cursor in the journal of the cache. A table that is
lent first takes in what has changed since it was lent last; the cache's lock is held to read the journal, never while
a table takes anything in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice

from extender.cache.changes import Changes, Updates, apply
from extender.errors import DeadlineExceeded, MalformedInput, RuleUnanswered
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import Table
from extender.table.features import FeatureGates
from extender.table.journal import BEGINNING

_UPDATES_AT_ONCE = 50
_TRIES = 100


class Replica:
    """A table, and how far it has followed the journal."""

    def __init__(self, features: FeatureGates) -> None:
        self._features = features
        self.table = Table(features)
        self.cursor = BEGINNING

    def missed(self, changes: Changes) -> Updates:
        """Returns what the table has to take in to be up to date; a table that is too far behind is made anew."""
        missed = changes.since(self.cursor)
        if missed is None:
            self.table.leave_readers()
            self.table, missed = Table(self._features), changes.all()
        self.cursor = changes.now
        return missed


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

    def ask(self, question: Callable[[Table], str]) -> tuple[str, int]:
        """Returns the answer of a table, and the cursor of the moment that it was up to date."""
        with self._lent("ask") as replica:
            return question(replica.table), replica.cursor

    def ask_locked(self, question: Callable[[Table], str]) -> str:
        """Returns the answer of a table that is up to date, and stays so: the caller holds the lock."""
        replica = self._idle.pop() if self._idle else self._new()
        try:
            apply(replica.missed(self._changes), replica.table)
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
        with self._lent(reader) as replica:
            replica.table.deadline = deadline
            yield replica.table

    @contextmanager
    def _lent(self, reader: str) -> Iterator[Replica]:
        """Lends a replica; one whose reader failed, perhaps in the middle of a step, is not lent again."""
        with self._locked(reader):
            replica = self._take_freshest() if self._idle else self._new()
            missed = replica.missed(self._changes)
        self._catch_up(replica, missed, reader)
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
                missed = replica.missed(self._changes)
            self._catch_up(replica, missed, "refresh")
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
            missed = fresh.missed(self._changes)
        try:
            updates = iter(missed)
            while part := tuple(islice(updates, _UPDATES_AT_ONCE)):
                apply(part, fresh.table)
                breathe()
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
                    missed, fresh_missed = replica.missed(self._changes), fresh.missed(self._changes)
            if is_idle:
                break
            breathe()
        else:
            return False
        with suppress(Exception):  # Then it lacks the change, and is seen not to be right.
            apply(missed, replica.table)
        apply(fresh_missed, fresh.table)
        self._give_back(replica, "check_tables", failed=not is_right(replica.table, fresh.table))
        return True

    def _catch_up(self, replica: Replica, missed: Updates, reader: str) -> None:
        try:
            apply(missed, replica.table)
        except BaseException:
            self._give_back(replica, reader, failed=True)
            raise

    # ---- with the lock held

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
