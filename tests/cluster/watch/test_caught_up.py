"""When a reflector counts as being as far as the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cluster.http.credentials import Kubeconfig
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch import caught_up as freshness
from extender.cluster.watch.caught_up import caught_up, newest_version, version_number
from extender.errors import ClusterError, OutcomeUnknown, Refused
from extender.model.kinds import KINDS
from tests.builders import make_pod
from tests.cluster.fake_api import PODS, FakeApiServer, answer, fake_api, hang_up

POD = KINDS["Pod"]


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api() as api:
        yield api


@pytest.fixture
def connection(api: FakeApiServer, tmp_path: Path) -> Iterator[KubeClient]:
    connection = KubeClient(Kubeconfig(api.kubeconfig(tmp_path)))
    yield connection
    connection.close()


def put(api: FakeApiServer, name: str) -> str:
    version: str = api.put(PODS, make_pod(name).obj())["metadata"]["resourceVersion"]
    return version


def test_it_takes_the_newest_pod_that_was_there_when_asked(api: FakeApiServer, connection: KubeClient) -> None:
    older, newest = put(api, "z"), put(api, "a")
    seen = {"version": older}
    probe = caught_up(connection, POD, lambda: seen["version"])
    put(api, "later")
    assert not probe()
    seen["version"] = ""  # the reflector lists anew
    assert not probe()
    seen["version"] = newest
    assert probe()


@pytest.mark.parametrize("newest", range(5))
def test_the_newest_may_be_on_any_page(
    api: FakeApiServer, connection: KubeClient, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    monkeypatch.setattr(freshness, "_PAGE_SIZE", 2)
    for i in range(5):
        put(api, f"p{i}")
    version = put(api, f"p{newest}")
    assert newest_version(connection, POD) == int(version)
    assert sum(call.startswith("GET /api/v1/pods") for call in api.calls) == 3


def test_without_pods_there_is_nothing_to_wait_for(connection: KubeClient) -> None:
    assert caught_up(connection, POD, lambda: "")()


def test_the_list_is_a_quorum_read_of_what_the_reflector_follows(api: FakeApiServer, connection: KubeClient) -> None:
    newest_version(connection, POD)
    (call,) = api.calls
    assert "resourceVersion" not in call
    assert "fieldSelector=status.phase" in call


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(answer(410), Refused, id="the continue token has expired"),
        pytest.param(answer(500), OutcomeUnknown, id="500"),
        pytest.param(hang_up, ClusterError, id="hang up"),
        pytest.param(lambda call: call.json(200, {"items": 3}), OutcomeUnknown, id="nonsense"),
        pytest.param(lambda call: call.json(200, {}), OutcomeUnknown, id="no list"),
    ],
)
def test_a_list_that_cannot_be_had(
    api: FakeApiServer, connection: KubeClient, fault: object, error: type[ClusterError]
) -> None:
    api.fail(PODS, fault)  # type: ignore[arg-type]  # the table's column is wider
    with pytest.raises(error):
        newest_version(connection, POD)


def test_versions_are_numbers() -> None:
    assert version_number("9") < version_number("10")
    with pytest.raises(OutcomeUnknown, match="no number"):
        version_number("x1")
