"""Each deliberate difference from kube-scheduler names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs/differences.md").read_text().splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:40] for row in ROWS])
def test_the_tests_of_a_difference_are_there(row: str) -> None:
    named = re.findall(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)", row)
    assert named
    for name, path in named:
        assert f"def {name}(" in (ROOT / path).read_text(), name
