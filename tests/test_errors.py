"""Every exception that leaves a room stands in errors.py, in the tree at its head."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

from extender import errors
from tests.test_layers import MODULES, nodes_of

PACKAGE = Path(errors.__file__).parent


@cache
def declared() -> dict[str, type]:
    return {
        name: found
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if found.__module__ == errors.__name__
    }


def test_the_tree_shows_every_exception_under_its_base() -> None:
    above: list[tuple[int, str]] = []
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"^ {4}([│├└─ ]*)((?:[A-Z]\w+(?:, )?)+)", line)
        if entry is None:
            continue
        depth = len(entry.group(1))
        above = [each for each in above if each[0] < depth]
        for name in entry.group(2).split(", "):
            drawn[name] = above[-1][1] if above else "Exception"
        above.append((depth, entry.group(2).split(", ")[-1]))
    assert drawn == {name: found.__bases__[0].__name__ for name, found in declared().items()}


def test_other_exceptions_stay_in_their_rooms() -> None:
    elsewhere: dict[str, str] = {}
    imported: list[tuple[Path, list[str]]] = []
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                imported.append((path, [alias.name for alias in node.names]))
            elif isinstance(node, ast.ClassDef) and path.name != "errors.py" and any(map(_is_exception, node.bases)):
                elsewhere[node.name] = _room(path)
    for path, names in imported:
        away = [name for name in names if elsewhere.get(name, _room(path)) != _room(path)]
        assert not away, f"{path} imports {away}"


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def _is_exception(base: ast.expr) -> bool:
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in declared() or name.endswith(("Error", "Exception"))
