"""docs/conformance.md is made of ginkgo's reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.table import document, results_of, worse

MODES = ["stock", "loop"]


def spec(name: str, state: str, kind: str = "It", **fields: Any) -> dict[str, Any]:
    return {"LeafNodeType": kind, "LeafNodeText": name, "State": state, "ContainerHierarchyTexts": ["[sig]"], **fields}


def written(path: Path, *specs: dict[str, Any]) -> Path:
    path.write_text(json.dumps([{"SpecReports": list(specs)}]))
    return path


def test_specs_that_were_run_stand_in_the_table(tmp_path: Path) -> None:
    setup, left_out = spec("", "passed", "SynchronizedBeforeSuite"), spec("another", "skipped")
    skips_itself = spec("c", "skipped", Failure={"Message": "no cloud"})
    reports = {
        ("scheduling", "stock"): [written(tmp_path / "1", setup, spec("a|x", "passed"), left_out, skips_itself)],
        ("scheduling", "loop"): [written(tmp_path / "2", setup, spec("a|x", "failed"), spec("b", "passed"), left_out)],
        ("devices", "loop"): [],
    }
    results = results_of(reports)
    text = document(results, MODES)
    assert "| specs passed | stock | loop |\n|---|---|---|\n| scheduling | 1 of 1, 1 run | 1 of 2, 1 run |\n" in text
    assert "| [sig] a/x | passed 1 of 1 | passed 0 of 1 |\n| [sig] b | - | passed 1 of 1 |\n" in text
    assert "| [sig] c | skipped | - |\n" in text
    assert "another" not in text
    assert worse(results, MODES) == ["loop: [sig] a|x: failed"]


def runs_of(tmp_path: Path, *states: str) -> dict[tuple[str, str], list[Path]]:
    paths = [written(tmp_path / f"{i}", spec("a", state), spec("b", "passed")) for i, state in enumerate(states)]
    return {("scheduling", "stock"): paths[:1], ("scheduling", "loop"): paths}


@pytest.mark.parametrize(
    ("states", "of_the_spec", "of_the_group", "worse_now"),
    [
        (["passed"] * 3, "passed 3 of 3", "2 of 2, 3 runs", []),
        (["passed", "failed"], "passed 1 of 2", "1 of 2, 2 runs", ["loop: [sig] a: failed"]),
        (["passed", "failed", "passed"], "passed 2 of 3", "1 of 2, 3 runs", []),
        (["passed", "failed", "passed", "passed", "passed"], "passed 3 of 3", "2 of 2, 3 runs", []),
    ],
)
def test_the_last_three_runs_count(
    tmp_path: Path, states: list[str], of_the_spec: str, of_the_group: str, worse_now: list[str]
) -> None:
    results = results_of(runs_of(tmp_path, *states))
    text = document(results, MODES)
    assert f"| scheduling | 2 of 2, 1 run | {of_the_group} |" in text
    assert f"| [sig] a | passed 1 of 1 | {of_the_spec} |" in text
    assert worse(results, MODES) == worse_now


def test_a_spec_that_was_repeated_alone_has_more_runs_than_its_group(tmp_path: Path) -> None:
    reports = runs_of(tmp_path, "passed")
    reports["scheduling", "loop"].append(written(tmp_path / "alone", spec("a", "passed")))
    text = document(results_of(reports), MODES)
    assert "| scheduling | 2 of 2, 1 run | 2 of 2, 1 run |" in text
    assert "| [sig] a | passed 1 of 1 | passed 2 of 2 |\n| [sig] b | passed 1 of 1 | passed 1 of 1 |" in text
