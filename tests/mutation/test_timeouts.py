"""A test that takes too long is distinguished from one that fails, because a slow machine kills no mutant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import InOrder
from tests.mutation.forks import Job, run

pytestmark = pytest.mark.slow

CODE = """
import time

def test_hangs():
    time.sleep(600)

def test_fails():
    raise AssertionError
"""


@pytest.mark.parametrize(("name", "seconds", "timed_out"), [("test_hangs", 1, True), ("test_fails", 200, False)])
def test_only_a_test_that_takes_too_long_has_timed_out(
    tmp_path: Path, name: str, seconds: int, timed_out: bool
) -> None:
    (tmp_path / "test_code.py").write_text(CODE)
    test = f"test_code.py::{name}"

    def run_test(directory: Path) -> int:
        plugin = InOrder([test])
        options = ["-q", "-c", "/dev/null", f"--timeout={seconds}", "--rootdir", str(tmp_path)]
        pytest.main([*options, str(tmp_path)], plugins=[plugin])
        assert plugin.failed == test
        return int(plugin.timed_out)

    (ended,) = run([Job("test", run_test, 250)], 1, tmp_path / "children")
    assert ended.status == timed_out
