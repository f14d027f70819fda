"""Candidates on one API, with clocks that drift, calls that are lost, late or refused: never two that lead at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.election.election import Ask, Election, Read, Sleep, Timing, Write
from extender.cluster.election.lease import Lease
from extender.runtime.clock import ManualClock, Moment
from extender.runtime.unsettled import UnsettledWrites

TIMING = Timing(lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2)
# The fastest clock gains on the slowest by less than 15 / 10.
RATES = (0.85, 1.0, 1.2)
CANDIDATES = st.integers(0, len(RATES) - 1)


def election_of(identity: str, seed: int) -> Election:
    """Returns a candidate that has written nothing, and whose predecessors have not either."""
    writes = UnsettledWrites(0.0, ManualClock())
    writes.vouch()
    return Election(identity, TIMING, Random(seed), writes)


class FakeLeases:
    """One lease with a version; a write that names another version than the latest is turned down."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.version = 0

    def put(self, lease: Lease) -> Lease | None:
        if lease.metadata.get("resourceVersion", "0") != str(self.version):
            return None
        self.version += 1
        self.lease = msgspec.structs.replace(lease, metadata={**lease.metadata, "resourceVersion": str(self.version)})
        return self.lease


@dataclass
class Candidate:
    """An election, its own clock, and the call that it waits for."""

    election: Election
    rate: float
    offset: float
    asked: Read | Write | None = None
    asked_at: Moment = Moment(0.0, 0.0, 0.0)  # noqa: RUF009  frozen
    answer: Lease | None = None
    late: list[Write] = field(default_factory=list)

    def clock(self, true_seconds: float) -> Moment:
        seconds = self.offset + self.rate * true_seconds
        return Moment(seconds, seconds, seconds)


class Candidates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.true_seconds = 0.0
        self.api = FakeLeases()
        self.retired: list[Candidate] = []
        self.candidates = [
            Candidate(election_of(f"candidate-{i}", i), rate, 1000.0 * i) for i, rate in enumerate(RATES)
        ]

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 2.0, 3.0, 5.0, 9.9, 12.5, 15.1]))
    def time_passes(self, seconds: float) -> None:
        self.true_seconds += seconds

    @rule(i=CANDIDATES)
    def asks(self, i: int) -> None:
        candidate = self.candidates[i]
        if candidate.asked is not None:
            return
        now = candidate.clock(self.true_seconds)
        step = candidate.election.next(now)
        if isinstance(step, Sleep):
            self.true_seconds += step.seconds / candidate.rate
        else:
            assert not isinstance(step, Ask)  # no candidate follows the calls of a kube-scheduler
            candidate.asked, candidate.asked_at, candidate.answer = step, now, None

    @rule(i=CANDIDATES)
    def the_call_arrives(self, i: int) -> None:
        candidate = self.candidates[i]
        if candidate.answer is not None or candidate.asked is None:
            return
        if isinstance(candidate.asked, Read):
            candidate.answer = self.api.lease
            return
        candidate.answer = self.api.put(candidate.asked.lease)
        if candidate.answer is None:
            self._fails(candidate)

    @rule(i=CANDIDATES)
    def the_answer_arrives(self, i: int) -> None:
        candidate, now = self.candidates[i], self.candidates[i].clock(self.true_seconds)
        if candidate.answer is None:
            return
        if isinstance(candidate.asked, Read):
            candidate.election.read(candidate.answer, now)
        else:
            candidate.election.written(candidate.answer, candidate.asked_at, now)
        candidate.asked = candidate.answer = None

    @rule(i=CANDIDATES, other=CANDIDATES, calls=st.integers(1, 30))
    def the_answer_is_slow(self, i: int, other: int, calls: int) -> None:
        self.asks(i)
        self.the_call_arrives(i)
        if other != i:
            self.one_is_alone(other, calls)
        self.the_answer_arrives(i)

    @rule(i=CANDIDATES)
    def the_call_is_given_up(self, i: int) -> None:
        """Its answer is lost; or it is still on its way, and may arrive at any time."""
        candidate = self.candidates[i]
        if isinstance(candidate.asked, Write) and candidate.answer is None:
            candidate.late.append(candidate.asked)
        if candidate.asked is not None:
            self._fails(candidate)

    @precondition(lambda self: any(candidate.late for candidate in self.candidates))
    @rule(data=st.data())
    def a_call_arrives_late(self, data: st.DataObject) -> None:
        candidate = data.draw(st.sampled_from([found for found in self.candidates if found.late]))
        self.api.put(candidate.late.pop(0).lease)

    @rule(i=CANDIDATES, calls=st.integers(1, 30))
    def one_is_alone(self, i: int, calls: int) -> None:
        """All goes well for one while the others are stopped, so that leaders and their successors are common."""
        for _ in range(calls):
            self.asks(i)
            self.the_call_arrives(i)
            self.the_answer_arrives(i)
            self.at_most_one_holds_the_lease()

    @rule(i=CANDIDATES)
    def reconciles(self, i: int) -> None:
        candidate = self.candidates[i]
        candidate.election.reconciled(candidate.election.term(candidate.clock(self.true_seconds)))

    @rule(i=CANDIDATES)
    def restarts_after_a_release(self, i: int) -> None:
        candidate = self.candidates[i]
        candidate.election.resign()
        released = candidate.election.released(self.api.lease, candidate.clock(self.true_seconds))
        if released is not None:
            self.api.put(released)
        self.retired.append(candidate)
        identity = f"{candidate.election.identity}'"
        self.candidates[i] = Candidate(election_of(identity, i), candidate.rate, candidate.offset)

    @rule(i=CANDIDATES)
    def abdicates_and_releases(self, i: int) -> None:
        candidate = self.candidates[i]
        if candidate.asked is not None:
            return
        candidate.election.abdicate()
        self.at_most_one_holds_the_lease()
        now = candidate.clock(self.true_seconds)
        released = candidate.election.released(self.api.lease, now)
        if released is not None and (stored := self.api.put(released)) is not None:
            candidate.election.gave_up(stored, now)

    @invariant()
    def at_most_one_holds_the_lease(self) -> None:
        everybody = self.candidates + self.retired
        holding = [found for found in everybody if found.election.term(found.clock(self.true_seconds))]
        assert len(holding) <= 1

    @invariant()
    def who_leads_holds_and_has_reconciled(self) -> None:
        for candidate in self.candidates:
            now = candidate.clock(self.true_seconds)
            assert not candidate.election.leading(now) or candidate.election.term(now)

    def _fails(self, candidate: Candidate) -> None:
        candidate.election.failed(candidate.clock(self.true_seconds))
        candidate.asked = candidate.answer = None


TestCandidates = Candidates.TestCase
TestCandidates.settings = settings(stateful_step_count=50)
