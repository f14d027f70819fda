"""A source with its threads and sockets against a server that fails at random, by seed."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch import list_watch_state as reflection
from extender.cluster.watch import source
from extender.cluster.watch.source import ClusterSource
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from tests.builders import make_node
from tests.cluster.fake_api import NODES, FakeApiServer, Fault, answer, fake_api, hang_up, stream
from tests.cluster.recorder import Recorder
from tests.stock.waiting import wait_until

MOMENTS = 60
ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"odd","resourceVersion":"1"}}}\n'
FAULTS: tuple[Fault, ...] = (
    hang_up,
    answer(410),
    answer(429, **{"Retry-After": "0"}),
    answer(500),
    stream(),
    stream(b"{]\n"),
    stream(ADDED[:30]),
    stream(ADDED[:30], end=False),
    stream(b'{"type":"ERROR","object":{"code":410}}\n'),
)


class Tolerant(Recorder):
    """A deletion may be delivered twice."""

    def deleted(self, kind: str, obj: object) -> None:
        self.objects[kind].pop(obj.key, None)  # type: ignore[attr-defined]  # an Object


def live(api: FakeApiServer, random: Random) -> None:
    """Changes the cluster or disturbs the connection."""
    names = sorted(api.collections[NODES])
    match random.randrange(6):
        case 0 | 1:
            api.put(NODES, make_node(f"n{random.randrange(9)}").obj())
        case 2 if names:
            api.remove(NODES, random.choice(names))
        case 3:
            api.fail(NODES, *random.choices(FAULTS, k=2), watch=random.random() < 0.7)
        case 4:
            api.end_watches()
        case 5:
            api.forgotten = int(api.put(NODES, make_node("n0").obj())["metadata"]["resourceVersion"])
    time.sleep(random.uniform(0, 0.01))


def delivered(recorder: Recorder) -> dict[str, str]:
    return {key: obj.metadata.resource_version for key, obj in recorder.objects.get("Node", {}).items()}


def objects_of(api: FakeApiServer) -> dict[str, str]:
    with api.lock:
        return {key: obj["metadata"]["resourceVersion"] for key, obj in api.collections[NODES].items()}


@pytest.mark.parametrize("seed", range(8))
def test_a_source_becomes_equal_to_the_server_after_any_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(reflection, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(reflection, "LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reflection, "PAGE_SIZE", 3)
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", 0.5)
    random, recorder = Random(seed), Tolerant()
    with fake_api(*(make_node(f"n{i}").obj() for i in range(5))) as api:
        connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
        following = ClusterSource(connection, [KINDS["Node"]], recorder, recorder, SystemClock(), Random(seed))
        following.start()
        try:
            for _ in range(MOMENTS):
                live(api, random)
            assert wait_until(lambda: not api.faults_left)
            assert wait_until(lambda: delivered(recorder) == objects_of(api))
        finally:
            following.stop()
