"""Client-go's leader election as a state machine without I/O; the caller passes in the time and random numbers.

    READ --- it is free, mine or expired ---> WRITE --- written ---> RENEW <--- written ---.
     ^  |                                       |                    |  '------------------'
     |  '--- another holds it: pause, READ      |                    '--- failed: READ at once
     '------------------ failed: pause ---------'

`next` returns the next step, and the caller reports the result with `read`, `written` or `failed`. A leader pauses for
the retry period. A process that does not lead multiplies its pauses by a random factor between 1 and 2.2. A standby
only reads the lease, and pauses for a third of the retry period, because no process answers while the lease is free.

There are never two leaders at once. A leader leads until the renew deadline, counted from the start of its last
successful write. The other processes see this write later, and only then start to wait for the whole lease duration.
Each process uses its own monotonic clock. So the clocks need not show the same time, and their speeds may differ by the
factor lease duration / renew deadline, 1.5 by default. Each write names the version of the lease that was read before.
So a write that arrives late, or whose response is lost, cannot undo the write of another process. If a person deletes
or edits the Lease, there may be two leaders until the next renewal.

Writes of the last holder may still be in flight when a candidate takes the lease. So the candidate first records in
`writes` what the lease says about such writes:

- A released lease proves that no write is in flight, because a holder that does not know the outcome of a write keeps
  the lease.
- An expired lease and a missing lease prove nothing.
- A lease of this candidate adds nothing. `writes` already contains the candidate's own writes, because the
  memory of `writes` outlives the worker process.

This is stricter than client-go. There the deadline counts from the first renewal that fails, and the process ends when
the deadline passes. Here the clock alone ends the leadership, even if every thread hangs, and the process stays as a
warm standby. A new term begins whenever a process wins the lease, even if the same process held it before. At the start
of a term, the process finds out what earlier leaders have written. A process that cannot do a leader's work releases
the lease, and is not a candidate until it can do this work.

Source: k8s.io/client-go/tools/leaderelection (tryAcquireOrRenew, renew, release), without coordinated election.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from random import Random

import msgspec

from extender.cluster.election.lease import RELEASED_SECONDS, Lease, LeaseSpec, micro_time
from extender.runtime.unsettled import UnsettledWrites

JITTER_FACTOR = 1.2
STANDBY_SHARE = 1 / 3  # the share of the retry period that a standby waits between two reads of the lease


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of an election.

    The lease duration must be longer than the renew deadline, and the renew deadline longer than 1.2 retry periods.

    Attributes:
        settle_seconds: how long a write of an earlier leader may be in flight.
    """

    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    settle_seconds: float = 0.0

    @property
    def call_seconds(self) -> float:
        """The time limit of a call: half the renew deadline, so that one call that hangs does not lose the lease."""
        return min(max(1.0, self.renew_deadline_seconds / 2), self.renew_deadline_seconds)


@dataclass(frozen=True, slots=True)
class Sleep:
    """The next step is to wait for this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """The next step is to read the lease from the API server."""


@dataclass(frozen=True, slots=True)
class Write:
    """The next step is to create or update the lease at the API server."""

    lease: Lease


Step = Sleep | Read | Write


@dataclass(frozen=True, slots=True)
class Tenure:
    """One uninterrupted term as leader.

    Attributes:
        term: the number of the term.
        until: when the term ends if the lease is not renewed, in monotonic seconds.
    """

    term: int
    until: float


class _Phase(Enum):
    READ = auto()
    WRITE = auto()
    RENEW = auto()


class Election:
    """One candidate of the election. `now` is in monotonic seconds, `wall` in seconds since the epoch.

    Any thread may call `holder`, `term`, `leading`, `reconciled` and `resign`. Only one thread calls the other methods.

    Args:
        writes: records which writes may be in flight. The lease is released only when all their outcomes are known.
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

    # ---- methods that the process calls

    @property
    def holder(self) -> str:
        """The holder when the lease was last read; "" if the lease was free."""
        return self._lease.holder

    def term(self, now: float) -> int:
        """Returns the number of this candidate's present term; 0 if the candidate does not hold the lease."""
        tenure = self._tenure
        return tenure.term if tenure is not None and now < tenure.until and not self._resigned else 0

    def leading(self, now: float) -> bool:
        """Returns True if this candidate holds the lease, and `reconciled` was called for its present term."""
        term = self.term(now)
        return term != 0 and term == self._reconciled_term

    def reconciled(self, term: int) -> None:
        """Records that this process knows all writes of earlier leaders, so that it may lead in the term `term`."""
        self._reconciled_term = term

    # ---- methods that the Elector's thread calls

    def next(self, now: float, wall: float) -> Step:
        """Returns what the caller must do next: sleep, read the lease or write the lease."""
        if now < self._resume_at:
            return Sleep(self._resume_at - now)
        if self._phase is _Phase.RENEW and self._expired(now):
            self._phase = _Phase.READ
        return Read() if self._phase is _Phase.READ else Write(self._claimed(wall))

    def read(self, lease: Lease, now: float) -> None:
        """Handles the result of a Read step: `lease` is what the API server returned at `now`."""
        if lease.spec != self._lease.spec:
            self._observed_at = now
        self._lease = lease
        if lease.holder != self.identity:
            self._tenure = None
        if lease.holder in ("", self.identity) or self._expired(now):
            self._expect_predecessors(lease, now)
            self._phase = _Phase.WRITE
        else:
            self._pause(now, STANDBY_SHARE)

    def _expect_predecessors(self, lease: Lease, now: float) -> None:
        """Records in `writes` how long writes of the last holder may be in flight."""
        if lease.holder == self.identity:
            return  # no other process has led since this process last held the lease
        if lease.released:
            self._writes.vouch()
        elif lease.holder:  # the last holder had to stop leading some time before its lease expired
            margin_seconds = self._timing.lease_duration_seconds - self._timing.renew_deadline_seconds
            in_flight_seconds = max(0.0, self._timing.settle_seconds - margin_seconds)
            self._writes.expect_predecessors(self._expires_at + in_flight_seconds)
        else:
            self._writes.expect_predecessors(now + self._timing.settle_seconds)

    def written(self, lease: Lease, asked_at: float, now: float) -> None:
        """Handles the result of a Write step: `lease` is what the API server stored.

        The request was sent at `asked_at`, and the response arrived at `now`.
        """
        self._lease = lease
        self._observed_at = now
        if not self.term(now):
            self._terms += 1
        self._tenure = Tenure(self._terms, asked_at + self._timing.renew_deadline_seconds)
        self._pause(now)
        self._phase = _Phase.RENEW

    def failed(self, now: float) -> None:
        """Handles the failure of a step. A failed write may still have changed the lease."""
        if self._phase is _Phase.RENEW:
            self._phase = _Phase.READ
        else:
            self._pause(now)

    def hurry(self) -> None:
        """Ends the pause of a standby, because a caller is waiting until this process leads."""
        if self._tenure is None:
            self._resume_at = float("-inf")

    def abdicate(self) -> None:
        """Stops leading until this candidate wins the lease again. Call it between two steps, not during a write."""
        self._tenure = None
        self._phase = _Phase.READ

    def resign(self) -> None:
        """Stops leading for good, even if a write of the lease succeeds later."""
        self._resigned = True

    def released(self, lease: Lease, wall: float) -> Lease | None:
        """Returns the lease without a holder, so that another candidate can take it at once.

        Returns None if another process holds the lease. Also returns None if the outcome of one of our writes is
        unknown; other candidates must then wait until the lease expires.
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
