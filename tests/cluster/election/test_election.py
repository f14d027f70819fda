"""One candidate, step by step; tests/cluster/election/test_election_machine.py has several at once."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from extender.cluster.election.election import JITTER_FACTOR, STANDBY_SHARE, Election, Read, Sleep, Step, Timing, Write
from extender.cluster.election.lease import Lease, LeaseSpec, micro_time

TIMING = Timing(lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2)
WALL = 1_700_000_000.0
NAMED = {"name": "extender", "resourceVersion": "1"}
OTHERS = LeaseSpec("other", 15, "2026-11-21T10:00:00.000000Z", "2026-11-21T10:00:02.000000Z", 4)


def stored(spec: LeaseSpec, version: int = 1) -> Lease:
    return Lease(spec, {"name": "extender", "resourceVersion": str(version)})


def candidate(jitter: float = 0.0, timing: Timing = TIMING) -> Election:
    class Fixed(Random):
        def random(self) -> float:
            return jitter

    return Election("me", timing, Fixed())


def step(election: Election, now: float) -> Step:
    return election.next(now, WALL + now)


def written_spec(asked: Step) -> LeaseSpec:
    assert isinstance(asked, Write)
    return asked.lease.spec


def leader(asked_at: float = 0.0, now: float = 0.1) -> Election:
    """One that has won the lease in a write asked for at `asked_at`, and leads."""
    election = candidate()
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
    released = candidate().released(stored(LeaseSpec("me", 15, "a", "b", 4), 7), 0.0, WALL)
    assert released == stored(LeaseSpec("", 1, micro_time(WALL), micro_time(WALL), 4), 7)
    assert candidate().released(stored(OTHERS), 0.0, WALL) is None


def test_a_time_has_microseconds_and_a_zone() -> None:
    assert micro_time(WALL + 0.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize(("deadline", "seconds"), [(10.0, 5.0), (1.5, 1.0), (0.5, 0.5)])
def test_a_call_never_waits_past_the_deadline(deadline: float, seconds: float) -> None:
    assert Timing(renew_deadline_seconds=deadline).call_seconds == seconds


def settling() -> Election:
    return candidate(timing=Timing(15, 10, 2, settle_seconds=10))


def expelling() -> tuple[Election, Write]:
    """One that saw another's last renewal at 0, whose writes may be in flight till 20, and asks for the lease at 16."""
    election = settling()
    election.read(stored(OTHERS), 0.0)
    election.read(stored(OTHERS), 16.0)
    asked = step(election, 16.0)
    assert isinstance(asked, Write)
    return election, asked


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        pytest.param(stored(OTHERS), 4, id="another's, that has expired"),
        pytest.param(stored(LeaseSpec()), 0, id="released, when nothing was under way"),
        pytest.param(stored(replace(OTHERS, holder_identity="me")), 0, id="my own"),
        pytest.param(Lease(), 0, id="none"),
    ],
)
def test_writes_of_a_leader_that_did_not_give_up_its_lease_may_be_in_flight(found: Lease, seconds: float) -> None:
    election = settling()
    election.read(found, 0.0)
    election.read(found, 16.0)
    asked = step(election, 16.0)
    election.written(stored(written_spec(asked)), 16.0, 16.0)
    assert election.unsettled_seconds(16.0) == seconds
    election.written(stored(written_spec(asked)), 18.0, 18.0)
    assert election.unsettled_seconds(18.0) == max(0, seconds - 2)


def win_again(election: Election, asked: Write) -> None:
    """It reads what it has written at 18.1, and is told at 18.2 that it has renewed it."""
    election.read(stored(asked.lease.spec, 2), 18.1)
    again = step(election, 18.1)
    election.written(stored(written_spec(again), 3), 18.1, 18.2)


def test_they_may_be_in_flight_though_the_answer_to_the_write_that_expelled_it_was_lost() -> None:
    election, asked = expelling()
    election.failed(16.1)
    win_again(election, asked)
    assert election.unsettled_seconds(19.0) == 1


def test_they_may_be_in_flight_though_who_expelled_it_has_abdicated_and_won_again() -> None:
    election, asked = expelling()
    election.written(stored(asked.lease.spec, 2), 16.0, 16.1)
    election.abdicate()
    win_again(election, asked)
    assert election.unsettled_seconds(19.0) == 1


def test_while_they_may_be_in_flight_the_lease_is_not_released() -> None:
    election, asked = expelling()
    mine = stored(asked.lease.spec, 2)
    election.written(mine, 16.0, 16.1)
    election.resign()
    assert election.released(mine, 17.0, WALL) is None
    assert election.released(mine, 20.0, WALL) is not None
