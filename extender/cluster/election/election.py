"""Client-go's leader election as a machine without I/O, time or randomness of its own.

    READ --- it is free, mine or expired ---> WRITE --- written ---> RENEW <--- written ---.
     ^  |                                       |                    |  '------------------'
     |  '--- another holds it: pause, READ      |                    '--- failed: READ at once
     '------------------ failed: pause ---------'

`next` says what to do; what came of it goes back in by `read`, `written` or `failed`. A leader pauses for the retry
period; who met a failure, for that stretched by up to 1.2 times its length; a standby for a third of it, for while a
lease is free nobody answers, and to look at it is only a read.

Never two leaders at once: a leader leads until the renew deadline, counted from the START of its last write that
succeeded. Others see that write later than this, and wait for the whole lease duration from when they saw it, each by
its own monotonic clock: clocks may run at speeds that differ by lease duration / renew deadline, 1.5 by default, and
need not show the same time. Whoever writes names the version that it has read, so a write that arrives late, or whose
answer is lost, cannot undo another's. Only a Lease that people delete or edit is beyond this, until the next renewal.

Writes of the holder before may still be in flight when a candidate takes the lease. Before the candidate writes the
lease, it notes in `writes` what the lease says about them. A holder releases a lease only when none of its writes is
unsettled, so a released lease vouches for them. A lease that has expired, or that is not there, vouches for nothing.
This candidate's own identity vouches for nothing either: what an earlier worker left is in `writes` already.

Stricter than client-go, which counts the deadline from the first renewal that fails, and ends the process when it
passes: here leading ends by the clock alone, though every thread may hang, and the process stays as a warm standby.
A lease that is won back, by its former holder too, begins a new term, and each term begins with a reconciliation.
Who cannot do a leader's work gives the lease up, and does not stand again before it can.

Source: k8s.io/client-go/tools/leaderelection (tryAcquireOrRenew, renew, release), not the coordinated kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from random import Random

import msgspec

from extender.cluster.election.lease import RELEASED_SECONDS, Lease, LeaseSpec, micro_time
from extender.runtime.unsettled import UnsettledWrites

JITTER_FACTOR, STANDBY_SHARE = 1.2, 1 / 3


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of an election; each is longer than the next, the third with its jitter.

    Attributes:
        settle_seconds: how long a write of a leader before may be in flight.
    """

    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    settle_seconds: float = 0.0

    @property
    def call_seconds(self) -> float:
        """Returns the longest wait for an answer: half the deadline, so that no single hang loses the lease."""
        return min(max(1.0, self.renew_deadline_seconds / 2), self.renew_deadline_seconds)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the lease."""


@dataclass(frozen=True, slots=True)
class Write:
    """Create or update the lease."""

    lease: Lease


Step = Sleep | Read | Write


@dataclass(frozen=True, slots=True)
class Tenure:
    """One reign without a gap: its number, and when it ends unless it is renewed, in monotonic seconds."""

    term: int
    until: float


class _Phase(Enum):
    READ = auto()
    WRITE = auto()
    RENEW = auto()


class Election:
    """One candidate. `now` is in monotonic seconds everywhere, `wall` in seconds since the epoch.

    One thread drives it; `leading`, `term`, `holder` and `reconciled` may be called from any.

    Args:
        writes: is told whose writes may be in flight; until none is, the lease is not released.
    """

    def __init__(self, identity: str, timing: Timing, random: Random, writes: UnsettledWrites) -> None:
        self.identity = identity
        self._timing = timing
        self._random = random
        self._writes = writes
        self._phase = _Phase.READ
        self._resume_at = float("-inf")
        self._lease = Lease()
        self._observed_at = float("-inf")
        self._terms = 0
        self._tenure: Tenure | None = None
        self._reconciled_term = 0
        self._resigned = False

    # ---- for whoever acts on it

    @property
    def holder(self) -> str:
        """Returns the holder as it was last seen; "" where there is none."""
        return self._lease.holder

    def term(self, now: float) -> int:
        """Returns the number of the term in which this candidate holds the lease; 0: it does not."""
        tenure = self._tenure
        return tenure.term if tenure is not None and now < tenure.until and not self._resigned else 0

    def leading(self, now: float) -> bool:
        """Returns whether this candidate holds the lease, and has reconciled since it was won."""
        term = self.term(now)
        return term != 0 and term == self._reconciled_term

    def reconciled(self, term: int) -> None:
        """Notes that all is known that other leaders did before `term`; of no effect once that term is over."""
        self._reconciled_term = term

    # ---- for the thread that drives it

    def next(self, now: float, wall: float) -> Step:
        if now < self._resume_at:
            return Sleep(self._resume_at - now)
        if self._phase is _Phase.RENEW and self._expired(now):
            self._phase = _Phase.READ
        return Read() if self._phase is _Phase.READ else Write(self._claimed(wall))

    def read(self, lease: Lease, now: float) -> None:
        """Takes the lease as it was read at `now`."""
        if lease.spec != self._lease.spec:
            self._observed_at = now
        self._lease = lease
        if lease.holder != self.identity:
            self._tenure = None
        if lease.holder in ("", self.identity) or self._expired(now):
            self._ask_after_predecessors(lease, now)
            self._phase = _Phase.WRITE
        else:
            self._pause(now, STANDBY_SHARE)

    def _ask_after_predecessors(self, lease: Lease, now: float) -> None:
        """Tells `writes` for how long writes of the holder before may be in flight."""
        if lease.holder == self.identity:
            return  # nobody else has led since `writes` was told
        if lease.released:
            self._writes.vouch()
        elif lease.holder:  # it had to stop leading some time before its lease expired
            margin_seconds = self._timing.lease_duration_seconds - self._timing.renew_deadline_seconds
            in_flight_seconds = max(0.0, self._timing.settle_seconds - margin_seconds)
            self._writes.expect_predecessors(self._expires_at + in_flight_seconds)
        else:
            self._writes.expect_predecessors(now + self._timing.settle_seconds)

    def written(self, lease: Lease, asked_at: float, now: float) -> None:
        """Takes the lease as it was written: asked for at `asked_at`, answered at `now`."""
        self._lease, self._observed_at = lease, now
        if not self.term(now):
            self._terms += 1
        self._tenure = Tenure(self._terms, asked_at + self._timing.renew_deadline_seconds)
        self._pause(now)
        self._phase = _Phase.RENEW

    def failed(self, now: float) -> None:
        """Notes that the step came to nothing, as far as is known."""
        if self._phase is _Phase.RENEW:
            self._phase = _Phase.READ
        else:
            self._pause(now)

    def hurry(self) -> None:
        """Has the next step taken at once; that of a standby, for whose lease somebody waits."""
        if self._tenure is None:
            self._resume_at = float("-inf")

    def abdicate(self) -> None:
        """Leads no more until it wins the lease anew; to be called between two steps, while no write is under way."""
        self._tenure = None
        self._phase = _Phase.READ

    def resign(self) -> None:
        """Leads no more, from this moment on and for good, whatever becomes of a write under way."""
        self._resigned = True

    def released(self, lease: Lease, wall: float) -> Lease | None:
        """Returns the lease without its holder, so that others need not wait.

        None if it is another's, or a write is unsettled: others have to wait then.
        """
        if lease.holder != self.identity or not self._writes.nothing_unsettled():
            return None
        time = micro_time(wall)
        return _with(lease, LeaseSpec("", RELEASED_SECONDS, time, time, lease.spec.lease_transitions))

    @property
    def _expires_at(self) -> float:
        duration = self._lease.spec.lease_duration_seconds
        return self._observed_at + (self._timing.lease_duration_seconds if duration is None else duration)

    def _expired(self, now: float) -> bool:
        return now >= self._expires_at

    def _claimed(self, wall: float) -> Lease:
        spec, time = self._lease.spec, micro_time(wall)
        mine = spec.holder_identity == self.identity
        transitions = (spec.lease_transitions or 0) + (not mine and bool(self._lease.metadata))
        acquired = spec.acquire_time or time if mine else time
        duration = self._timing.lease_duration_seconds
        return _with(self._lease, LeaseSpec(self.identity, duration, acquired, time, transitions))

    def _pause(self, now: float, share: float = 1.0) -> None:
        jitter = 0.0 if self.term(now) else JITTER_FACTOR * self._random.random()
        self._resume_at = now + share * self._timing.retry_period_seconds * (1 + jitter)
        self._phase = _Phase.READ


def _with(lease: Lease, spec: LeaseSpec) -> Lease:
    return msgspec.structs.replace(lease, spec=spec)
