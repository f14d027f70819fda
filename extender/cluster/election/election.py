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
Each process uses its own clocks. So the clocks need not show the same time, and their speeds may differ by the factor
lease duration / renew deadline, 1.5 by default. A leader counts by the clock that shows the most, because its machine
may have been suspended; a candidate by the monotonic one, which never shows too much. Each write names the version of
the lease that was read before. So a write that arrives late, or whose response is lost, cannot undo the write of
another process. If a person deletes or edits the Lease, there may be two leaders until the next renewal.

Writes of the last holder may still be in flight when a candidate takes the lease. So the candidate first records in
`writes` what the lease says about such writes:

- A lease that its holder has released with the mark `settled` proves that no write is in flight, if this process has
  seen that holder hold it. A Lease that it sees for the first time, or whose version or time went back, may come from a
  backup of etcd.
- A lease of this candidate adds nothing if its history is known. `writes` already contains the candidate's own writes,
  because the memory of `writes` outlives the worker process.
- Any other lease proves nothing. Its holder leads at most until its own renew deadline after its last renewal, and its
  writes arrive at most its own `settle_seconds` later. It has written both into the lease, because replicas may have
  different settings during a roll-out. A holder that has written none may lead for the whole lease duration. If the
  lease is free, another process may have renewed it just before.

A candidate that is called, but does not lead, may ask the holder for the lease (`asks`): it writes its identity into
the lease. The holder reads this when its renewal fails, stops leading, and releases the lease.

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
from math import inf
from random import Random

from extender.cluster.election.lease import RELEASED_SECONDS, Lease, LeaseSpec, Term, micro_time
from extender.runtime.clock import Moment
from extender.runtime.unsettled import UnsettledWrites

JITTER_FACTOR = 1.2
STANDBY_SHARE = 1 / 3  # the share of the retry period that a standby waits between two reads of the lease


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of an election.

    The lease duration must be longer than the renew deadline, and the renew deadline longer than 1.2 retry periods.

    Attributes:
        settle_seconds: how long a write may be in flight.
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


@dataclass(frozen=True, slots=True)
class Ask:
    """The next step is to update the lease, so that its holder reads that this candidate wants it."""

    lease: Lease


Step = Sleep | Read | Write | Ask


@dataclass(frozen=True, slots=True)
class Tenure:
    """One uninterrupted term as leader.

    Attributes:
        term: the number of the term.
        renewed_at: when the last successful write was sent.
    """

    term: int
    renewed_at: Moment


class _Phase(Enum):
    READ = auto()
    WRITE = auto()
    RENEW = auto()
    ASK = auto()


class Election:
    """One candidate of the election.

    Any thread may call `holder`, `term`, `leading`, `reconciled`, `commit` and `resign`. Only one thread calls the
    other methods.

    Args:
        writes: records which writes may be in flight. The lease is released only when all their outcomes are known.
        asks: True if a candidate that is in a hurry asks the holder for the lease.
    """

    def __init__(
        self, identity: str, timing: Timing, random: Random, writes: UnsettledWrites, *, asks: bool = False
    ) -> None:
        self.identity = identity
        self._timing = timing
        self._random = random
        self._writes = writes
        self._asks = asks
        self._hurried = False
        self._phase = _Phase.READ
        self._resume_at = float("-inf")
        self._lease = Lease()
        self._observed_at = float("-inf")
        self._version = writes.lease_version
        self._history_known = self._version > 0
        self._longest_deadline = timing.renew_deadline_seconds  # of all holders so far
        self._longest_settle_seconds = timing.settle_seconds  # of all holders so far
        self._terms = 0
        self._tenure: Tenure | None = None
        self._reconciled_term = 0
        self._ended_term = 0
        self._last_term = inf
        self._resigned = False

    # ---- methods that the process calls

    @property
    def holder(self) -> str:
        """The holder when the lease was last read; "" if the lease was free."""
        return self._lease.holder

    @property
    def wanted_by(self) -> str:
        """Returns the candidate that asks this one for the lease; "" if there is none, or this one does not hold it."""
        wanted_by = self._lease.wanted_by if self._lease.holder == self.identity else ""
        return "" if wanted_by == self.identity else wanted_by

    def term(self, now: Moment) -> int:
        """Returns the number of this candidate's present term; 0 if the candidate does not hold the lease."""
        tenure = self._tenure
        if tenure is None or self._resigned or not self._ended_term < tenure.term <= self._last_term:
            return 0
        if now.longest_since(tenure.renewed_at) >= self._timing.renew_deadline_seconds:
            self._ended_term = max(self._ended_term, tenure.term)  # the wall clock may be set back later
            return 0
        return tenure.term

    def leading(self, now: Moment) -> bool:
        """Returns True if this candidate holds the lease, and `reconciled` was called for its present term."""
        return self.leading_term(now) != 0

    def leading_term(self, now: Moment) -> int:
        """Returns the number of the term in which this candidate leads; 0 if it does not lead."""
        term = self.term(now)
        return term if term == self._reconciled_term else 0

    def reconciled(self, term: int) -> None:
        """Records that this process knows all writes of earlier leaders, so that it may lead in the term `term`."""
        self._reconciled_term = term

    def commit(self) -> None:
        """Makes the present term the last one, because this process cannot give up what it decides in it."""
        self._last_term = self._terms

    # ---- methods that the Elector's thread calls

    def next(self, now: Moment) -> Step:
        """Returns what the caller must do next: sleep, read the lease or write the lease."""
        if now.monotonic < self._resume_at:
            return Sleep(self._resume_at - now.monotonic)
        if self._phase is _Phase.RENEW and self._expired(now):
            self._phase = _Phase.READ
        if self._phase is _Phase.ASK:
            return Ask(self._lease.wanted(self.identity))
        return Read() if self._phase is _Phase.READ else Write(self._claimed(now))

    def read(self, lease: Lease, now: Moment) -> None:
        """Handles the result of a Read step: `lease` is what the API server returned at `now`."""
        self._see(lease, now)
        hurried = self._hurried
        self._hurried = False
        is_kept = lease.holder not in ("", self.identity) or (self._is_wanted_by_another and not hurried)
        if not is_kept or self._expired(now):
            self._expect_predecessors(lease, now)
            self._phase = _Phase.WRITE
        elif hurried and lease.wanted_by != self.identity:
            self._phase = _Phase.ASK
        else:
            self._pause(now, STANDBY_SHARE)

    @property
    def _is_wanted_by_another(self) -> bool:
        """True if this candidate gave the lease up for another one, or if it was released for another one.

        The other candidate takes it within a second, or once it expires if the outcome of a write is unknown.
        """
        is_left = self._lease.holder == self.identity and self._tenure is None
        return (is_left or not self._lease.holder) and self._lease.wanted_by not in ("", self.identity)

    def _see(self, lease: Lease, now: Moment) -> None:
        """Takes in what the API server returned, and finds out if this process knows how the lease came about.

        If its version or its time went back, it may come from a backup of etcd. Then its history is unknown until this
        process has seen a holder, and what followed.
        """
        before = self._lease
        self._lease = lease
        follows = 0 < self._version <= lease.version
        if not follows or (lease.spec.renew_time or "") < (before.spec.renew_time or ""):
            self._remember(lease, history_known=False)
        else:
            self._remember(lease, history_known=self._history_known or bool(before.holder))
        if lease.spec != before.spec:
            self._observed_at = now.monotonic
        self._longest_deadline = max(self._longest_deadline, self._deadline_of(lease))
        if lease.term is not None:
            self._longest_settle_seconds = max(self._longest_settle_seconds, lease.term.settle_seconds)
        if lease.holder != self.identity:
            self._tenure = None

    def _remember(self, lease: Lease, *, history_known: bool) -> None:
        self._version = lease.version
        self._history_known = history_known
        self._writes.lease_version = lease.version if history_known else 0

    def _expect_predecessors(self, lease: Lease, now: Moment) -> None:
        """Records in `writes` how long writes of the last holder may be in flight."""
        if lease.holder == self.identity and (self._history_known or self.term(now)):
            return  # no other process has led since this process last held the lease
        if self._history_known and not lease.holder and lease.term is not None and lease.term.settled:
            self._writes.vouch()
            return
        renewed_at = self._observed_at if lease.holder not in ("", self.identity) else now.monotonic
        ends_at = renewed_at + self._longest_deadline
        self._writes.expect_predecessors(ends_at + self._longest_settle_seconds)

    def written(self, lease: Lease, asked_at: Moment, now: Moment) -> None:
        """Handles the result of a Write step: `lease` is what the API server stored.

        The request was sent at `asked_at`, and the response arrived at `now`.
        """
        self._lease = lease
        self._observed_at = now.monotonic
        self._remember(lease, history_known=True)
        if not self.term(now):
            self._terms += 1
        self._tenure = Tenure(self._terms, asked_at)
        self._pause(now)
        self._phase = _Phase.RENEW

    def asked(self, lease: Lease, now: Moment) -> None:
        """Handles the result of an Ask step."""
        self._lease = lease
        self._pause(now, STANDBY_SHARE)

    def failed(self, now: Moment) -> None:
        """Handles the failure of a step. A failed write may still have changed the lease."""
        if self._phase is _Phase.RENEW:
            self._phase = _Phase.READ
        else:
            self._pause(now)

    def gave_up(self, lease: Lease, now: Moment) -> None:
        """Handles the release of the lease; `lease` is what the API server stored."""
        self._lease = lease
        self._observed_at = now.monotonic
        self._remember(lease, history_known=True)
        self._pause(now)

    def hurry(self) -> None:
        """Ends the pause of a standby, because a caller is waiting until this process leads."""
        if self._tenure is None:
            self._hurried = self._asks
            self._resume_at = float("-inf")

    def abdicate(self) -> None:
        """Stops leading until this candidate wins the lease again. Call it between two steps, not during a write."""
        self._tenure = None
        self._phase = _Phase.READ

    def resign(self) -> None:
        """Stops leading for good, even if a write of the lease succeeds later."""
        self._resigned = True

    def released(self, lease: Lease, now: Moment) -> Lease | None:
        """Returns the lease without a holder, so that another candidate can take it at once.

        Returns None if this process does not hold the lease, or knows it only from a backup. Also returns None if the
        outcome of one of our writes is unknown; other candidates must then wait until the lease expires.
        """
        self._see(lease, now)
        if lease.holder != self.identity or not self._history_known or not self._writes.nothing_unsettled():
            return None
        time = micro_time(now.wall)
        spec = LeaseSpec("", RELEASED_SECONDS, time, time, lease.spec.lease_transitions)
        return lease.released(spec, self._term_of(spec, settled=True))

    def _deadline_of(self, lease: Lease) -> float:
        """Returns how long the holder leads after a renewal: at most for the lease duration, if it does not say."""
        if lease.term is not None:
            return lease.term.renew_deadline_seconds
        return self._duration_of(lease) if lease.holder else 0.0

    def _duration_of(self, lease: Lease) -> float:
        duration = lease.spec.lease_duration_seconds
        return self._timing.lease_duration_seconds if duration is None else duration

    def _expired(self, now: Moment) -> bool:
        lease = self._lease
        seconds = max(self._duration_of(lease), self._deadline_of(lease) if lease.holder else 0.0)
        return now.monotonic >= self._observed_at + seconds

    def _claimed(self, now: Moment) -> Lease:
        spec, time = self._lease.spec, micro_time(now.wall)
        mine = spec.holder_identity == self.identity
        transitions = (spec.lease_transitions or 0) + (not mine and self._lease.version > 0)
        acquired = spec.acquire_time or time if mine else time
        claimed = LeaseSpec(self.identity, self._timing.lease_duration_seconds, acquired, time, transitions)
        return self._lease.held(claimed, self._term_of(claimed))

    def _term_of(self, spec: LeaseSpec, *, settled: bool = False) -> Term:
        is_settling = self._writes.predecessors_until is not None
        return Term(
            self.identity,
            spec.renew_time or "",
            spec.lease_transitions or 0,
            self._timing.renew_deadline_seconds,
            # If this process ends while it settles writes of earlier holders, its successor must wait for them, too.
            self._longest_settle_seconds if is_settling else self._timing.settle_seconds,
            settled,
        )

    def _pause(self, now: Moment, share: float = 1.0) -> None:
        jitter = 0.0 if self.term(now) else JITTER_FACTOR * self._random.random()
        self._resume_at = now.monotonic + share * self._timing.retry_period_seconds * (1 + jitter)
        self._phase = _Phase.READ
