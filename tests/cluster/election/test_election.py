"""One candidate, step by step; tests/cluster/election/test_election_machine.py has several at once."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import replace

from extender.cluster.election.election import (
    JITTER_FACTOR,
    STANDBY_SHARE,
    Ask,
    Election,
    Read,
    Sleep,
    Step,
    Timing,
    Write,
)
from extender.cluster.election.lease import Lease, LeaseSpec, Term, micro_time
from extender.errors import OutcomeUnknown
from extender.runtime.clock import ManualClock, Moment
from extender.runtime.ports import Binding
from extender.runtime.unsettled import Settlement, UnsettledWrites

TIMING = Timing(lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2)
WALL = 1_700_000_000.0
NAMED = {"name": "extender", "resourceVersion": "1"}
OTHERS = LeaseSpec("other", 15, "2026-11-21T10:00:00.000000Z", "2026-11-21T10:00:02.000000Z", 4)


def stored(spec: LeaseSpec, version: int = 1) -> Lease:
    return Lease(spec, {"name": "extender", "resourceVersion": str(version)})


def candidate(jitter: float = 0.0, timing: Timing = TIMING, writes: UnsettledWrites | None = None) -> Election:
    class Fixed(Random):
        def random(self) -> float:
            return jitter

    return Election("me", timing, Fixed(), writes or settled())


def settled(clock: ManualClock | None = None) -> UnsettledWrites:
    """Returns the notes of a process that has written nothing, and whose predecessors have not either."""
    writes = UnsettledWrites(10.0, clock or ManualClock(0.0))
    writes.vouch()
    return writes


def at(seconds: float) -> Moment:
    return Moment(seconds, seconds, WALL + seconds)


def step(election: Election, now: float) -> Step:
    return election.next(at(now))


def written_spec(asked: Step) -> LeaseSpec:
    assert isinstance(asked, Write)
    return asked.lease.spec


def leader(asked_at: float = 0.0, now: float = 0.1, jitter: float = 0.0) -> Election:
    """One that has won the lease in a write asked for at `asked_at`, and leads."""
    election = candidate(jitter)
    election.read(Lease(), at(asked_at))
    asked = step(election, asked_at)
    assert isinstance(asked, Write)
    election.written(stored(asked.lease.spec), at(asked_at), at(now))
    election.reconciled(election.term(at(now)))
    return election


def test_it_reads_before_it_writes() -> None:
    assert step(candidate(), 0) == Read()


@pytest.mark.parametrize(
    ("found", "transitions", "metadata"),
    [
        pytest.param(Lease(), 0, {}, id="there is no lease yet"),
        pytest.param(stored(LeaseSpec()), 1, {"name": "extender", "resourceVersion": "1"}, id="an empty one"),
        pytest.param(
            stored(LeaseSpec("", 1, lease_transitions=4)),
            5,
            {"name": "extender", "resourceVersion": "1"},
            id="released",
        ),
    ],
)
def test_a_free_lease_is_taken_at_once(found: Lease, transitions: int, metadata: dict[str, str]) -> None:
    election = candidate()
    election.read(found, at(0))
    asked = step(election, 0)
    assert isinstance(asked, Write)
    assert asked.lease.spec == LeaseSpec("me", 15, micro_time(WALL), micro_time(WALL), transitions)
    assert asked.lease.term == Term("me", micro_time(WALL), transitions, 10.0)
    assert {**asked.lease.metadata, "annotations": {}} == {**metadata, "annotations": {}}


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 2.0), (1.0, 2.0 * (1 + JITTER_FACTOR))])
def test_after_a_failure_there_is_a_pause(jitter: float, seconds: float) -> None:
    election = candidate(jitter)
    election.read(stored(OTHERS), at(0))
    election.failed(at(5))
    assert step(election, 5) == Sleep(pytest.approx(seconds))  # type: ignore[arg-type]  # approx is equal to a float


@pytest.mark.parametrize(
    ("jitter", "seconds"), [(0.0, 2.0 * STANDBY_SHARE), (1.0, 2.0 * STANDBY_SHARE * (1 + JITTER_FACTOR))]
)
def test_a_lease_of_another_is_looked_at_again_after_a_pause(jitter: float, seconds: float) -> None:
    election = candidate(jitter)
    election.read(stored(OTHERS), at(5))
    assert step(election, 5) == Sleep(pytest.approx(seconds))  # type: ignore[arg-type]  # approx is equal to a float
    assert step(election, 5 + seconds) == Read()


@pytest.mark.parametrize(
    ("spec", "after", "taken"),
    [
        pytest.param(OTHERS, 14.9, False, id="not yet"),
        pytest.param(OTHERS, 15.0, True, id="expired since it was first seen"),
        pytest.param(replace(OTHERS, lease_duration_seconds=40), 39.9, False, id="its own duration"),
        pytest.param(replace(OTHERS, lease_duration_seconds=None), 14.9, False, id="without a duration"),
        pytest.param(replace(OTHERS, lease_duration_seconds=None), 15, True, id="nor a time without"),
    ],
)
def test_when_another_s_lease_is_taken(spec: LeaseSpec, after: float, taken: bool) -> None:
    """Its times are of no matter: they are by another's clock."""
    election = candidate()
    election.read(stored(spec), at(100))
    election.read(stored(spec, version=2), at(100 + after))  # a label was set
    asked = step(election, 100 + after)
    assert isinstance(asked, Write) == taken
    if taken:
        assert written_spec(asked).lease_transitions == 5


def test_hurry_ends_the_pause_of_a_standby_and_not_that_of_a_leader() -> None:
    standby = candidate()
    standby.read(stored(OTHERS), at(0.0))
    assert isinstance(step(standby, 0.1), Sleep)
    standby.hurry()
    assert step(standby, 0.1) == Read()
    leading = leader()
    leading.hurry()
    assert isinstance(step(leading, 0.2), Sleep)


def test_a_renewal_puts_the_expiry_off() -> None:
    election = candidate()
    election.read(stored(OTHERS), at(0))
    election.read(stored(replace(OTHERS, renew_time="later")), at(14))
    election.read(stored(replace(OTHERS, renew_time="later")), at(28))
    assert isinstance(step(election, 28), Sleep)


def test_a_leader_renews_without_reading_and_keeps_its_term() -> None:
    election = leader()
    assert isinstance(step(election, 2), Sleep)
    renewal = written_spec(step(election, 2.1))
    assert (renewal.acquire_time, renewal.renew_time) == (micro_time(WALL), micro_time(WALL + 2.1))
    election.written(stored(renewal, 2), at(2.1), at(2.2))
    assert (election.term(at(12.0)), election.leading(at(12.0)), election.leading(at(12.1))) == (1, True, False)


def test_a_leader_renews_without_jitter() -> None:
    assert step(leader(now=0.1, jitter=1.0), 0.1) == Sleep(2.0)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(Moment(9.9, 9.9, WALL + 9.9), id="no clock has stopped"),
        pytest.param(Moment(1, 61, WALL + 61), id="suspended"),
        pytest.param(Moment(1, 1, WALL + 61), id="a virtual machine was paused"),
        pytest.param(Moment(1, 1, WALL - 3600), id="the wall clock was set back"),
    ],
)
def test_a_term_is_counted_by_the_clock_that_shows_the_most(later: Moment) -> None:
    election = leader()
    has_ended = max(later.boot, later.wall - WALL) > 10
    assert election.leading(later) is not has_ended
    renewal = written_spec(election.next(Moment(3, 63, WALL + 63)))
    election.written(stored(renewal, 2), Moment(3, 63, WALL + 63), Moment(3.1, 63.1, WALL + 63.1))
    assert election.term(Moment(4, 64, WALL + 64)) == 2  # in which it has to find out what another has written


def test_a_term_that_has_ended_does_not_go_on_when_the_wall_clock_is_set_back() -> None:
    """Whoever has seen the end waits for the next term, which would never begin."""
    election = leader()
    assert not election.leading(Moment(1, 1, WALL + 61))
    assert not election.leading(at(2))
    renewal = written_spec(step(election, 2.1))
    election.written(stored(renewal, 2), at(2.1), at(2.2))
    assert (election.term(at(2.3)), election.leading(at(2.3))) == (2, False)


def test_who_has_committed_to_its_term_does_not_lead_in_another() -> None:
    election = leader()
    election.commit()
    assert election.leading(at(9))
    election.written(stored(LeaseSpec("me", 15, "a", "b", 0), 2), at(12), at(12.1))
    election.reconciled(2)
    assert not election.leading(at(13))


def test_leading_ends_by_the_clock_alone_counted_from_the_start_of_the_write() -> None:
    election = leader(asked_at=0, now=8)
    assert election.leading(at(9.99))
    assert not election.leading(at(10))


def test_a_write_that_took_longer_than_the_deadline_wins_nothing() -> None:
    assert not leader(asked_at=0, now=10.5).leading(at(10.5))


def test_a_renewal_that_fails_is_followed_by_a_look_at_the_lease_at_once() -> None:
    election = leader()
    step(election, 2.1)
    election.failed(at(2.2))
    assert step(election, 2.2) == Read()
    assert election.leading(at(2.2))
    election.failed(at(2.3))
    assert step(election, 2.3) == Sleep(2.0)


def test_a_renewal_whose_answer_was_lost_is_made_good() -> None:
    election = leader()
    lost = written_spec(step(election, 2.1))
    election.failed(at(7.1))
    election.read(stored(lost, 2), at(7.2))
    again = step(election, 7.2)
    assert isinstance(again, Write)
    assert (again.lease.metadata["resourceVersion"], again.lease.spec.lease_transitions) == ("2", 0)
    election.written(stored(again.lease.spec, 3), at(7.2), at(7.3))
    assert (election.term(at(17)), election.leading(at(17))) == (1, True)


def test_the_lease_won_back_is_a_new_term_that_has_to_reconcile() -> None:
    election = leader()
    election.read(stored(LeaseSpec("me", 15, "a", "b", 0)), at(12))
    renewal = written_spec(step(election, 12))
    election.written(stored(renewal, 2), at(12), at(12.1))
    assert (election.term(at(13)), election.leading(at(13))) == (2, False)
    election.reconciled(1)  # a reconciliation of the term before has come to its end
    assert not election.leading(at(13))
    election.reconciled(2)
    assert election.leading(at(13))


@pytest.mark.parametrize(
    "found", [pytest.param(stored(OTHERS), id="taken by hand"), pytest.param(Lease(), id="deleted by hand")]
)
def test_a_leader_that_sees_the_lease_gone_no_longer_leads(found: Lease) -> None:
    election = leader()
    step(election, 2.1)
    election.failed(at(2.2))
    election.read(found, at(2.3))
    assert not election.leading(at(2.3))


def test_a_leader_that_has_resigned_never_leads_again() -> None:
    election = leader()
    renewal = written_spec(step(election, 2.1))
    election.resign()
    assert not election.leading(at(2.1))
    election.written(stored(renewal, 2), at(2.1), at(2.2))
    assert not election.leading(at(2.2))


def test_a_leader_that_has_abdicated_may_win_the_lease_again() -> None:
    election = leader()
    election.abdicate()
    assert (election.leading(at(2)), step(election, 2.1)) == (False, Read())
    election.read(stored(LeaseSpec("", 1, lease_transitions=0)), at(2.2))
    asked = step(election, 2.2)
    election.written(stored(written_spec(asked), 2), at(2.2), at(2.3))
    assert (election.term(at(2.3)), election.leading(at(2.3))) == (2, False)
    election.reconciled(2)
    assert election.leading(at(2.3))


def test_a_release_empties_the_holder_and_keeps_the_transitions() -> None:
    election = candidate()
    election.written(MINE, at(0.0), at(0.1))
    released = election.released(MINE, at(3))
    time = micro_time(WALL + 3)
    assert released is not None
    assert released.spec == LeaseSpec("", 1, time, time, 4)
    assert released.term == Term("me", time, 4, 10.0, settled=True)
    assert election.released(stored(OTHERS, 3), at(4)) is None


def test_a_time_has_microseconds_and_a_zone() -> None:
    assert micro_time(WALL + 0.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize(("deadline", "seconds"), [(10.0, 5.0), (1.5, 1.0), (0.5, 0.5)])
def test_a_call_never_waits_past_the_deadline(deadline: float, seconds: float) -> None:
    assert Timing(renew_deadline_seconds=deadline).call_seconds == seconds


SETTLING = Timing(15, 10, 2, settle_seconds=10)
RELEASED_AT = "2026-11-21T10:00:03.000000Z"
RELEASED = LeaseSpec("", 1, RELEASED_AT, RELEASED_AT, 4)
MINE = stored(replace(OTHERS, holder_identity="me"))


def marked(
    spec: LeaseSpec, version: int = 1, *, deadline: float = 10.0, settle: float = 10.0, settled: bool = False
) -> Lease:
    """The lease with what its holder says about its term."""
    term = Term("other", spec.renew_time or "", spec.lease_transitions or 0, deadline, settle, settled)
    return stored(spec, version).released(spec, term)


def test_what_a_holder_says_counts_only_with_the_spec_that_it_has_written() -> None:
    released = marked(RELEASED, settled=True)
    assert (marked(OTHERS).term is not None, released.term is not None) == (True, True)
    taken = replace(RELEASED, holder_identity="kube-scheduler", lease_transitions=5)
    for spec in (taken, replace(taken, holder_identity=""), replace(OTHERS, holder_identity="")):
        assert Lease(spec, released.metadata).term is None
    assert Lease(RELEASED, {"annotations": {"extender/term": "{"}}).term is None


@pytest.mark.parametrize(
    ("seen", "found", "until"),
    [
        pytest.param(marked(OTHERS), marked(RELEASED, 2, settled=True), None, id="released: all outcomes are known"),
        pytest.param(marked(OTHERS), stored(RELEASED, 2), 36.0, id="released by client-go"),
        pytest.param(marked(OTHERS), stored(replace(OTHERS, holder_identity=""), 2), 36.0, id="its holder was erased"),
        pytest.param(marked(OTHERS), Lease(), 36.0, id="deleted"),
        pytest.param(None, marked(RELEASED, 2, settled=True), 36.0, id="released, but seen for the first time"),
        pytest.param(None, Lease(), 36.0, id="there is none yet"),
        pytest.param(None, stored(LeaseSpec()), 36.0, id="made by hand"),
        pytest.param(marked(OTHERS), marked(OTHERS), 20.0, id="expired: its holder led 10 s"),
        pytest.param(marked(OTHERS, deadline=14.0), marked(OTHERS, deadline=14.0), 24.0, id="its holder led 14 s"),
        pytest.param(
            marked(OTHERS, settle=30.0), marked(OTHERS, settle=30.0), 40.0, id="its holder's writes arrive 30 s later"
        ),
        pytest.param(
            marked(OTHERS, settle=30.0), stored(RELEASED, 2), 56.0, id="its writes arrive 30 s later, and it was erased"
        ),
        pytest.param(stored(OTHERS), stored(OTHERS), 25.0, id="its holder does not say how long it led"),
        pytest.param(
            marked(OTHERS, 9), marked(RELEASED, 2, settled=True), 36.0, id="restored: the version went back"
        ),
        pytest.param(
            marked(replace(OTHERS, renew_time="2026-11-21T11"), 1), marked(RELEASED, 2, settled=True), 36.0,
            id="restored: the time went back",
        ),
        pytest.param(marked(OTHERS, 9), MINE, 41.0, id="restored, and mine"),
    ],
)  # fmt: skip
def test_the_time_until_which_writes_of_the_earlier_holder_may_arrive(
    seen: Lease | None, found: Lease, until: float | None
) -> None:
    writes = settled()
    election = candidate(timing=SETTLING, writes=writes)
    if seen is not None:
        election.read(seen, at(0.0))
        assert writes.predecessors_until is None  # it leads
    election.read(found, at(16.0))
    assert isinstance(step(election, 16.0), Write)
    assert writes.predecessors_until == until
    writes.vouch() if until is None else None
    election.failed(at(16.1))  # to know that a lease is from a backup must outlast a failure
    election.read(found, at(16.2))
    assert (writes.predecessors_until is None) is (until is None)


def test_what_this_process_has_seen_of_the_lease_outlives_its_worker() -> None:
    writes = settled()
    first = candidate(timing=SETTLING, writes=writes)
    first.read(marked(OTHERS), at(0.0))
    first.read(marked(OTHERS), at(1.0))
    second = candidate(timing=SETTLING, writes=writes)
    second.read(marked(RELEASED, 2, settled=True), at(2.0))
    assert writes.predecessors_until is None


def test_a_holder_says_how_long_the_writes_of_all_holders_may_arrive_that_are_not_settled() -> None:
    writes = settled()
    election = candidate(timing=SETTLING, writes=writes)
    election.read(marked(OTHERS, settle=30.0), at(0.0))
    election.read(marked(OTHERS, settle=30.0), at(16.0))
    claim = step(election, 16.0)
    assert isinstance(claim, Write) and claim.lease.term is not None
    assert claim.lease.term.settle_seconds == 30.0
    election.written(stored(claim.lease.spec, 2), at(16.0), at(16.1))
    writes.vouch()
    renewal = step(election, 18.2)
    assert isinstance(renewal, Write) and renewal.lease.term is not None
    assert renewal.lease.term.settle_seconds == 10.0


def test_the_lease_of_this_process_adds_nothing_to_what_it_has_to_settle() -> None:
    writes = settled()
    first = candidate(timing=SETTLING, writes=writes)
    first.written(MINE, at(0.0), at(0.1))
    writes.expect_predecessors(5.0)
    next_worker = candidate(timing=SETTLING, writes=writes)
    next_worker.read(MINE, at(1.0))
    assert writes.predecessors_until == 5.0


def test_a_worker_that_finds_its_own_lease_settles_the_writes_of_the_expelled_leader() -> None:
    writes = settled()
    expelling = candidate(timing=SETTLING, writes=writes)
    expelling.read(marked(OTHERS), at(0.0))
    expelling.read(marked(OTHERS), at(16.0))
    asked = step(expelling, 16.0)
    assert isinstance(asked, Write)
    next_worker = candidate(timing=SETTLING, writes=writes)  # the answer reached no process
    next_worker.read(stored(asked.lease.spec, 2), at(16.5))
    assert writes.predecessors_until == 20.0


def unsettle(writes: UnsettledWrites, cause: str) -> None:
    if cause == "predecessor":
        writes.expect_predecessors(20.0)
        return
    with suppress(OutcomeUnknown), writes.noted("DELETE /pods/victim"):
        raise OutcomeUnknown("no answer")


@pytest.mark.parametrize("cause", ["predecessor", "own write"])
def test_while_a_write_is_unsettled_the_lease_is_not_released(cause: str) -> None:
    writes = settled()
    election = candidate(timing=SETTLING, writes=writes)
    election.written(MINE, at(0.0), at(0.1))
    unsettle(writes, cause)
    assert election.released(MINE, at(1.0)) is None
    writes.settle(20.0)
    assert election.released(MINE, at(1.0)) is not None


def test_a_lease_that_a_backup_says_is_mine_is_not_released() -> None:
    election = candidate()
    election.read(stored(OTHERS, 9), at(0.0))
    assert election.released(MINE, at(1.0)) is None


def asking(identity: str, now: float) -> Ask:
    """What a candidate that is called does as it finds the lease of another."""
    election = Election(identity, TIMING, Random(1), settled(), asks=True)
    election.read(stored(OTHERS), at(now))
    election.hurry()
    election.read(stored(OTHERS), at(now))
    asked = step(election, now)
    assert isinstance(asked, Ask)
    election.asked(asked.lease, at(now))
    assert isinstance(step(election, now), Sleep)
    return asked


def test_a_candidate_that_is_called_asks_the_holder_for_the_lease() -> None:
    asked = asking("me", 1.0)
    assert (asked.lease.wanted_by, asked.lease.spec) == ("me", OTHERS)
    assert Lease(OTHERS, NAMED).wanted_by == ""


def test_a_holder_sees_who_asks_for_the_lease_and_its_next_renewal_would_forget_it() -> None:
    election = leader()
    election.failed(at(2.2))
    held = step(leader(), 2.1)
    assert isinstance(held, Write)
    election.read(held.lease.wanted("called"), at(2.3))
    assert (election.wanted_by, election.leading(at(2.3))) == ("called", True)
    renewal = step(election, 2.3)
    assert isinstance(renewal, Write)
    assert renewal.lease.wanted_by == ""


def test_a_lease_that_was_released_for_another_is_left_to_it_for_a_second() -> None:
    free = marked(RELEASED, 2, settled=True).wanted("called")
    called = Election("called", TIMING, Random(1), settled(), asks=True)
    called.read(free, at(0.0))
    assert isinstance(step(called, 0.0), Write)
    another = candidate()
    another.read(free, at(0.0))
    assert isinstance(step(another, 0.0), Sleep)
    another.read(free, at(1.0))
    assert isinstance(step(another, 1.0), Write)


class Looking:
    """Evidence of a cache in which pods wait or not, and nothing is bound."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits

    def nothing_waits(self) -> bool:
        return not self.waits

    def shows(self, binding: Binding) -> bool:
        return False


@pytest.mark.parametrize(("waits", "seconds"), [(False, 30.0), (True, 45.0)], ids=["nothing waits", "a pod waits"])
def test_a_first_start_leads_after_the_renew_deadline_and_settles_only_if_something_waits(
    waits: bool, seconds: float
) -> None:
    """As the elector's threads do it; each wait happens once, however long it is."""
    clock = ManualClock(0.0)
    writes = UnsettledWrites(15.0, clock)
    settlement = Settlement(writes, lambda: lambda: True, Looking(waits=waits), clock)
    election = candidate(timing=Timing(40, 30.0, 2.0, settle_seconds=15.0), writes=writes)
    lease, won_at = Lease(), 0.0
    settlement.look()  # the cache is filled
    for turn in range(1000):
        now = clock.moment()
        match election.next(now):
            case Read():
                election.read(lease, now)
            case Write(claimed):
                lease = stored(claimed.spec, turn + 1)
                election.written(lease, now, now)
        if election.term(now) and settlement.caught_up(max(won_at, writes.predecessors_end)):
            break
        clock.advance(0.1)
    assert clock.monotonic() == pytest.approx(seconds, abs=0.2)
