"""docs/experiments.md: its commands give what the page shows, and its policy runs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.offline.experiment.specification import ExperimentSpec
from extender.offline.experiment.sweep import as_text, experiment
from extender.policy.faults import Faults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text()


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    found: str = next(each for each in blocks if containing in each)
    return found


@pytest.mark.slow
def test_the_first_command_prints_the_table_of_the_page() -> None:
    result = experiment(ROOT / "examples/experiment/experiment.yaml")
    printed = list(as_text(result, ["allocated", "fragmentation", "pending", "energy"]))
    shown = [line for line in block("console", "make setup").splitlines() if "%" in line]
    assert [line for line in shown if line not in printed] == []
    assert len(shown) == 4


def test_the_file_of_the_page_is_an_experiment() -> None:
    faults = Faults()
    assert faults.read(ExperimentSpec, yaml.safe_load(block("yaml", "trace:"))) is not None
    assert faults.messages == []
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## The file")[2], re.MULTILINE)
    assert [field for field in ExperimentSpec.model_fields if field not in rows] == []


def test_the_policy_of_the_page_and_its_program_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", sys)  # so that what is imported does not stay
    monkeypatch.delitem(sys.modules, "mine")
    folder = tmp_path / "examples" / "experiment"
    shutil.copytree(ROOT / "examples" / "experiment", folder)
    [source] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "devices.md").read_text(), re.DOTALL)
    (folder / "mine.py").write_text(source)
    text = (folder / "experiment.yaml").read_text()
    changed = re.sub(r"policies: .*", "policies: [FGD, 'mine:fewest_free']", text).replace("last: 46", "last: 42")
    (folder / "experiment.yaml").write_text(changed)
    monkeypatch.chdir(tmp_path)
    program: dict[str, Any] = {}
    exec(block("python", "to_frame"), program)
    assert set(program["frame"].policy) == {"FGD", "mine:fewest_free"}
