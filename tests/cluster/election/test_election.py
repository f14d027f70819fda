"""One candidate, step by step; tests/cluster/election/test_election_machine.py has several at once."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import replace

from extender.cluster.election.election import JITTER_FACTOR, STANDBY_SHARE, Election, Read, Sleep, Step, Timing, Write
from extender.cluster.election.lease import Lease, LeaseSpec, micro_time
from extender.errors import OutcomeUnknown
from extender.runtime.clock import ManualClock
from extender.runtime.unsettled import UnsettledWrites

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


def step(election: Election, now: float) -> Step:
    return election.next(now, WALL + now)


def written_spec(asked: Step) -> LeaseSpec:
    assert isinstance(asked, Write)
    return asked.lease.spec


def leader(asked_at: float = 0.0, now: float = 0.1, jitter: float = 0.0) -> Election:
    """One that has won the lease in a write asked for at `asked_at`, and leads."""
    election = candidate(jitter)
    election.read(Lease(), asked_at)
    asked = step(election, asked_at)
    assert isinstance(asked, Write)
    election.written(stored(asked.lease.spec), asked_at, now)
    election.reconciled(election.term(now))
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
    election.read(found, 0)
    asked = step(election, 0)
    assert asked == Write(Lease(LeaseSpec("me", 15, micro_time(WALL), micro_time(WALL), transitions), metadata))


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 2.0), (1.0, 2.0 * (1 + JITTER_FACTOR))])
def test_after_a_failure_there_is_a_pause(jitter: float, seconds: float) -> None:
    election = candidate(jitter)
    election.read(stored(OTHERS), 0)
    election.failed(5)
    assert step(election, 5) == Sleep(pytest.approx(seconds))  # type: ignore[arg-type]  # approx is equal to a float


@pytest.mark.parametrize(
    ("jitter", "seconds"), [(0.0, 2.0 * STANDBY_SHARE), (1.0, 2.0 * STANDBY_SHARE * (1 + JITTER_FACTOR))]
)
def test_a_lease_of_another_is_looked_at_again_after_a_pause(jitter: float, seconds: float) -> None:
    election = candidate(jitter)
    election.read(stored(OTHERS), 5)
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
    election.read(stored(spec), 100)
    election.read(stored(spec, version=2), 100 + after)  # somebody has set a label
    asked = step(election, 100 + after)
    assert isinstance(asked, Write) == taken
    if taken:
        assert written_spec(asked).lease_transitions == 5


def test_hurry_ends_the_pause_of_a_standby_and_not_that_of_a_leader() -> None:
    standby = candidate()
    standby.read(stored(OTHERS), 0.0)
    assert isinstance(step(standby, 0.1), Sleep)
    standby.hurry()
    assert step(standby, 0.1) == Read()
    leading = leader()
    leading.hurry()
    assert isinstance(step(leading, 0.2), Sleep)


def test_a_renewal_puts_the_expiry_off() -> None:
    election = candidate()
    election.read(stored(OTHERS), 0)
    election.read(stored(replace(OTHERS, renew_time="later")), 14)
    election.read(stored(replace(OTHERS, renew_time="later")), 28)
    assert isinstance(step(election, 28), Sleep)


def test_a_leader_renews_without_reading_and_keeps_its_term() -> None:
    election = leader()
    assert isinstance(step(election, 2), Sleep)
    renewal = written_spec(step(election, 2.1))
    assert (renewal.acquire_time, renewal.renew_time) == (micro_time(WALL), micro_time(WALL + 2.1))
    election.written(stored(renewal, 2), 2.1, 2.2)
    assert (election.term(12.0), election.leading(12.0), election.leading(12.1)) == (1, True, False)


def test_a_leader_renews_without_jitter() -> None:
    assert step(leader(now=0.1, jitter=1.0), 0.1) == Sleep(2.0)


def test_leading_ends_by_the_clock_alone_counted_from_the_start_of_the_write() -> None:
    election = leader(asked_at=0, now=8)
    assert election.leading(9.99)
    assert not election.leading(10)


def test_a_write_that_took_longer_than_the_deadline_wins_nothing() -> None:
    assert not leader(asked_at=0, now=10.5).leading(10.5)


def test_a_renewal_that_fails_is_followed_by_a_look_at_the_lease_at_once() -> None:
    election = leader()
    step(election, 2.1)
    election.failed(2.2)
    assert step(election, 2.2) == Read()
    assert election.leading(2.2)
    election.failed(2.3)
    assert step(election, 2.3) == Sleep(2.0)


def test_a_renewal_whose_answer_was_lost_is_made_good() -> None:
    election = leader()
    lost = written_spec(step(election, 2.1))
    election.failed(7.1)
    election.read(stored(lost, 2), 7.2)
    again = step(election, 7.2)
    assert isinstance(again, Write)
    assert (again.lease.metadata["resourceVersion"], again.lease.spec.lease_transitions) == ("2", 0)
    election.written(stored(again.lease.spec, 3), 7.2, 7.3)
    assert (election.term(17), election.leading(17)) == (1, True)


def test_the_lease_won_back_is_a_new_term_that_has_to_reconcile() -> None:
    election = leader()
    election.read(stored(LeaseSpec("me", 15, "a", "b", 0)), 12)
    renewal = written_spec(step(election, 12))
    election.written(stored(renewal, 2), 12, 12.1)
    assert (election.term(13), election.leading(13)) == (2, False)
    election.reconciled(1)  # a reconciliation of the term before has come to its end
    assert not election.leading(13)
    election.reconciled(2)
    assert election.leading(13)


@pytest.mark.parametrize(
    "found", [pytest.param(stored(OTHERS), id="taken by hand"), pytest.param(Lease(), id="deleted by hand")]
)
def test_who_sees_the_lease_gone_leads_no_more(found: Lease) -> None:
    election = leader()
    step(election, 2.1)
    election.failed(2.2)
    election.read(found, 2.3)
    assert not election.leading(2.3)


def test_who_has_resigned_leads_no_more_whatever_comes() -> None:
    election = leader()
    renewal = written_spec(step(election, 2.1))
    election.resign()
    assert not election.leading(2.1)
    election.written(stored(renewal, 2), 2.1, 2.2)
    assert not election.leading(2.2)


def test_who_has_abdicated_leads_no_more_and_may_win_the_lease_again() -> None:
    election = leader()
    election.abdicate()
    assert (election.leading(2), step(election, 2.1)) == (False, Read())
    election.read(stored(LeaseSpec("", 1, lease_transitions=0)), 2.2)
    asked = step(election, 2.2)
    election.written(stored(written_spec(asked), 2), 2.2, 2.3)
    assert (election.term(2.3), election.leading(2.3)) == (2, False)
    election.reconciled(2)
    assert election.leading(2.3)


def test_a_release_empties_the_holder_and_keeps_the_transitions() -> None:
    released = candidate().released(stored(LeaseSpec("me", 15, "a", "b", 4), 7), WALL)
    assert released == stored(LeaseSpec("", 1, micro_time(WALL), micro_time(WALL), 4), 7)
    assert candidate().released(stored(OTHERS), WALL) is None


def test_a_time_has_microseconds_and_a_zone() -> None:
    assert micro_time(WALL + 0.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize(("deadline", "seconds"), [(10.0, 5.0), (1.5, 1.0), (0.5, 0.5)])
def test_a_call_never_waits_past_the_deadline(deadline: float, seconds: float) -> None:
    assert Timing(renew_deadline_seconds=deadline).call_seconds == seconds


RELEASED = stored(LeaseSpec("", 1, lease_transitions=4))
MINE = stored(replace(OTHERS, holder_identity="me"))
SETTLING = Timing(15, 10, 2, settle_seconds=10)


@pytest.mark.parametrize(
    ("found", "before", "until"),
    [
        pytest.param(RELEASED, 3.0, None, id="released: its holder had nothing unsettled"),
        pytest.param(stored(OTHERS), None, 20.0, id="expired: 10 s from when its holder had to stop"),
        pytest.param(Lease(), None, 26.0, id="there is none"),
        pytest.param(stored(LeaseSpec()), None, 26.0, id="made by hand"),
        pytest.param(stored(replace(OTHERS, holder_identity="")), None, 26.0, id="its holder erased by hand"),
        pytest.param(MINE, None, None, id="mine, and an earlier worker has settled"),
        pytest.param(MINE, 30.0, 30.0, id="mine, and no earlier worker has settled"),
    ],
)
def test_the_time_until_which_writes_of_the_earlier_holder_may_arrive(
    found: Lease, before: float | None, until: float | None
) -> None:
    writes = settled()
    if before is not None:
        writes.expect_predecessors(before)
    election = candidate(timing=SETTLING, writes=writes)
    election.read(found, 0.0)
    if found.holder == "other":
        assert writes.predecessors_until is None  # it leads
    writes.vouch() if before is None else None
    election.read(found, 16.0)
    assert isinstance(step(election, 16.0), Write)
    assert writes.predecessors_until == until


def test_a_worker_that_finds_its_own_lease_settles_the_writes_of_the_expelled_leader() -> None:
    writes = settled()
    expelling = candidate(timing=SETTLING, writes=writes)
    expelling.read(stored(OTHERS), 0.0)
    expelling.read(stored(OTHERS), 16.0)
    asked = step(expelling, 16.0)
    assert isinstance(asked, Write)
    next_worker = candidate(timing=SETTLING, writes=writes)  # the answer came to nobody
    next_worker.read(stored(asked.lease.spec, 2), 16.5)
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
    unsettle(writes, cause)
    assert election.released(MINE, WALL) is None
    writes.settle(20.0)
    assert election.released(MINE, WALL) is not None


def test_a_released_lease_differs_from_any_other() -> None:
    released = candidate().released(MINE, WALL)
    assert released is not None
    assert (released.released, MINE.released, Lease().released) == (True, False, False)
