"""The table of faults in docs/faults.md: each promise names tests that pytest collects and that nothing skips."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import TestCase

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs/faults.md").read_text()
LINK = re.compile(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)")
NAMED = sorted(set(LINK.findall(TABLE)))
SKIPPING = {"skip", "skipif", "xfail"}


def test_every_row_names_a_test() -> None:
    faults = re.sub(r"^## Time limits\n.*?(?=^## )", "", TABLE, flags=re.MULTILINE | re.DOTALL)  # one test holds these
    rows = [line for line in faults.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 15
    assert [row for row in rows if not LINK.search(row)] == []


def test_each_is_collected() -> None:
    """By the rules with which pytest collects: names of files, functions and classes; files below tests."""
    for name, path in NAMED:
        found = getattr(_module(path), name)
        assert path.startswith("tests/")
        assert Path(path).name.startswith("test_")
        is_case = isinstance(found, type) and issubclass(found, TestCase)
        assert is_case or (callable(found) and name.startswith(("test_", "Test")))
        assert getattr(found, "__test__", True)


def test_nothing_skips_them() -> None:
    for name, path in NAMED:
        module = _module(path)
        marks = {mark.name for marked in (module, getattr(module, name)) for mark in _marks(marked)}
        assert not marks & SKIPPING, name
    skipping = {"pytest.skip", "pytest.xfail", "pytest.importorskip"}
    assert [path for path in sorted({path for _, path in NAMED}) if _called(path) & skipping] == []


def _called(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _module(path: str) -> ModuleType:
    return importlib.import_module(path.removesuffix(".py").replace("/", "."))


def _marks(marked: object) -> list[Any]:
    marks = getattr(marked, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]
