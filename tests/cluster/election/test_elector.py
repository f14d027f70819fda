"""Electors with their threads on one API server that fails in many ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.election.election import Election, Timing
from extender.cluster.election.elector import LeaderElector
from extender.cluster.election.lease import Lease, LeaseClient, LeaseSpec, Term
from extender.cluster.kube_client import KubeClient
from extender.errors import OutcomeUnknown
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Binding
from extender.runtime.unsettled import Settlement, UnsettledWrites
from tests.cluster.fake_api import EVENTS, LEASES, FakeApiServer, accept_and_hang_up, answer, fake_api, hang, hang_up
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.processes

TIMING = Timing(lease_duration_seconds=4, renew_deadline_seconds=3.0, retry_period_seconds=0.05)
# Between two calls of a candidate there is time to see that it makes none.
PATIENT = Timing(lease_duration_seconds=90, renew_deadline_seconds=60.0, retry_period_seconds=30.0)
LEASE = f"{LEASES}/extender"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """An API server with a lease that was released, so that candidates which know its history need not wait."""
    with fake_api() as api:
        spec = LeaseSpec("", 1, "2026-11-21T10:00:00.000000Z", "2026-11-21T10:00:00.000000Z", 0)
        term = Term("before", spec.renew_time or "", 0, TIMING.renew_deadline_seconds, settled=True)
        lease = Lease(spec, {"namespace": "default", "name": "extender"}).released(spec, term)
        api.put(LEASES, msgspec.to_builtins(lease))
        yield api


def knowing(settle_seconds: float = 0.0) -> UnsettledWrites:
    """The memory of a process that has seen the lease before."""
    writes = UnsettledWrites(settle_seconds)
    writes.lease_version = 1
    return writes


Elect = Callable[..., LeaderElector]
EVICTION = "DELETE /api/v1/namespaces/default/pods/victim"


class Waiting:
    """Evidence of a cache in which pods wait, and nothing is bound."""

    def nothing_waits(self) -> bool:
        return False

    def shows(self, binding: Binding) -> bool:
        return False


@pytest.fixture
def elect(api: FakeApiServer, tmp_path: Path) -> Iterator[Elect]:
    """Starts an elector; `caught_up` is what its reconciliation finds."""
    started: list[tuple[LeaderElector, KubeClient]] = []

    def elect(
        identity: str,
        caught_up: Callable[[], bool] = lambda: True,
        eligible: Callable[[], bool] = lambda: True,
        connection: KubeClient | None = None,
        writes: UnsettledWrites | None = None,
        timing: Timing = TIMING,
        asks: bool = False,
    ) -> LeaderElector:
        connection = connection or KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        lease = LeaseClient(connection, "default", "extender", timing.renew_deadline_seconds / 3)
        writes = writes or knowing()
        election = Election(identity, timing, Random(1), writes, asks=asks)
        settlement = Settlement(writes, lambda: caught_up, Waiting(), SystemClock())
        elector = LeaderElector(lease, election, eligible, settlement, SystemClock())
        elector.start()
        started.append((elector, connection))
        return elector

    yield elect
    for elector, connection in started:
        elector.stop()
        connection.close()


def holder(api: FakeApiServer) -> str:
    held: str = api.collections[LEASES]["default/extender"]["spec"]["holderIdentity"]
    return held


def test_one_leads_and_the_other_says_whom_it_waits_for(api: FakeApiServer, elect: Elect) -> None:
    first = elect("first")
    assert wait_until(first.leading)
    second = elect("second")
    assert wait_until(lambda: "held by first" in (second.waiting_for() or ""))
    assert (first.waiting_for(), second.leading()) == (None, False)
    assert second.waiting_for() == "waiting for the lease default/extender held by first"


def test_the_thread_of_the_election_has_the_name_that_the_documentation_of_profiling_gives(elect: Elect) -> None:
    elect("me")
    assert "leader-election" in {thread.name for thread in threading.enumerate()}


def test_a_leader_that_stops_hands_over(api: FakeApiServer, elect: Elect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first = elect("first")
    assert wait_until(first.leading)
    second = elect("second")
    assert wait_until(lambda: "another process leads lease=default/extender holder='first'" in caplog.messages)
    first.stop()
    assert "lease released lease=default/extender" in caplog.messages
    assert not first.leading()
    assert wait_until(second.leading)
    assert api.collections[LEASES]["default/extender"]["spec"]["leaseTransitions"] == 2


def test_each_change_of_the_leader_is_an_event_about_the_lease(api: FakeApiServer, elect: Elect) -> None:
    def notes() -> set[str]:
        return {event["note"] for event in api.collections[EVENTS].values()}

    first = elect("first")
    assert wait_until(first.leading)
    assert wait_until(lambda: notes() == {"first became leader"})
    second = elect("second")
    first.stop()
    changes = {"first became leader", "first stopped leading", "second became leader"}
    assert wait_until(lambda: notes() == changes)
    second.stop()
    assert notes() == changes | {"second stopped leading"}
    (event, *_) = api.collections[EVENTS].values()
    lease = {"namespace": "default", "name": "extender", "uid": ""}  # the stand-in gives no UID
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": event["metadata"],
        "eventTime": event["eventTime"],
        "reportingController": "extender",
        "reportingInstance": "first",
        "action": "LeaderElection",
        "reason": "LeaderElection",
        "type": "Normal",
        "note": "first became leader",
        "regarding": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease},
    }
    assert event["metadata"]["namespace"] == "default"


def test_an_event_that_is_refused_costs_no_leadership(
    api: FakeApiServer, elect: Elect, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail(EVENTS, answer(403))
    first = elect("first")
    assert wait_until(lambda: api.faults_left == 0)
    assert wait_until(first.leading)
    assert wait_until(lambda: "event not written lease=default/extender reason='403" in caplog.text)


@pytest.mark.parametrize("ended", [pytest.param(False, id="under way"), pytest.param(True, id="without an answer")])
def test_a_leader_that_stops_leaves_its_lease_to_expire_while_a_write_is_unsettled(
    api: FakeApiServer, elect: Elect, ended: bool
) -> None:
    writes = knowing()
    first = elect("first", writes=writes)
    assert wait_until(first.leading)
    with suppress(OutcomeUnknown), writes.noted(EVICTION):
        if ended:
            raise OutcomeUnknown("no answer")
        first.stop()
        assert holder(api) == "first"
    if ended:
        first.stop()
        assert holder(api) == "first"


def test_a_leader_that_is_no_longer_eligible_hands_over_once_its_writes_are_settled(
    api: FakeApiServer, elect: Elect, caplog: pytest.LogCaptureFixture
) -> None:
    fresh, led_while_stale, writes = threading.Event(), [], knowing()
    fresh.set()
    first = elect("first", eligible=fresh.is_set, writes=writes)
    assert wait_until(first.leading)
    second = elect("second")
    with writes.noted(EVICTION):
        fresh.clear()
        assert wait_until(lambda: not first.leading())
        assert holder(api) == "first"
    assert wait_until(second.leading)
    reason = "the cache may be out of date"
    assert caplog.messages.count(f"no longer the leader lease=default/extender reason={reason!r}") == 1
    led_while_stale.append(first.leading())
    second.stop()
    assert holder(api) == ""  # no process takes what it cannot use
    led_while_stale.append(first.leading())
    fresh.set()
    assert wait_until(first.leading)
    assert led_while_stale == [False, False]


def test_who_is_not_eligible_does_not_stand(api: FakeApiServer, elect: Elect) -> None:
    synced = threading.Event()
    cold = elect("cold", eligible=synced.is_set)
    warm = elect("warm")
    assert wait_until(warm.leading)
    assert not cold.leading()
    synced.set()
    assert wait_until(lambda: "held by warm" in (cold.waiting_for() or ""))


def test_who_has_won_the_lease_waits_for_its_cache(api: FakeApiServer, elect: Elect) -> None:
    caught_up = threading.Event()
    elector = elect("me", caught_up=caught_up.is_set)
    assert wait_until(lambda: elector.waiting_for() == "waiting until the cache shows what the last leader has written")
    assert not elector.leading()
    caught_up.set()
    assert wait_until(elector.leading)


def test_hurry_returns_when_the_process_leads_or_has_resigned(api: FakeApiServer, elect: Elect) -> None:
    began_at, caught_up = time.monotonic(), threading.Event()
    elector = elect("me", caught_up=caught_up.is_set)
    threading.Timer(0.2, caught_up.set).start()
    elector.hurry(30.0)
    assert elector.leading()
    elector.hurry(30.0)
    elector.resign()
    elector.hurry(30.0)
    assert time.monotonic() - began_at < 20.0


def test_a_standby_that_is_hurried_takes_a_free_lease_before_its_pause_ends(api: FakeApiServer, elect: Elect) -> None:
    released = api.collections[LEASES]["default/extender"]
    api.put(LEASES, {**released, "spec": {"holderIdentity": "first", "leaseDurationSeconds": 90}})
    second = elect("second", timing=PATIENT)
    assert wait_until(lambda: "held by first" in (second.waiting_for() or ""))
    api.put(LEASES, released)
    second.hurry(5.0)
    assert second.leading()


def test_a_leader_leaves_the_lease_to_one_that_is_called(api: FakeApiServer, elect: Elect) -> None:
    first = elect("first", asks=True)
    assert wait_until(first.leading)
    second = elect("second", asks=True)
    writes = first._settlement.writes

    def hurried() -> bool:
        second.hurry(0.1)
        return not first.leading()

    with writes.noted(EVICTION):
        assert wait_until(hurried)
        assert not second.leading()
        assert holder(api) == "first"  # which waits for the answer
    second.hurry(30.0)
    assert (first.leading(), second.leading()) == (False, True)
    first.hurry(30.0)
    assert (first.leading(), second.leading()) == (True, False)


def test_a_holder_that_leaves_the_lease_before_it_knows_earlier_writes_may_lead_later(
    api: FakeApiServer, elect: Elect
) -> None:
    caught_up = threading.Event()
    # The lease is not released but expires. Then the one that is in a hurry looks first, because the other one pauses.
    timing = Timing(lease_duration_seconds=4, renew_deadline_seconds=3.0, retry_period_seconds=2.5)
    first = elect("first", caught_up=caught_up.is_set, writes=UnsettledWrites(0.0), timing=timing, asks=True)
    assert wait_until(lambda: holder(api) == "first")
    second = elect("second", asks=True)
    second.hurry(120.0)
    assert (first.leading(), second.leading()) == (False, True)
    caught_up.set()
    first.hurry(120.0)
    assert (first.leading(), second.leading()) == (True, False)


def test_a_candidate_that_does_not_know_the_leases_history_leads_only_once_any_other_has_ceased_to(
    api: FakeApiServer, elect: Elect
) -> None:
    timing = Timing(lease_duration_seconds=2, renew_deadline_seconds=1.0, retry_period_seconds=0.05)
    fresh = elect("fresh", writes=UnsettledWrites(0.0), timing=timing)
    assert wait_until(lambda: "may still arrive" in (fresh.waiting_for() or ""))
    assert (holder(api), fresh.leading()) == ("fresh", False)
    assert wait_until(fresh.leading)


def test_a_candidate_pauses_after_a_call_that_failed(api: FakeApiServer, elect: Elect) -> None:
    api.fail(LEASE, answer(403))
    elector = elect("me", timing=PATIENT)
    assert wait_until(lambda: api.faults_left == 0)
    time.sleep(0.3)
    assert not elector.leading()
    assert len(api.calls) == 1


def test_hurry_gives_up_after_its_seconds(api: FakeApiServer, elect: Elect) -> None:
    elector = elect("me", caught_up=lambda: False)
    elector.hurry(0.1)
    assert not elector.leading()


def test_an_unexpected_error_is_logged_with_its_traceback_and_costs_no_election(
    elect: Elect, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [OutcomeUnknown("no answer"), ValueError("a fault of ours")]

    def eligible() -> bool:
        if errors:
            raise errors.pop(0)
        return True

    assert wait_until(elect("me", eligible=eligible).leading)
    logged = [(record.getMessage(), bool(record.exc_info)) for record in caplog.records]
    assert logged[:2] == [
        ("election step failed lease=default/extender reason='no answer'", False),
        ("election step failed lease=default/extender reason='a fault of ours'", True),
    ]


def test_a_reconciliation_that_fails_is_tried_again(api: FakeApiServer, elect: Elect) -> None:
    failures = [OutcomeUnknown("as the test wants it"), ValueError("a fault of ours")]

    def caught_up() -> bool:
        if failures:
            raise failures.pop()
        return True

    assert wait_until(elect("me", caught_up=caught_up).leading)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer(500), id="500"),
        pytest.param(answer(429, **{"Retry-After": "1"}), id="429"),
        pytest.param(answer(409), id="409"),
        pytest.param(answer(403), id="403"),
        pytest.param(hang_up, id="hang up"),
        pytest.param(accept_and_hang_up, id="accepted and no answer"),
        pytest.param(lambda call: call.json(200, {"spec": 3}), id="nonsense"),
    ],
)
def test_a_call_that_fails_costs_no_leadership(
    api: FakeApiServer, elect: Elect, fault: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    terms = 0

    def caught_up() -> bool:
        nonlocal terms
        terms += 1
        return True

    elector = elect("me", caught_up=caught_up)
    assert wait_until(elector.leading)
    api.fail(LEASE, fault, fault)
    assert wait_until(lambda: api.faults_left == 0)
    calls = len(api.calls)
    assert wait_until(lambda: len(api.calls) > calls + 4)
    assert elector.leading()
    assert terms == 1
    assert "no longer the leader" not in caplog.text


def test_leading_ends_though_every_call_hangs_and_comes_back_after(
    api: FakeApiServer, elect: Elect, caplog: pytest.LogCaptureFixture
) -> None:
    elector = elect("me")
    assert wait_until(elector.leading)
    release = threading.Event()
    api.fail(LEASE, *[hang(release)] * 20)
    assert wait_until(lambda: not elector.leading())
    assert elector.waiting_for() == "waiting for the lease default/extender"
    release.set()
    assert wait_until(elector.leading)
    assert wait_until(lambda: "no longer the leader lease=default/extender" in caplog.text)


def test_another_takes_over_from_a_leader_that_is_cut_off(api: FakeApiServer, elect: Elect, tmp_path: Path) -> None:
    connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
    first = elect("first", connection=connection)
    assert wait_until(first.leading)
    second = elect("second")
    connection.close()
    led_together = False

    def taken_over() -> bool:
        nonlocal led_together
        now_second, now_first = second.leading(), first.leading()
        led_together |= now_first and now_second
        return now_second

    assert wait_until(taken_over)
    assert not led_together


def test_the_lease_keeps_what_others_have_put_on_it(api: FakeApiServer, elect: Elect) -> None:
    metadata = {"namespace": "default", "name": "extender", "labels": {"mine": "1"}}
    api.put(LEASES, {"metadata": metadata, "spec": {}})
    assert wait_until(elect("me").leading)
    assert api.collections[LEASES]["default/extender"]["metadata"]["labels"] == {"mine": "1"}
