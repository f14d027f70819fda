"""The stock control plane as the tests see it: it schedules, it is empty for each test, it leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import Builder, make_namespace, make_node, make_pdb, make_pod, make_priority_class, make_service
from tests.stock.api_client import ApiError
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, StartError
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def node_of(control_plane: ControlPlane, pod: str) -> Callable[[], Any]:
    return lambda: control_plane.client.get("Pod", pod)["spec"].get("nodeName")


def test_the_scheduler_places_a_pod(control_plane: ControlPlane) -> None:
    control_plane.client.create(make_node("small").capacity(cpu="1").obj(), make_node("large").capacity(cpu="8").obj())
    control_plane.client.create(make_pod("p").req(cpu="2").obj())
    with control_plane.scheduler():
        assert wait_until(node_of(control_plane, "p")) == "large"


def test_the_scheduler_follows_its_configuration(control_plane: ControlPlane) -> None:
    control_plane.client.create(make_node("n").obj())
    control_plane.client.create(make_pod("theirs").obj(), make_pod("ours").scheduler("ours").obj())
    with control_plane.scheduler({"profiles": [{"schedulerName": "ours"}]}):
        assert wait_until(node_of(control_plane, "ours")) == "n"
        assert node_of(control_plane, "theirs")() is None


def test_a_scheduler_that_does_not_start_says_why(control_plane: ControlPlane) -> None:
    with pytest.raises(StartError, match="nonesuch"), control_plane.scheduler({"nonesuch": 1}):
        pass


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_gets_an_empty_cluster(control_plane: ControlPlane, time: str) -> None:
    client = control_plane.client
    client.create(make_namespace("team"), make_priority_class("high", 1000), make_node("n").obj())
    client.create(make_pod("p", "team").node("n").obj(), make_pod("p").priority_class("high").obj())
    client.create(make_service("s", {"app": "web"}), make_pdb("b", {"app": "web"}, minAvailable=1))
    assert [pod["metadata"]["namespace"] for pod in client.list("Pod")] == ["default", "team"]


@pytest.mark.clients
def test_kubectl_speaks_as_the_administrator(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", "team")
    assert control_plane.kubectl("get", "namespace", "team", "-o", "name") == "namespace/team\n"
    with pytest.raises(AssertionError, match="not found"):
        control_plane.kubectl("get", "namespace", "nonesuch")


@pytest.mark.clients
def test_a_service_account_has_the_rights_it_is_given(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader")
    control_plane.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=nodes")
    control_plane.kubectl(
        "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader"
    )
    reader = control_plane.client_of(control_plane.service_account_token("default", "reader"))
    assert wait_until(lambda: _allowed(lambda: reader.list("Node")))
    with pytest.raises(ApiError, match="pods is forbidden"):
        reader.list("Pod")


def _allowed(call: Callable[[], object]) -> bool:
    """RBAC reads from a cache that follows."""
    try:
        call()
    except ApiError:
        return False
    return True


@pytest.mark.slow
def test_nothing_is_left_running(stock_binaries: Binaries, tmp_path: Path) -> None:
    with ControlPlane(stock_binaries, tmp_path) as plane, plane.scheduler():
        processes = list(plane.processes)
    assert len(processes) == 3
    assert not [process.name for process in processes if process.running]


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        (tmp_path / "pid").write_text(str(Process("sleep", ["sleep", "60"], tmp_path / "log").pid))
        os._exit(0)  # no clean-up, as after SIGKILL
    os.waitpid(child, 0)
    assert wait_until(lambda: not Path("/proc", (tmp_path / "pid").read_text(), "exe").exists())


@pytest.mark.controllers
def test_the_named_controllers_run(control_plane: ControlPlane) -> None:
    with control_plane.controllers("replicaset-controller"):
        template = {"metadata": {"labels": {"app": "web"}}, "spec": make_pod("p").obj()["spec"]}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        control_plane.client.create({**Builder("apps/v1", "ReplicaSet", "web", "default").obj(), "spec": spec})
        assert wait_until(lambda: len(control_plane.client.list("Pod", "default")) == 2)
