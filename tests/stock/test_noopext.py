"""The no-op extender under the real scheduler, which needs its answers."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_node, make_pod
from tests.running import extender_entry
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def pod_p(control_plane: ControlPlane) -> dict[str, Any]:
    return control_plane.client.get("Pod", "p")


@pytest.mark.parametrize("names", [pytest.param(True, id="names"), pytest.param(False, id="full")])
def test_a_pod_is_placed_while_it_answers_and_not_otherwise(
    control_plane: ControlPlane, stock_binaries: Binaries, tmp_path: Path, names: bool
) -> None:
    port = free_port()
    extender = extender_entry(f"http://127.0.0.1:{port}/scheduler", names=names, verbs=("filter", "prioritize"))
    control_plane.client.create(make_node("n").obj(), make_node("m").obj(), make_pod("p").obj())
    with control_plane.scheduler({"extenders": [extender]}):
        assert wait_until(lambda: pod_p(control_plane)["status"].get("conditions"))
        assert "connection refused" in pod_p(control_plane)["status"]["conditions"][0]["message"]
        process = Process("noopext", [stock_binaries["noopext"], f"--address=127.0.0.1:{port}"], tmp_path / "log")
        try:
            process.wait_until(lambda: listening(port))
            control_plane.client.patch("Pod", "p", {"metadata": {"labels": {"try": "again"}}})
            assert wait_until(lambda: pod_p(control_plane)["spec"].get("nodeName")) in {"n", "m"}
        finally:
            process.stop()
