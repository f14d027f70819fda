"""`--in-cluster`: asks the pods of a Deployment, by ports that the API server forwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from extender.cli.main import cli
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.builders import make_pod
from tests.cli.test_status import PICTURE
from tests.cluster.fake_api import FakeApiServer, answer, fake_api
from tests.stock.process import free_port

DEPLOYMENTS = "/apis/apps/v1/namespaces/ns/deployments"
PODS = "/api/v1/namespaces/ns/pods"
DECISIONS = {"pods": [{"pod": "shop/web", "at": 1.0, "what": "filter", "outcome": "1 of 1 nodes remain"}]}


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    return {**make_pod(name).namespace("ns").obj(), "status": {"phase": phase}}


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api() as api:
        api.collections |= {DEPLOYMENTS: {}, PODS: {}}
        deployment = {"metadata": {"name": "extender", "namespace": "ns"}}
        api.put(DEPLOYMENTS, {**deployment, "spec": {"selector": {"matchLabels": {"app": "extender"}}}})
        yield api


@pytest.fixture
def port() -> Iterator[int]:
    pages = {
        "/debug/pods": Answer(200, msgspec.json.encode(PICTURE)),
        "/debug/decisions": Answer(200, json.dumps(DECISIONS).encode()),
    }
    served = PrivatePages({path: lambda *_, page=page: page for path, page in pages.items()})
    server = PageServer("127.0.0.1", 0, served)
    server.start()
    yield server.port
    server.stop()


def run(api: FakeApiServer, folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--kubeconfig", str(api.kubeconfig(folder))])


def test_the_queue_of_a_deployment_is_shown(api: FakeApiServer, port: int, tmp_path: Path) -> None:
    api.put(PODS, pod("starting", "Pending"))
    api.put(PODS, pod("extender-1"))
    shown = run(api, tmp_path, "status", "--in-cluster", f"ns/extender:{port}", "-o", "name")
    assert shown.stdout.split() == ["shop/new", "shop/high", "shop/low", "other/going"]
    assert f"GET {PODS}?labelSelector=app%3Dextender" in api.calls
    assert any(call.startswith(f"GET {PODS}/extender-1/portforward?ports={port}") for call in api.calls)


def test_the_decisions_of_a_deployment_are_shown(api: FakeApiServer, port: int, tmp_path: Path) -> None:
    api.put(PODS, pod("extender-1"))
    shown = run(api, tmp_path, "explain", "--in-cluster", f"ns/extender:{port}", "-o", "json")
    assert json.loads(shown.stdout)["pods"] == DECISIONS["pods"]


@pytest.mark.parametrize("body", [b"{}", b"[]", b"nonsense"])
@pytest.mark.parametrize("pod", [[], ["shop/web"]], ids=["all", "one pod"])
def test_an_answer_without_decisions_is_an_error(body: bytes, pod: list[str]) -> None:
    server = PageServer("127.0.0.1", 0, PrivatePages({"/debug/decisions": lambda *_: Answer(200, body)}))
    server.start()
    refused = CliRunner().invoke(cli, ["explain", *pod, "--from", f"http://127.0.0.1:{server.port}"])
    server.stop()
    assert "answers, but not with decisions: check that it is `extender serve` or `schedule`" in str(refused.exception)


def test_decisions_have_no_page() -> None:
    refused = CliRunner().invoke(cli, ["explain", "--from", "http://127.0.0.1:1", "-o", "html"])
    assert "--from and --in-cluster cannot print a page" in str(refused.exception)


def test_a_replica_that_leads_is_preferred(api: FakeApiServer, tmp_path: Path) -> None:
    pictures = iter([msgspec.structs.replace(PICTURE, leading=False, active=[]), PICTURE])
    pages = PrivatePages({"/debug/pods": lambda *_: Answer(200, msgspec.json.encode(next(pictures)))})
    server = PageServer("127.0.0.1", 0, pages)
    server.start()
    api.put(PODS, pod("extender-1"))
    api.put(PODS, pod("extender-2"))
    shown = run(api, tmp_path, "status", "--in-cluster", f"ns/extender:{server.port}", "-o", "name")
    server.stop()
    assert "shop/new" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("ns", "expected NAMESPACE/DEPLOYMENT[:PORT]"),
        ("ns/extender:x", "expected NAMESPACE/DEPLOYMENT[:PORT]"),
        ("ns/other", "the Deployment ns/other cannot be read: 404"),
        ("ns/extender", "no pod of the Deployment ns/extender is running"),
    ],
)
def test_a_deployment_that_cannot_be_asked_is_named(
    argument: str, message: str, api: FakeApiServer, tmp_path: Path
) -> None:
    refused = run(api, tmp_path, "status", "--in-cluster", argument)
    assert message in str(refused.exception)


def test_a_port_that_cannot_be_forwarded_is_named(api: FakeApiServer, tmp_path: Path) -> None:
    api.put(PODS, pod("extender-1"))
    closed = free_port()
    refused = run(api, tmp_path, "status", "--in-cluster", f"ns/extender:{closed}")
    assert f"no answer from pod ns/extender-1:{closed}" in str(refused.exception)
    api.fail(f"{PODS}/extender-1/portforward", answer(403, "pods/portforward is forbidden"))
    refused = run(api, tmp_path, "status", "--in-cluster", f"ns/extender:{closed}")
    assert f"port {closed} of pod ns/extender-1 cannot be forwarded" in str(refused.exception)
    assert "403" in str(refused.exception)


def test_other_sources_do_not_go_with_it(api: FakeApiServer, tmp_path: Path) -> None:
    both = run(api, tmp_path, "explain", "--in-cluster", "ns/extender", "--from", "http://127.0.0.1:1")
    assert "give one process: either --from URL or --in-cluster NAMESPACE/DEPLOYMENT" in str(both.exception)
    cluster = run(api, tmp_path, "explain", "--in-cluster", "ns/extender", "--cluster", "c.yaml")
    assert "--cluster: --from and --in-cluster show remembered decisions" in str(cluster.exception)
