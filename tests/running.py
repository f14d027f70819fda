"""Processes of ours, each with its pages on a port of 127.0.0.1: `extender serve` and `extender schedule`."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.stock.process import Process, free_port

EXTENDER = Path(sys.executable).parent / "extender"
SCHEDULER_NAME = "default-scheduler"
VERBS = ("filter", "prioritize", "preempt", "bind")

# Every in-tree filter, score and preemption plugin off: what is decided, the extender decides.
ONLY_EXTENDER = {
    "multiPoint": {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": name} for name in ("PrioritySort", "SchedulingGates", "DefaultBinder")],
    }
}


def extender_entry(url: str, *, names: bool = True, verbs: Sequence[str] = VERBS, **fields: Any) -> dict[str, Any]:
    """Returns an entry under `extenders` of a KubeSchedulerConfiguration; each verb goes by its own name."""
    named = {f"{verb}Verb": verb for verb in verbs}
    return {"urlPrefix": url, **named, "weight": 1, "nodeCacheCapable": names, **fields}


PROBE_SECONDS = 5.0
"""How long a readiness probe waits: a process that is stopped by a signal never answers."""
START_SECONDS = 90.0


@contextmanager
def command_running(
    command: Sequence[str | Path], stdout: int | None = None, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command that heeds Ctrl-C, although a shell's background job ignores it; kills it at the end.

    Popen alone waits for the process when its block ends, and so forever if a test fails before the process has ended.
    """
    with subprocess.Popen(command, text=True, stdout=stdout, stderr=stderr, preexec_fn=_heed_ctrl_c) as process:
        try:
            yield process
        finally:
            process.kill()


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Running:
    """A process of ours with pages on a port."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.port = process, port

    def get(self, path: str, method: str = "GET", timeout_seconds: float = 60) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_seconds)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def readiness(self, query: str = "") -> tuple[int, str]:
        """Returns the status and text of /readyz; (0, "") if there is no answer."""
        try:
            return self.get(f"/readyz{query}", timeout_seconds=PROBE_SECONDS)
        except (OSError, http.client.HTTPException):
            return 0, ""

    def ready(self) -> bool:
        return self.readiness()[0] == 200

    def metric(self, sample: str) -> float:
        """The value of a sample, like `extender_binds_total{result="bound"}`; 0 where there is none yet."""
        found = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"{sample} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


class RunningExtender(Running):
    """`extender serve` on a free port."""

    def calls(self, verb: str) -> list[dict[str, Any]]:
        """The log lines of the calls so far, one each."""
        self.get("/metrics")  # no count without its line
        lines = self.process.log.read_text().splitlines()
        logged = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in logged if line["msg"] == "call" and line["verb"] == verb]

    def configuration(self, *, names: bool = True, plugins: dict[str, Any] | None = None) -> dict[str, Any]:
        """A KubeSchedulerConfiguration that leaves all four verbs to this extender."""
        extender = extender_entry(f"http://127.0.0.1:{self.port}/scheduler", names=names)
        profile = {"schedulerName": "default-scheduler", **({"plugins": plugins} if plugins else {})}
        return {"extenders": [extender], "profiles": [profile]}

    def wait_until_ready(self, timeout_seconds: float = START_SECONDS) -> None:
        self.process.wait_until(self.ready, timeout_seconds)


@contextmanager
def serve(
    kubeconfig: Path, directory: Path, *flags: str, timeout_seconds: float = START_SECONDS
) -> Iterator[RunningExtender]:
    """Runs `extender serve`, ready, until the block ends."""
    port = free_port()
    command: list[str | Path] = [EXTENDER, "serve", "--kubeconfig", kubeconfig]
    command += ["--bind", f"127.0.0.1:{port}", "--drain-seconds=0", *flags]
    process = Process("extender", command, directory / f"extender-{port}.log")
    extender = RunningExtender(process, port)
    try:
        extender.wait_until_ready(timeout_seconds)
        yield extender
    finally:
        process.stop()


class RunningScheduler(Running):
    """`extender schedule` on a free port."""


@contextmanager
def schedule(
    kubeconfig: Path,
    directory: Path,
    *flags: str,
    wait: bool = True,
    named: bool = True,
    timeout_seconds: float = START_SECONDS,
) -> Iterator[RunningScheduler]:
    """Runs `extender schedule` until the block ends; ready, unless it is not waited for."""
    port = free_port()
    chosen: list[str | Path] = ["--kubeconfig", kubeconfig, "--bind", f"127.0.0.1:{port}"]
    elect = [] if "--leader-elect" in flags else ["--no-leader-elect"]
    chosen += [*(["--scheduler-name", SCHEDULER_NAME] if named else []), *elect, *flags]
    process = Process("schedule", [EXTENDER, "schedule", *chosen], directory / f"{port}.log")
    scheduler = RunningScheduler(process, port)
    try:
        if wait:
            process.wait_until(scheduler.ready, timeout_seconds)
        yield scheduler
    finally:
        process.stop()
