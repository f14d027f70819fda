"""Imports go one way, and only the borders import what is foreign."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "extender"

# Each layer may import those below it. Siblings on one line do not import each other.
LAYERS = [
    {"cli", "wsgi"},
    {"cli_explain", "cli_reference", "cli_schedule", "cli_status"},
    {"wiring_schedule"},
    {"wiring"},
    {"wiring_extenders", "wiring_feed"},
    {"web", "simulator"},
    {"verbs", "scheduler"},
    {"wire_client"},
    {"engine", "state", "wire", "cluster"},
    {"settings_sources"},
    {"settings"},
    {"strict_yaml"},
    {"table"},
    {"model"},
    {"errors", "clock", "malloc", "ports", "ticker"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONLY_IN = {
    "kubernetes": {"cluster"},
    "flask": {"web"},
    "werkzeug": {"web"},
    "gunicorn": {"web"},
    "click": {"cli", "cli_explain", "cli_reference", "cli_schedule", "cli_status"},
}
PURE = {"engine", "table", "model", "state"}
IMPURE_MODULES = {"time", "random", "logging", "os", "socket", "subprocess", "requests"}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def room(module: str) -> str:
    """`extender.engine.rules` -> `engine`."""
    return module.split(".")[1] if "." in module else ""


def name_of(path: Path) -> str:
    return "extender." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield module
            if module == "extender":
                yield from (f"extender.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path: Path) -> None:
    here = room(name_of(path))
    for imported in imports(path):
        there = room(imported) if imported.startswith("extender.") else ""
        if not there or there == here:
            continue
        assert here in LEVEL, f"{here} is in no layer"
        assert LEVEL[there] > LEVEL[here], f"{name_of(path)} imports {imported}"
        assert there != "cluster" or here.startswith("wiring"), f"only wiring imports cluster, not {name_of(path)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_borders_import_what_is_foreign(path: Path) -> None:
    here = room(name_of(path))
    for imported in imports(path):
        top = imported.split(".")[0]
        assert here in ONLY_IN.get(top, {here}), f"{name_of(path)} imports {imported}"
        assert here not in PURE or top not in IMPURE_MODULES, f"{name_of(path)} imports {imported}"


def test_every_room_is_in_a_layer() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert rooms - {"py"} <= LEVEL.keys() | {"py"}, rooms - LEVEL.keys()
