"""Each deliberate difference from kube-scheduler names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.web.series import SCHEDULER_SERIES

ROOT = Path(__file__).parents[2]
DECISIONS, _, METRICS = (ROOT / "docs/differences.md").read_text().partition("\n## Metrics, events and conditions\n")
ROWS = [line for line in DECISIONS.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:40] for row in ROWS])
def test_the_tests_of_a_difference_are_there(row: str) -> None:
    named = re.findall(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)", row)
    assert named
    for name, path in named:
        assert f"def {name}(" in (ROOT / path).read_text(), name


def test_every_metric_with_a_name_of_kube_scheduler_is_compared() -> None:
    compared = re.findall(r"^\| `(scheduler_\w+)` \|", METRICS, re.MULTILINE)
    assert sorted(compared) == sorted(name for name in SCHEDULER_SERIES if name.startswith("scheduler_"))
