"""An extender whose watches have fallen silent is not ready, and is again as soon as they speak."""

from __future__ import annotations

from extender.app.feed import Staleness
from extender.runtime.clock import ManualClock
from extender.web.telemetry.metrics import Metrics


def watched(limit_seconds: float = 180.0) -> tuple[Staleness, Metrics, ManualClock]:
    clock = ManualClock()
    metrics = Metrics(clock, "1")
    return Staleness(metrics.staleness, limit_seconds, clock), metrics, clock


def test_before_the_first_list_there_is_nothing_to_be_stale() -> None:
    freshness, _, clock = watched()
    clock.advance(1e6)
    assert freshness.waiting_for() == ""


def test_a_silent_kind_is_told_of_with_its_age_until_anything_is_heard_of_it() -> None:
    freshness, metrics, clock = watched()
    metrics.synced("Node")
    metrics.synced("Pod")
    clock.advance(100)
    metrics.synced("Node")
    clock.advance(81)
    assert freshness.waiting_for() == "no word of Pod for 181 s, the limit is 180 s"
    metrics.synced("Pod")  # an event, a bookmark, or a list
    assert freshness.waiting_for() == ""


def test_a_quiet_kind_is_not_stale_while_bookmarks_come() -> None:
    freshness, metrics, clock = watched()
    for _ in range(100):
        metrics.synced("StorageClass")
        clock.advance(60)
        assert freshness.waiting_for() == ""


def test_without_a_limit_nothing_is_stale() -> None:
    freshness, metrics, clock = watched(limit_seconds=0)
    metrics.synced("Pod")
    clock.advance(1e9)
    assert freshness.waiting_for() == ""


def test_a_kind_that_is_served_no_more_cannot_be_stale() -> None:
    freshness, metrics, clock = watched()
    metrics.synced("DeviceClass")
    metrics.withdrawn("DeviceClass")
    clock.advance(1e6)
    assert freshness.waiting_for() == ""
    assert metrics.staleness() == {}
