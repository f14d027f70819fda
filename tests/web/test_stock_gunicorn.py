"""`extender.wsgi:app` under gunicorn's own workers: every verb by its Flask view, and the signals of a worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import Call, Mode, WatchEvent, calls_and_events
from tests.web.servers import OURS, Server, get, gunicorn, post

pytestmark = pytest.mark.slow

STOCK = [pytest.param("gthread", id="gthread"), pytest.param("sync", id="sync")]
VERBS = ["bind", "filter", "preempt", "prioritize"]


def recorded_calls(mode: Mode) -> list[Call]:
    return [entry for entry in calls_and_events(mode) if isinstance(entry, Call)]


def cluster_of(mode: Mode, folder: Path) -> Path:
    """The recorded objects as they first were, but that no pod is bound."""
    objects: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in calls_and_events(mode):
        if isinstance(entry, WatchEvent) and entry.resource in ("nodes", "pods"):
            kind = {"kind": entry.resource[:-1].title(), "apiVersion": "v1"}
            objects.setdefault((entry.resource, entry.object["metadata"]["name"]), {**entry.object, **kind})
    for found in objects.values():
        found["spec"].pop("nodeName", None)
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())}))
    return path


def answers(worker: str, mode: Mode, folder: Path, **environment: str) -> list[Any]:
    """Whatever the application answers to the recorded calls, in their order."""
    environment["EXTENDER_CLUSTER"] = str(cluster_of(mode, folder))
    found = []
    with gunicorn(worker, app="extender.wsgi:app", **environment) as server:
        for call in recorded_calls(mode):
            reply = server.ask(post(json.dumps(call.request).encode(), f"/scheduler/{call.verb}"))
            assert reply.status == 200, reply.body
            found.append(reply.json)
    return found


@pytest.mark.parametrize("mode", ["names", "full"])
@pytest.mark.parametrize("worker", STOCK)
def test_recorded_calls_get_the_recorded_responses(worker: str, mode: Mode, tmp_path: Path) -> None:
    """The recorded extender let everything through, as ours does in an exempt namespace."""
    found = answers(worker, mode, tmp_path, EXTENDER_EXEMPT_NAMESPACES="default")
    calls = recorded_calls(mode)
    assert sorted({call.verb for call in calls}) == VERBS
    assert found == [call.response for call in calls]


@pytest.mark.parametrize("worker", STOCK)
def test_decisions_are_those_of_our_worker(worker: str, tmp_path: Path) -> None:
    ours = answers(OURS, "names", tmp_path)
    assert answers(worker, "names", tmp_path) == ours
    assert any(answer.get("FailedNodes") for answer in ours if isinstance(answer, dict))


@pytest.fixture(params=STOCK)
def stock(request: pytest.FixtureRequest) -> Iterator[Server]:
    with gunicorn(request.param, EXTENDER_DRAIN_SECONDS="5") as server:
        assert server.ask(get("/readyz")).status == 200
        yield server


def test_sigterm_lowers_readiness_answers_calls_and_stops_the_application(stock: Server) -> None:
    os.kill(stock.worker_pid, signal.SIGTERM)
    while (ready := stock.ask(get("/readyz"))).status == 200:
        pass
    assert b"[-]shutdown failed: shutting down\n" in ready.body
    assert stock.ask(post(b'{"nodes": ["a"]}')).json["NodeNames"] == ["a"]
    stock.until_logged("application stopped")
    stock.terminate()
    assert stock.exit_code() == 0


def test_sigterm_to_gunicorn_stops_the_application(stock: Server) -> None:
    stock.terminate()
    assert stock.exit_code() == 0
    stock.until_logged("application stopped")


def test_sigusr2_to_the_worker_compares(stock: Server) -> None:
    os.kill(stock.worker_pid, signal.SIGUSR2)
    stock.until_logged("application compared")
    assert stock.ask(get("/readyz")).status == 200
