"""The example notebook runs as the script that it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.processes
def test_the_example_answers_every_question() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "answers.py")], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 nodes, 6 pods wait" in done.stdout
    assert "request no example.com/gpu" in done.stdout
    assert "room for 251 more" in done.stdout


@pytest.mark.slow
def test_the_tutorial_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "tutorial.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "tutorial.py").write_text("\n".join(cells))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "tutorial.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "0/20 nodes are available" in done.stdout


def test_the_tutorial_is_kept_without_outputs() -> None:
    notebook = json.loads((EXAMPLES / "tutorial.ipynb").read_text())
    assert [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["outputs"]] == []
