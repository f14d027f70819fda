"""The tables that the cache lends to its readers, and how they follow what changes.

Each reader has a table of its own while it reads. One that comes back is given what has changed meanwhile when it is
next lent, so the cache's lock is held for what changed, never for what a reader makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Protocol

from extender.cache.changes import Change, Present, apply
from extender.table import Table

_CHANGES_AT_ONCE = 50
_TRIES = 100


class Holder(Protocol):
    """Who holds the objects: the cache. Both are asked with its lock held."""

    def everything(self) -> Iterable[Change]:
        """Every object, as something that has changed."""

    def present(self, change: Change) -> Present:
        """What the object is at this moment."""


class Replica:
    """A table, and what has changed since it was last brought up to date."""

    def __init__(self, changes: dict[Change, None]) -> None:
        self.table = Table()
        self.changes = changes


class TablePool:
    """As many tables as there were readers at once; safe for any number of threads.

    Args:
        locked: takes the holder's lock, on behalf of the caller that it names.
    """

    def __init__(self, holder: Holder, locked: Callable[[str], AbstractContextManager[None]]) -> None:
        self._holder, self._locked = holder, locked
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []

    def __len__(self) -> int:
        return len(self._replicas)

    # ---- with the holder's lock held

    def note(self, change: Change) -> None:
        """The object has changed."""
        for replica in self._replicas:
            replica.changes[change] = None

    def ask(self, question: Callable[[Table], str]) -> str:
        """The answer of a table that is up to date, and stays so: the lock is the caller's."""
        replica = self._take()
        try:
            answer = question(replica.table)
        except BaseException:
            self._discard(replica)
            raise
        self._idle.append(replica)
        return answer

    # ---- without it

    def lend(self, reader: str) -> AbstractContextManager[Table]:
        """A table that is up to date as the block begins and stays as it is; the block's own, so no lock is held."""
        return _Loan(self, reader)

    def take(self, reader: str) -> Replica:
        """See `lend`; `give_back` is to follow."""
        with self._locked(reader):
            return self._take()

    def give_back(self, replica: Replica, reader: str, *, failed: bool) -> None:
        """The reader has done, or has failed."""
        if failed:
            with self._locked(reader):
                self._discard(replica)
        else:
            self._idle.append(replica)

    def refresh(self, tables: int) -> None:
        """Brings that many tables up to date, if they are not lent, so that no reader has to wait for it.

        The lock is held for a few changes at a time; the first tables of a large cluster take a second or so.
        """
        for _ in range(tables):
            with self._locked("refresh"):
                if not self._idle and len(self._replicas) >= tables:
                    return
                replica = self._idle.pop(0) if len(self._replicas) >= tables else self._new()
            self._catch_up(replica, lambda: None)
            self._idle.append(replica)

    def check(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """Shows every table beside one made anew, both as of one moment; keeps those that are right, and the new one.

        The oldest that is right makes way, and with it what it remembers of objects long gone; so the number stays.
        The work is done without the lock, `breathe` called now and then. Returns how many were shown.
        """
        with self._locked("check_tables"):
            known = tuple(self._replicas)
            fresh = self._new()
        self._catch_up(fresh, breathe)
        checked = [replica for replica in known if self._check(replica, fresh, is_right, breathe)]
        with self._locked("check_tables"):
            self._idle.insert(0, fresh)
            if len(self._replicas) > len(known):
                oldest = next((replica for replica in checked if replica in self._idle), fresh)
                self._idle.remove(oldest)
                self._discard(oldest)
        return len(checked)

    # ---- replicas, with the lock held

    def _take(self) -> Replica:
        replica = self._idle.pop() if self._idle else self._new()
        self._bring_up_to_date(replica)
        return replica

    def _new(self) -> Replica:
        replica = Replica(dict.fromkeys(self._holder.everything()))
        self._replicas.append(replica)
        return replica

    def _discard(self, replica: Replica) -> None:
        # Its reader failed, perhaps in the middle of a what-if: nobody shall stand on such a table again.
        self._replicas = [kept for kept in self._replicas if kept is not replica]

    def _bring_up_to_date(self, replica: Replica) -> None:
        try:
            for change in replica.changes:
                apply(replica.table, change, self._holder.present(change))
            replica.changes.clear()  # One by one they would leave gaps, and every look at the next would pass them all.
        except BaseException:
            self._discard(replica)
            raise

    # ---- with a replica that nobody else has, and without the lock

    def _catch_up(self, replica: Replica, breathe: Callable[[], object]) -> None:
        """Brings the replica up to date without keeping readers waiting: the lock is held to look, not to count."""
        try:
            while replica.changes:
                with self._locked("refresh"):
                    changes = iter(tuple(replica.changes))
                    replica.changes.clear()
                while batch := self._batch(changes):
                    for change, present in batch:
                        apply(replica.table, change, present)
                    breathe()
        except BaseException:
            with self._locked("refresh"):
                self._discard(replica)
            raise

    def _batch(self, changes: Iterator[Change]) -> list[tuple[Change, Present]]:
        with self._locked("refresh"):
            return [(change, self._holder.present(change)) for change in islice(changes, _CHANGES_AT_ONCE)]

    def _check(
        self,
        replica: Replica,
        fresh: Replica,
        is_right: Callable[[Table, Table], bool],
        breathe: Callable[[], object],
    ) -> bool:
        """Whether the replica was shown; one that is lent, again and again, is left for the next time."""
        for _ in range(_TRIES):
            with self._locked("check_tables"):
                if replica in self._idle:
                    self._idle.remove(replica)
                    with suppress(Exception):  # Then it lacks the change, and is seen not to be right.
                        self._bring_up_to_date(replica)
                    self._bring_up_to_date(fresh)
                    break
            breathe()
        else:
            return False
        if is_right(replica.table, fresh.table):
            self._idle.append(replica)
        else:
            with self._locked("check_tables"):
                self._discard(replica)
        return True


class _Loan(AbstractContextManager[Table]):
    __slots__ = ("_pool", "_reader", "_replica")

    def __init__(self, pool: TablePool, reader: str) -> None:
        self._pool, self._reader = pool, reader

    def __enter__(self) -> Table:
        self._replica = self._pool.take(self._reader)
        return self._replica.table

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._pool.give_back(self._replica, self._reader, failed=error is not None)
