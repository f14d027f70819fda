"""A leader that cannot know whether its cache is up to date releases its lease to a replica that can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from extender.app.feed import ClusterFeed, ElectedFeed, feed_factory_of
from extender.cluster.watch import list_watch_state as reflection
from extender.cluster.watch import source, survey
from extender.config.settings import Settings
from tests.app.feeds import recording_feed
from tests.builders import make_node
from tests.cluster.fake_api import LEASES, NODES, FakeApiServer, answer, fake_api
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 1.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(reflection, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(source, "SURVEY_POLL_SECONDS", 0.05)
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.2)


def settings_of(api: FakeApiServer, directory: Path) -> Settings:
    return Settings(
        kubeconfig=api.kubeconfig(directory),
        watch_kinds=("Node", "Pod"),
        max_staleness_seconds=LIMIT_SECONDS,
        leader_elect=True,
        lease_namespace="default",
        lease_duration_seconds=3,
        settle_seconds=1.0,
    )


@contextmanager
def replica(api: FakeApiServer, directory: Path) -> Iterator[ClusterFeed]:
    directory.mkdir()
    settings = settings_of(api, directory)
    feed = recording_feed(feed_factory_of(settings))
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


def leads(feed: ClusterFeed) -> bool:
    return feed.leading()["extender"]


def test_it_hands_over_long_before_the_lease_expires_and_may_lead_again(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api, FakeApiServer() as apart:
        apart.put(NODES, make_node("n").obj())
        apart.collections[LEASES] = api.collections[LEASES]  # two ways to one truth, of which one may fail
        with replica(apart, tmp_path / "one") as one:
            assert wait_until(lambda: leads(one))
            apart.fail(NODES, *[answer(500)] * 10_000)
            apart.fail(NODES, *[answer(500)] * 10_000, watch=True)
            assert wait_until(lambda: not leads(one))
            assert wait_until(lambda: api.collections[LEASES]["default/extender"]["spec"]["holderIdentity"] == "")
            with replica(api, tmp_path / "two") as two:
                assert wait_until(lambda: leads(two))
                assert not leads(one)
            apart.heal()
            assert wait_until(lambda: leads(one))


def test_a_leader_that_is_to_end_hands_over_while_it_still_follows(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api, replica(api, tmp_path / "one") as one:
        assert wait_until(lambda: leads(one))
        with replica(api, tmp_path / "two") as two:
            assert wait_until(lambda: two.missing() == [])
            one.hand_over()
            assert not leads(one)
            assert wait_until(lambda: leads(two))
            assert one.missing() == []


def test_a_worker_in_the_place_of_one_that_crashed_goes_on_with_its_lease(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        settings = settings_of(api, tmp_path)
        factory = feed_factory_of(settings)
        first, second = (recording_feed(factory) for _ in range(2))
        first.start()
        assert wait_until(lambda: leads(first))
        holder = api.collections[LEASES]["default/extender"]["spec"]["holderIdentity"]
        assert isinstance(first, ElectedFeed)
        first._elector._stopping.set()  # it dies, and gives nothing up
        second.start()
        assert wait_until(lambda: leads(second))
        assert api.collections[LEASES]["default/extender"]["spec"]["holderIdentity"] == holder
        for feed in (second, first):
            feed.stop()
