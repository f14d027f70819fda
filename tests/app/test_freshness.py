"""A process whose cache has not been known to be up to date for too long is not ready."""

from __future__ import annotations

from extender.app.feed import Staleness
from extender.runtime.clock import ManualClock
from extender.web.metrics import Metrics


def staleness_of(limit_seconds: float = 180.0) -> tuple[Staleness, Metrics, ManualClock]:
    clock = ManualClock()
    metrics = Metrics(clock, "1")
    return Staleness(metrics.staleness, limit_seconds), metrics, clock


def test_before_the_first_list_nothing_is_stale() -> None:
    staleness, _, clock = staleness_of()
    clock.advance(1e6)
    assert staleness.waiting_for() is None


def test_a_silent_kind_is_named_with_its_age_until_it_is_known_to_be_up_to_date() -> None:
    staleness, metrics, clock = staleness_of()
    metrics.synced("Node", clock.monotonic())
    metrics.synced("Pod", clock.monotonic())
    clock.advance(100)
    metrics.synced("Node", clock.monotonic())
    clock.advance(81)
    assert staleness.waiting_for() == "cached objects not confirmed as current: Pod for 181 s; the limit is 180 s"
    metrics.synced("Pod", clock.monotonic())
    assert staleness.waiting_for() is None


def test_a_kind_is_stale_at_the_limit_however_often_it_was_asked_about_before() -> None:
    staleness, metrics, clock = staleness_of(limit_seconds=110)
    metrics.synced("Pod", clock.monotonic())
    for _ in range(11):
        clock.advance(10)
        metrics.synced("Node", clock.monotonic())
        assert staleness.waiting_for() is None
    clock.advance(1)
    assert "Pod for 111 s" in (staleness.waiting_for() or "")


def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    staleness, metrics, clock = staleness_of(limit_seconds=110)
    asked_at = clock.monotonic()
    clock.advance(30)  # for so long the list took, and for so long the watch was behind it
    metrics.synced("Pod", asked_at)
    clock.advance(81)
    assert "Pod for 111 s" in (staleness.waiting_for() or "")


def test_an_answer_that_arrives_late_makes_nothing_older() -> None:
    _, metrics, clock = staleness_of()
    metrics.synced("Pod", clock.monotonic())
    metrics.synced("Pod", clock.monotonic() - 50)
    assert metrics.staleness() == {"Pod": 0}


def test_a_quiet_kind_is_not_stale_while_surveys_confirm_it() -> None:
    staleness, metrics, clock = staleness_of()
    for _ in range(100):
        metrics.synced("StorageClass", clock.monotonic())
        clock.advance(60)
        assert staleness.waiting_for() is None


def test_without_a_limit_nothing_is_stale() -> None:
    staleness, metrics, clock = staleness_of(limit_seconds=0)
    metrics.synced("Pod", clock.monotonic())
    clock.advance(1e9)
    assert staleness.waiting_for() is None


def test_a_kind_that_is_no_longer_served_is_never_stale() -> None:
    staleness, metrics, clock = staleness_of()
    metrics.synced("DeviceClass", clock.monotonic())
    clock.advance(1)
    metrics.withdrawn("DeviceClass")
    metrics.synced("DeviceClass", clock.monotonic() - 0.5)  # a survey from before is confirmed late
    clock.advance(1e6)
    assert staleness.waiting_for() is None
    assert metrics.staleness() == {}


def test_a_kind_that_is_served_again_can_be_stale_again() -> None:
    staleness, metrics, clock = staleness_of(limit_seconds=110)
    metrics.withdrawn("DeviceClass")
    clock.advance(600)
    metrics.synced("DeviceClass", clock.monotonic())
    clock.advance(111)
    assert "DeviceClass for 111 s" in (staleness.waiting_for() or "")
