"""Whole lists, and responses that are not lists: a comparer that accepted one would empty the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch import api_objects
from extender.cluster.watch.api_objects import decoders
from extender.cluster.watch.source import ClusterSource
from extender.errors import ClusterError
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from tests.builders import make_node
from tests.cluster.fake_api import NODES, FakeApiServer, Fault, answer, fake_api, hang_up
from tests.cluster.recorder import Recorder
from tests.stock.waiting import wait_until


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api(*(make_node(f"n{i}").obj() for i in range(3))) as api:
        yield api


@pytest.fixture
def lister(api: FakeApiServer, tmp_path: Path) -> Iterator[ClusterSource]:
    connection, recorder = KubeClient(Kubeconfig(api.kubeconfig(tmp_path))), Recorder()
    source = ClusterSource(connection, [KINDS["Node"]], recorder, recorder, SystemClock(), Random(1))
    source.start()
    assert wait_until(lambda: not source.unsynced())
    yield source
    source.stop()


def test_a_list_has_every_page(lister: ClusterSource) -> None:
    version, objects = lister.list("Node")
    assert [obj.name for obj in objects] == ["n0", "n1", "n2"]
    assert lister.has_delivered("Node", objects[0].metadata.resource_version)
    assert int(version) > 0
    assert lister.kinds() == ["Node"]


def test_after_an_expired_token_the_list_has_one_page(api: FakeApiServer, tmp_path: Path) -> None:
    client, kind = KubeClient(Kubeconfig(api.kubeconfig(tmp_path))), KINDS["Node"]
    api.fail(NODES, lambda _: True, answer(410))
    version, objects = api_objects.list_all(client, kind, decoders(kind)[0], page_size=2)
    assert [obj.name for obj in objects] == ["n0", "n1", "n2"]
    assert version == "103"
    assert [call.partition("?")[2] for call in api.calls] == ["limit=2", "limit=2&continue=2", ""]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda call: call.json(200, {}), id="nothing in it"),
        pytest.param(lambda call: call.json(200, {"kind": "Status", "status": "Success"}), id="a status"),
        pytest.param(lambda call: call.json(200, {"items": []}), id="a list without a version"),
        pytest.param(lambda call: call.json(200, {"items": 3}), id="nonsense"),
        pytest.param(answer(500), id="500"),
        pytest.param(hang_up, id="hang up"),
    ],
)
def test_a_response_that_is_not_a_list_is_an_error(api: FakeApiServer, lister: ClusterSource, fault: Fault) -> None:
    api.fail(NODES, *[fault] * 2)
    with pytest.raises(ClusterError):
        lister.list("Node")
