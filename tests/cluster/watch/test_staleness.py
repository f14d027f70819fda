"""The signs that the cache is up to date with a kind, and as of when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch import list_watch_state as reflection
from extender.cluster.watch import source, survey
from extender.cluster.watch.reflector import Reflector
from extender.cluster.watch.source import ClusterSource
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from tests.builders import make_node
from tests.cluster.fake_api import NODES, FakeApiServer, answer, fake_api
from tests.cluster.recorder import Recorder
from tests.stock.waiting import wait_until


class Ages(Recorder):
    """A recorder of the moments at which the cache was known to be up to date."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_as_of: list[float] = []

    def synced(self, kind: str, as_of: float) -> None:
        self.synced_as_of.append(as_of)


def watching() -> tuple[Reflector, Ages]:
    """A reflector that asked for a list at 1 s, got it at 5 s, and asks for a watch then."""
    ages = Ages()
    reflector = Reflector(KINDS["Node"], ages, ages, Random(1))
    reflector.step(1.0)
    reflector.page(b'{"metadata":{"resourceVersion":"7"},"items":[]}', 5.0)
    reflector.step(5.0)
    return reflector, ages


def test_a_list_shows_what_there_was_when_it_was_asked_for() -> None:
    _, ages = watching()
    assert ages.synced_as_of == [1.0]


def test_an_opened_watch_proves_nothing() -> None:
    reflector, ages = watching()
    reflector.opened()
    reflector.ended(400.0)
    reflector.step(400.0)
    reflector.opened()
    assert ages.synced_as_of == [1.0]


def test_an_event_and_a_bookmark_show_what_there_is_as_they_arrive() -> None:
    reflector, ages = watching()
    for now, event in ((6.0, "ADDED"), (7.0, "BOOKMARK")):
        obj = make_node("n").resource_version(8).obj()
        reflector.receive(json.dumps({"type": event, "object": obj}).encode() + b"\n", now)
    assert ages.synced_as_of == [1.0, 6.0, 7.0]


@contextmanager
def following(api: FakeApiServer, directory: Path, ages: Ages) -> Iterator[ClusterSource]:
    client = KubeClient(Kubeconfig(api.kubeconfig(directory)))
    running = ClusterSource(client, [KINDS["Node"]], ages, ages, SystemClock(), Random(1))
    running.start()
    try:
        assert wait_until(lambda: not running.unsynced())
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SURVEY_POLL_SECONDS", 0.01)
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(survey, "SHORTEST_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(reflection, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reflection, "LONGEST_PAUSE_SECONDS", 0.05)


def test_a_quiet_kind_stays_known_by_surveys(tmp_path: Path) -> None:
    ages = Ages()
    with fake_api() as api, following(api, tmp_path, ages):
        assert wait_until(lambda: len(ages.synced_as_of) >= 4)
        assert not ages.events


def test_a_silent_watch_that_is_opened_again_and_again_proves_nothing_if_no_survey_is_answered(tmp_path: Path) -> None:
    ages = Ages()
    with fake_api() as api, following(api, tmp_path, ages):
        api.fail(NODES, *[answer(500)] * 10_000)
        assert wait_until(lambda: any("watch=1" in call for call in api.calls))
        api.calls.clear()
        known = len(ages.synced_as_of)
        assert wait_until(lambda: sum("watch=1" in call for call in api.calls) >= 3)
        assert len(ages.synced_as_of) <= known + 1  # the survey that was answered before
