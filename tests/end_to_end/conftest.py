"""A running extender, and the scheduler's configuration that calls it."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port

EXTENDER = Path(sys.executable).parent / "extender"

# Every in-tree filter, score and preemption plugin off: what is decided, the extender decides.
ONLY_EXTENDER = {
    "multiPoint": {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": name} for name in ("PrioritySort", "SchedulingGates", "DefaultBinder")],
    }
}


class Running:
    """A process of ours with pages on a port."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.port = process, port

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, sample: str) -> float:
        """The value of a sample, like `extender_binds_total{result="bound"}`; 0 where there is none yet."""
        found = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"{sample} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


class RunningExtender(Running):
    """`extender serve` on a free port; `calls` are its log lines, one a call."""

    def calls(self, verb: str) -> list[dict[str, Any]]:
        lines = self.process.log.read_text().splitlines()
        logged = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in logged if line["msg"] == "call" and line["verb"] == verb]

    def configuration(self, *, names: bool = True, plugins: dict[str, Any] | None = None) -> dict[str, Any]:
        """A KubeSchedulerConfiguration that leaves all four verbs to this extender."""
        extender = {
            "urlPrefix": f"http://127.0.0.1:{self.port}/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            "weight": 1,
            "nodeCacheCapable": names,
        }
        profile = {"schedulerName": "default-scheduler", **({"plugins": plugins} if plugins else {})}
        return {"extenders": [extender], "profiles": [profile]}

    def _ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        self.process.wait_until(self._ready, timeout_seconds=30)


StartExtender = Callable[..., AbstractContextManager[RunningExtender]]


@pytest.fixture
def start_extender(control_plane: ControlPlane, tmp_path: Path) -> StartExtender:
    """`with start_extender("--flag") as extender:` runs one until the block ends."""

    @contextmanager
    def start(*flags: str, kubeconfig: Path | None = None) -> Iterator[RunningExtender]:
        port = free_port()
        chosen = ["--kubeconfig", kubeconfig or control_plane.kubeconfig, "--bind", f"127.0.0.1:{port}"]
        command = [EXTENDER, "serve", *chosen, "--drain-seconds=0", *flags]
        process = Process("extender", command, tmp_path / f"extender-{port}.log")
        extender = RunningExtender(process, port)
        try:
            extender.wait_until_ready()
            yield extender
        finally:
            process.stop()

    return start
