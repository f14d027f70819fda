"""Children end with their result, when their time is over, and with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.mutation.forks import CRASHED, Job, run

pytestmark = pytest.mark.slow


def results(tmp_path: Path, *jobs: Job[str]) -> dict[str, int | None]:
    return {ended.subject: ended.status for ended in run(jobs, 2, tmp_path)}


def hang(directory: Path) -> int:
    process = subprocess.Popen(["sleep", "1000"])
    (directory.parent / "pid").write_text(str(process.pid))
    time.sleep(1000)
    return 0


def test_each_child_ends_in_its_own_way(tmp_path: Path) -> None:
    def fail(directory: Path) -> int:
        raise ValueError

    assert results(tmp_path, Job("one", lambda _: 1, 30), Job("none", lambda _: 0, 30), Job("raises", fail, 30)) == {
        "one": 1,
        "none": 0,
        "raises": CRASHED,
    }


def test_a_child_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    assert results(tmp_path, Job("hangs", hang, 5)) == {"hangs": None}
    status = Path("/proc", (tmp_path / "pid").read_text(), "status")
    while status.exists() and "(zombie)" not in status.read_text():  # a process that is killed is not gone at once
        time.sleep(0.01)


def test_a_child_that_crashes_has_no_status(tmp_path: Path) -> None:
    def crash(directory: Path) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert results(tmp_path, Job("crashes", crash, 30)) == {"crashes": None}
