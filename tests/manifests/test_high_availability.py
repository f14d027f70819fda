"""The overlay with two replicas: accepted by the API server, and its flags work under its service account."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import pytest

from extender.config.settings import OPTIONS
from tests.running import EXTENDER, RunningExtender
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

OVERLAY = Path(__file__).parents[2] / "manifests" / "high-availability"
NAMESPACE = "extender-system"

pytestmark = pytest.mark.stock


@pytest.fixture
def deployment(control_plane: ControlPlane) -> dict[str, Any]:
    control_plane.kubectl("apply", "--server-side", "--validate=strict", "-k", str(OVERLAY))
    spec: dict[str, Any] = control_plane.client.get("Deployment", "extender", NAMESPACE)["spec"]
    return spec


def test_the_api_server_accepts_it(deployment: dict[str, Any]) -> None:
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (2, "RollingUpdate")
    assert len(deployment["template"]["spec"]["topologySpreadConstraints"]) == 1


def test_its_account_may_do_all_that_an_election_needs(
    control_plane: ControlPlane, deployment: dict[str, Any], tmp_path: Path
) -> None:
    container = deployment["template"]["spec"]["containers"][0]
    election = [flag for flag in container["args"] if flag.startswith(("--leader-", "--lease-"))]
    assert election
    assert OPTIONS["own_namespace"].variable in [variable["name"] for variable in container["env"]]
    kubeconfig = control_plane.write_kubeconfig("extender", control_plane.service_account_token(NAMESPACE, "extender"))
    port = free_port()
    where = ["--kubeconfig", kubeconfig, "--bind", f"127.0.0.1:{port}", f"--own-namespace={NAMESPACE}"]
    process = Process("extender", [EXTENDER, "serve", *where, "--drain-seconds=0", *election], tmp_path / "log")
    try:
        assert wait_until(lambda: ready(RunningExtender(process, port))), process.log_tail()
        held = control_plane.client.get("Lease", "extender", NAMESPACE)["spec"]
        assert held["holderIdentity"]
    finally:
        process.stop()
    assert control_plane.client.get("Lease", "extender", NAMESPACE)["spec"]["holderIdentity"] == ""


def ready(extender: RunningExtender) -> bool:
    try:
        return extender.get("/readyz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False
