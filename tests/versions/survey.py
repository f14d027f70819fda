"""What an API server and a kube-scheduler of a version serve and switch on by default."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from extender.model.kinds import KINDS
from extender.table.features import BY_NAME
from tests.stock.api_client import ApiError
from tests.stock.build import NEXT_VERSION, VERSIONS, Binaries
from tests.stock.control_plane import ControlPlane

_ROOT = Path(__file__).parents[2]
# Beside the gates that the extender knows: those that decide whether a kind of pod is scheduled at all.
GATES = (
    *BY_NAME,
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRADeviceBindingConditions",
    "GenericWorkload",
)


class Survey(NamedTuple):
    """A version, and how it does: the tests by outcome, kinds that are not served, gates by name (None: not known)."""

    version: str
    passed: int
    failed: list[str]
    skipped: dict[str, str]
    unserved: list[str]
    gates: dict[str, bool | None]


def survey(minor: str, binaries: Binaries, arguments: Sequence[str]) -> Survey:
    """Runs the end-to-end tests against a version; `arguments` are pytest's."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with ControlPlane(binaries, directory / "plane") as plane:
            unserved = [kind.name for kind in KINDS.values() if not _is_served(plane, kind.path)]
            gates = {name: plane.gates().get(name) for name in GATES}
        report = directory / "report.xml"
        run_tests(minor, report, arguments)
        return Survey(VERSIONS.get(minor, NEXT_VERSION), *outcomes(report), unserved, gates)


def _is_served(plane: ControlPlane, path: str) -> bool:
    try:
        plane.client.request("GET", f"{path}?limit=1")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def run_tests(minor: str, report: Path, arguments: Sequence[str], **variables: str) -> None:
    """Runs pytest with the servers of a version, and with these environment variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "stock", f"--junitxml={report}", *arguments]
    subprocess.run(command, cwd=_ROOT, env={**os.environ, **variables, "KUBERNETES_MINOR": minor}, check=False)
    if not report.exists():
        raise RuntimeError(f"no tests were run against Kubernetes {minor}")


def outcomes(report: Path) -> tuple[int, list[str], dict[str, str]]:
    """Returns how many tests passed, the names of those that failed, and those that were skipped with the reason."""
    passed, failed, skipped = 0, [], {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (left_out := case.find("skipped")) is not None:
            skipped[name] = left_out.get("message", "")
        else:
            passed += 1
    return passed, failed, skipped
