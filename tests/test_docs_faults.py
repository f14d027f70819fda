"""The table of faults in docs/faults.md: each promise names tests that are collected and that nothing skips."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs/faults.md").read_text()
LINK = re.compile(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)")
NAMED = sorted(set(LINK.findall(TABLE)))
SKIPPING = {"skip", "skipif", "xfail"}


@pytest.fixture(scope="module")
def collected() -> set[tuple[str, str]]:
    """(name, path) of every test that pytest finds in the files that are named; test cases go by their class."""
    files = sorted({path for _, path in NAMED})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-n0", *files]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ids = [line.split("[")[0].split("::") for line in ended.stdout.splitlines() if "::" in line]
    return {(name, path) for path, name, *_ in ids}


def test_every_row_names_a_test() -> None:
    faults = re.sub(r"^## Time limits\n.*?(?=^## )", "", TABLE, flags=re.MULTILINE | re.DOTALL)  # one test holds these
    rows = [line for line in faults.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 15
    assert [row for row in rows if not LINK.search(row)] == []


@pytest.mark.parametrize(("name", "path"), NAMED, ids=[name for name, _ in NAMED])
def test_it_is_collected(name: str, path: str, collected: set[tuple[str, str]]) -> None:
    assert (name, path) in collected


@pytest.mark.parametrize(("name", "path"), NAMED, ids=[name for name, _ in NAMED])
def test_nothing_skips_it(name: str, path: str) -> None:
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    marks = {mark.name for marked in (module, getattr(module, name)) for mark in _marks(marked)}
    assert not marks & SKIPPING
    called = {
        ast.unparse(node.func) for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.Call)
    }
    assert not called & {"pytest.skip", "pytest.xfail", "pytest.importorskip"}


def _marks(marked: object) -> list[Any]:
    marks = getattr(marked, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]
