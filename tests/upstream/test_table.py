"""docs/conformance.md is made of ginkgo's reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        ("scheduling", "stock"): written(tmp_path / "1", setup, spec("a|x", "passed"), left_out, skips_itself),
        ("scheduling", "loop"): written(tmp_path / "2", setup, spec("a|x", "failed"), spec("b", "passed"), left_out),
        ("devices", "loop"): tmp_path / "not run",
    }
    results = results_of(reports)
    text = document(results, MODES)
    assert "| specs passed | stock | loop |\n|---|---|---|\n| scheduling | 1 of 1 | 1 of 2 |\n" in text
    assert "| [sig] a/x | passed | failed |\n| [sig] b | - | passed |\n| [sig] c | skipped | - |\n" in text
    assert "another" not in text
    assert worse(results, MODES) == ["loop: [sig] a|x: failed"]
