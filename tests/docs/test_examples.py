"""The example notebook runs as the script that it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_answers_every_question() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "answers.py")], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 nodes, 6 pods wait" in done.stdout
    assert "request no example.com/gpu" in done.stdout
    assert "room for 251 more" in done.stdout
