"""Where mutants are, and that an edit elsewhere changes neither their names nor the draw."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.mutation.changed_module import ChangedModule
from tests.mutation.mutants import Mutant, draw, mutants_of

pytestmark = pytest.mark.slow

CODE = '''
"""A module's docstring."""
from typing import Final

WAKING: Final = frozenset({"nodes"})


class Queue:
    """A class' docstring."""

    def age(self, now: float, ages: list[float]) -> float:
        """A function's docstring."""
        _log.info("asked", extra={"ages": len(ages)})
        assert ages or now
        return now - max(ages)

    def add(self, pod: str, ready: bool = True) -> None:
        if ready:
            self.pods.append(pod)
'''


def mutants(tmp_path: Path, code: str = CODE) -> list[Mutant]:
    (tmp_path / "queue.py").write_text(code)
    return mutants_of(tmp_path, "queue.py")


def test_statements_change_wherever_they_are_and_texts_do_not(tmp_path: Path) -> None:
    assert [(mutant.scope, mutant.after) for mutant in mutants(tmp_path)] == [
        ("", "WAKING: Final = frozenset({'XXnodesXX'})"),
        ("Queue.age", "return now + max(ages)"),
        ("Queue.age", "return now"),
        ("Queue.add", "def add(self, pod: str, ready: bool=False) -> None: ..."),
        ("Queue.add", "if not ready: ..."),
        ("Queue.add", "pass"),
    ]


def test_a_mutant_is_one_change_of_the_whole_module(tmp_path: Path) -> None:
    dropped = next(mutant for mutant in mutants(tmp_path) if mutant.after == "return now")
    assert dropped.source() == CODE.replace("now - max(ages)", "now")


def test_an_edit_elsewhere_changes_no_key(tmp_path: Path) -> None:
    before = [mutant.key for mutant in mutants(tmp_path)]
    edited = CODE.replace("WAKING", "# Why these.\nOTHERS = None\nWAKING").replace("A function's", "Another")
    assert [mutant.key for mutant in mutants(tmp_path, edited)] == before


def test_the_same_statement_twice_has_two_mutants(tmp_path: Path) -> None:
    twice = CODE + "            self.pods.append(pod)\n"
    keys = [mutant.key for mutant in mutants(tmp_path, twice)]
    assert len(set(keys)) == len(keys) == 7


def test_a_draw_keeps_what_an_edit_leaves(tmp_path: Path) -> None:
    drawn = {mutant.key for mutant in draw(mutants(tmp_path), seed=5, count=3)}
    more = draw(mutants(tmp_path, CODE + "            self.closed = False\n"), seed=5, count=3)
    assert len(drawn - {mutant.key for mutant in more}) <= 1
    assert drawn != {mutant.key for mutant in draw(mutants(tmp_path), seed=6, count=3)}


def test_the_changed_module_is_imported_and_its_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "changed"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "module.py").write_text("ANSWER = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        sys, "meta_path", [ChangedModule(tmp_path, "changed/module.py", "ANSWER = 2\n"), *sys.meta_path]
    )
    module = importlib.import_module("changed.module")
    monkeypatch.delitem(sys.modules, "changed.module")
    assert module.ANSWER == 2
    assert (package / "module.py").read_text() == "ANSWER = 1\n"
