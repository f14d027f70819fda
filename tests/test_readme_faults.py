"""The README's table of faults: each promise names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "README.md").read_text().partition("## What it withstands\n")[2].partition("\n## ")[0]
NAMED = sorted(set(re.findall(r"\[`(\w+)`\]\(([\w/]+\.py)\)", SECTION)))


def defined(path: Path) -> set[str]:
    """The tests of a module: functions, and test cases that Hypothesis makes of state machines."""
    body = ast.parse(path.read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    names = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {name for name in functions | names if name.lower().startswith("test")}


def test_every_row_names_a_test() -> None:
    rows = [line for line in SECTION.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 15
    assert [row for row in rows if not re.search(r"\[`\w+`\]\([\w/]+\.py\)", row)] == []


@pytest.mark.parametrize(("name", "path"), NAMED, ids=[name for name, _ in NAMED])
def test_it_exists(name: str, path: str) -> None:
    assert name in defined(ROOT / path)
