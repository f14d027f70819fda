"""The signs of life of a watch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from extender.cluster.http.credentials import Kubeconfig
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch import list_watch_state as reflection
from extender.cluster.watch import source
from extender.cluster.watch.source import ClusterSource
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from tests.cluster.fake_api import fake_api
from tests.cluster.writers.recorder import Recorder
from tests.stock.waiting import wait_until


class SignsOfLife(Recorder):
    """A recorder that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.signs: Counter[str] = Counter()

    def synced(self, kind: str) -> None:
        self.signs[kind] += 1


def test_a_kind_of_which_nothing_comes_is_alive_while_its_watches_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(reflection, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reflection, "LONGEST_PAUSE_SECONDS", 0.05)
    recorder = SignsOfLife()
    with fake_api() as api:
        connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        following = ClusterSource(connection, [KINDS["Node"]], recorder, recorder, SystemClock(), Random(1))
        following.start()
        try:
            assert wait_until(lambda: recorder.signs["Node"] >= 4)  # the list, and three watches
            assert not recorder.events
        finally:
            following.stop()
