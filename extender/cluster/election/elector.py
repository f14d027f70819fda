"""Leader election at work: one thread that holds the lease, and one for each term that it wins."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from extender.cluster.election.election import Election, Read, Sleep, Write
from extender.cluster.election.lease import LeaseClient
from extender.errors import ClusterError, Conflict
from extender.runtime.clock import Clock
from extender.runtime.threads import LastingThread
from extender.runtime.unsettled import Settlement

logger = logging.getLogger(__name__)

_PROBE_SECONDS = 0.05
_JOIN_SECONDS = 5.0
_RELEASES = 3


class LeaderElector:
    """Takes part in the election from `start` to `stop`. `leading` and `waiting_for` cost next to nothing.

    It stands while it is `eligible`: a process whose cache is empty, or is no longer told of what happens, must neither
    take the lease from one that can answer nor keep it. It releases the lease only when no write that the lease guards
    is under way or of unknown outcome; otherwise it leaves the lease to expire. Once it has won the lease it does not
    lead before `settlement` has caught up: the cache then shows all that earlier leaders wrote, late writes included.
    A step that raises has failed.
    """

    def __init__(
        self,
        lease: LeaseClient,
        election: Election,
        eligible: Callable[[], bool],
        settlement: Settlement,
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._election = election
        self._clock = clock
        self._eligible = eligible
        self._settlement = settlement
        self._stopping = threading.Event()
        self._hurried = threading.Event()
        self._thread = LastingThread("leader-election", self._run)
        self.start, self.revive = self._thread.start, self._thread.revive
        self._term = 0
        self._holder = ""
        self._to_release = self._resigned = False

    def leading(self) -> bool:
        """Returns whether this process may act as the leader at this moment."""
        return self._election.leading(self._clock.monotonic())

    def waiting_for(self) -> str:
        """Returns the obstacle between this process and leading; "" while it leads."""
        now = self._clock.monotonic()
        if self._election.leading(now):
            return ""
        if self._election.term(now):
            return self._settlement.waiting_for() or "waiting until the cache shows what the leader before has written"
        holder = self._election.holder
        held = f" held by {holder}" if holder not in ("", self._election.identity) else ""
        return f"waiting for the lease {self._lease.key}{held}"

    def hurry(self, seconds: float) -> None:
        """Waits until this process leads, for so long at most, and looks at the lease all the time meanwhile."""
        ends_at = self._clock.monotonic() + seconds
        while not (self.leading() or self._resigned) and self._clock.monotonic() < ends_at:
            self._hurried.set()
            time.sleep(_PROBE_SECONDS)

    def resign(self) -> None:
        """Leads no more, from this moment on; what is under way may end."""
        self._resigned = True
        self._election.resign()

    def stop(self) -> None:
        """Leads no more, then releases the lease if no write is unsettled."""
        self.resign()
        self._stopping.set()
        self._hurried.set()
        ended = self._thread.stop(_JOIN_SECONDS)
        if self._settlement.writes.nothing_unsettled() and ended:
            self._release()
        else:
            logger.warning("lease is left to expire lease=%s reason=%r", self._lease.key, "a write is unsettled")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._eligible():
                    self._advance()
                else:
                    self._stand_back()
                self._tell()
            except Exception as error:  # whatever goes wrong, the thread must live to win the lease again
                expected = isinstance(error, ClusterError)
                logger.warning("lease %s: %s", self._lease.key, error, exc_info=None if expected else error)
                self._election.failed(self._clock.monotonic())

    def _advance(self) -> None:
        asked_at = self._clock.monotonic()
        match self._election.next(asked_at, self._clock.now()):
            case Sleep(seconds):
                if self._hurried.wait(seconds):
                    self._hurried.clear()
                    self._election.hurry()
            case Read():
                lease = self._lease.get()
                self._election.read(lease, self._clock.monotonic())
            case Write(lease):
                lease = self._lease.put(lease)
                self._election.written(lease, asked_at, self._clock.monotonic())

    def _stand_back(self) -> None:
        if self._election.term(self._clock.monotonic()):
            logger.warning("no longer the leader: the cache is not told of what happens, others may know more")
            self._election.abdicate()
            self._term, self._to_release = 0, True
        if self._to_release and self._settlement.writes.nothing_unsettled():
            self._to_release = False
            self._release()
        self._stopping.wait(_PROBE_SECONDS)

    def _tell(self) -> None:
        """Logs what has changed, and begins a new term."""
        term, holder = self._election.term(self._clock.monotonic()), self._election.holder
        if self._term and term != self._term and not self._stopping.is_set():
            logger.warning("no longer the leader: the lease %s was not renewed in time", self._lease.key)
        if term and term != self._term:
            logger.info("won the lease %s", self._lease.key)
            threading.Thread(target=self._take_over, args=(term,), name="take-over", daemon=True).start()
        elif holder != self._holder and not term:
            logger.info("lease %s is held by %s", self._lease.key, holder or "nobody")
        self._term, self._holder = term, holder

    def _take_over(self, term: int) -> None:
        won_at = self._clock.monotonic()
        while self._holds(term):
            try:
                if self._settlement.caught_up(won_at):
                    self._election.reconciled(term)
                    logger.info("leading: the cache has caught up with the API server")
                    return
            except Exception as error:  # tried again for as long as the term lasts
                logger.warning("the cache cannot be compared with the API server: %s", error)
            self._stopping.wait(_PROBE_SECONDS)

    def _holds(self, term: int) -> bool:
        return self._election.term(self._clock.monotonic()) == term

    def _release(self) -> None:
        for _ in range(_RELEASES):
            try:
                released = self._election.released(self._lease.get(), self._clock.now())
                if released is not None:
                    self._lease.put(released)
                    logger.info("released the lease %s", self._lease.key)
                return
            except Conflict:
                continue  # a renewal that was given up has arrived in between
            except ClusterError as error:
                logger.warning("lease %s is left to expire: %s", self._lease.key, error)
                return
