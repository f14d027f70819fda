"""Lends tables to the readers of the cache.

A reader has a table to itself while it reads. Each table has a cursor in the cache's journal. Before the table is lent,
the changes after the cursor are applied to it. The cache's lock is held only while the journal is read, and not while a
table is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import TypeVar

from extender.cache.changes import Changes, Reference, Update, apply
from extender.errors import DeadlineExceeded, MalformedInput, RuleUnanswered
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import Table
from extender.table.features import FeatureGates
from extender.table.journal import BEGINNING

_UPDATES_BETWEEN = 50
_TRIES = 100
T = TypeVar("T")


class Replica:
    """One of several equal tables, with its position in the journal.

    Attributes:
        cursor: the position in the journal up to which changes were read for the table.
        pending: the changes that were read but are not applied yet, because a reader's deadline passed.
        failed: the change that could not be applied. The table is then of no further use.
    """

    def __init__(self, features: FeatureGates) -> None:
        self.table = Table(features)
        self.cursor = BEGINNING
        self.pending: Iterator[Update] = iter(())
        self.failed: Update | None = None

    def follow(self, changes: Changes, features: FeatureGates) -> None:
        """Adds the changes since `cursor` to `pending`.

        Starts with a new table if the journal has dropped some, or if the table has other feature gates.
        """
        missed = changes.since(self.cursor)
        if missed is None or self.table.features is not features:
            self.table.drop_readers()
            self.table = Table(features)
            self.pending = iter(changes.all())
        elif len(missed):
            self.pending = chain(self.pending, missed)
        self.cursor = changes.now

    def catch_up(self, deadline: Deadline = NO_DEADLINE, between: Callable[[], object] = lambda: None) -> None:
        """Applies the pending changes to the table; calls `between` at regular intervals.

        Raises:
            DeadlineExceeded: the remaining changes stay pending, and the next call continues with them.
        """
        for number, update in enumerate(self.pending, start=1):
            try:
                apply((update,), self.table)
            except Exception:
                self.failed = update
                raise
            deadline.check("the table was up to date")
            if not number % _UPDATES_BETWEEN:
                between()


class TablePool:
    """The tables of a cache. If no table is idle, a reader gets a new one. Thread-safe.

    Args:
        changes: the journal of the cache.
        locked: returns a context that holds the cache's lock; the argument names the caller in metrics.
        leave_out: replaces or removes an object that no table can hold; returns False if that does not help.
    """

    def __init__(
        self,
        changes: Changes,
        locked: Callable[[str], AbstractContextManager[None]],
        features: FeatureGates,
        leave_out: Callable[[Update, Exception], bool] = lambda _update, _error: False,
    ) -> None:
        self._changes = changes
        self._locked = locked
        self.features = features
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []
        self._leave_out = leave_out
        self._suspects: set[Reference] = set()  # objects that one table could not hold

    def __len__(self) -> int:
        return len(self._replicas)

    def use(self, features: FeatureGates) -> None:
        """Gives the tables other feature gates. A table that is lent keeps its own until it is returned."""
        with self._locked("use"):
            self.features = features

    def ask(self, question: Callable[[Table], T]) -> tuple[T, int]:
        """Calls `question` with an up-to-date table; returns the result, and the table's cursor."""
        with (loan := _Loan(self, "ask")) as table:
            return question(table), loan.replica.cursor

    def ask_locked(self, question: Callable[[Table], T]) -> T:
        """Calls `question` with a table that cannot become outdated, because the caller holds the lock."""
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

    def lend(self, reader: str, deadline: Deadline = NO_DEADLINE) -> AbstractContextManager[Table]:
        """Lends a table that is up to date when the `with` block begins and does not change during the block.

        Rules that read the table must finish by the deadline.
        """
        return _Loan(self, reader, deadline)

    def up_to_date(self, reader: str, deadline: Deadline) -> Replica:
        """Returns an idle replica, or a new one, after applying all changes to it."""
        while True:
            with self._locked(reader):
                replica = self._take_freshest() if self._idle else self._new()
                self._follow(replica)
            try:
                self._catch_up(replica, reader, deadline)
            except Exception as error:
                if not self._can_retry(replica, error):
                    raise
            else:
                return replica

    def _can_retry(self, replica: Replica, error: Exception) -> bool:
        """Returns True if another table may succeed where this one failed.

        The cause may be in the table: the object gets a second chance. If it fails again, the cache leaves it out, so
        that one object does not keep every reader from its table.
        """
        failed = replica.failed
        if failed is None or isinstance(error, MemoryError):
            return False
        if (reference := (failed.kind, failed.key)) in self._suspects:
            return self._leave_out(failed, error)
        self._suspects.add(reference)
        return True

    def give_back(self, replica: Replica, reader: str, *, failed: bool) -> None:
        if failed:
            with self._locked(reader):
                self._discard(replica)
        else:
            replica.table.deadline = NO_DEADLINE
            self._idle.append(replica)

    def refresh(self, tables: int) -> None:
        """Creates tables until there are `tables` of them, and updates the idle tables, so that no reader has to wait.

        Creating the first tables of a large cluster takes about a second.
        """
        for _ in range(tables):
            with self._locked("refresh"):
                if not self._idle and len(self._replicas) >= tables:
                    return
                replica = self._idle.pop(0) if len(self._replicas) >= tables else self._new()
                self._follow(replica)
            try:
                self._catch_up(replica, "refresh")
            except Exception as error:
                if not self._can_retry(replica, error):
                    raise
            else:
                self._idle.append(replica)

    def keep_up(self) -> None:
        """Updates the idle tables, so that the next reader need not do it.

        Does nothing if there is only one table, because a reader would have to build another one in the meantime.
        """
        if len(self._replicas) > 1:
            self.refresh(len(self._replicas))

    def check(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """Compares every table with a new table; returns the number of compared tables.

        Calls `is_right(table, new_table)` when both are up to date, and discards the table if the result is False. Then
        the new table replaces an old one, to free the memory that the old table still uses for deleted objects. Calls
        `breathe` repeatedly, so that other threads can run.
        """
        with self._locked("check_tables"):
            replicas = tuple(self._replicas)
            fresh = self._new()
            self._follow(fresh)
        try:
            fresh.catch_up(between=breathe)
            checked = [replica for replica in replicas if self._check(replica, fresh, is_right, breathe)]
        except BaseException:
            self.give_back(fresh, "check_tables", failed=True)
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
        """Compares the replica with the new replica `fresh`; returns False if readers kept the replica in use."""
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
            with suppress(Exception):  # after an error, the comparison shows what the table lacks
                replica.catch_up()
            fresh.catch_up()
            failed = not is_right(replica.table, fresh.table)
        except BaseException:
            self.give_back(replica, "check_tables", failed=True)
            raise
        self.give_back(replica, "check_tables", failed=failed)
        return True

    def _catch_up(self, replica: Replica, reader: str, deadline: Deadline = NO_DEADLINE) -> None:
        try:
            replica.catch_up(deadline)
        except BaseException as error:
            self.give_back(replica, reader, failed=not isinstance(error, DeadlineExceeded))
            raise

    # ---- helpers, called with the lock held

    def _follow(self, replica: Replica) -> None:
        """Adds the latest changes to the replica's pending changes; discards the replica if this fails."""
        try:
            replica.follow(self._changes, self.features)
        except BaseException:
            self._discard(replica)
            raise

    def _take_freshest(self) -> Replica:
        freshest = max(self._idle, key=lambda replica: replica.cursor)
        self._idle.remove(freshest)
        return freshest

    def _new(self) -> Replica:
        replica = Replica(self.features)
        self._replicas.append(replica)
        return replica

    def _discard(self, replica: Replica) -> None:
        self._replicas = [other for other in self._replicas if other is not replica]
        replica.table.drop_readers()


class _Loan(AbstractContextManager[Table]):
    """A table in the hands of a reader; discarded if the reader's error may have left it half changed.

    It is a class because a decision is too short for a context manager of contextlib.
    """

    __slots__ = ("_deadline", "_pool", "_reader", "replica")

    def __init__(self, pool: TablePool, reader: str, deadline: Deadline = NO_DEADLINE) -> None:
        self._pool = pool
        self._reader = reader
        self._deadline = deadline

    def __enter__(self) -> Table:
        self.replica = self._pool.up_to_date(self._reader, self._deadline)
        self.replica.table.deadline = self._deadline
        return self.replica.table

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        failed = error is not None and _may_have_broken_table(error)
        self._pool.give_back(self.replica, self._reader, failed=failed)


def _may_have_broken_table(error: BaseException) -> bool:
    """Returns True if the error may have left the reader's table half changed, or still in use by a rule.

    DeadlineExceeded and MalformedInput are raised between two changes of a table, never during a change. After
    RuleUnanswered, a kind of DeadlineExceeded, the rule may still read the table.
    """
    return not isinstance(error, DeadlineExceeded | MalformedInput) or isinstance(error, RuleUnanswered)
