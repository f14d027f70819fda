"""Every command that installs the product names the one distribution, image, chart and plugin: podseat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "podseat"
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").rglob("*.*")),
    *sorted((ROOT / "manifests").rglob("*.yaml")),
    *sorted((ROOT / "extender").rglob("*.py")),
]
# Each pattern finds the name that a kind of command gives; `.` is the checkout.
COMMANDS = {
    "pip": re.compile(r"pip install (?:-\S+ )*'?([A-Za-z][\w-]*)"),
    "extra": re.compile(r"\b([\w-]+)\[(?:certs|docs|mcp|pandas|test)\]"),
    "helm": re.compile(r"helm (?:install|upgrade) \S+ (\S+)"),
    "image": re.compile(
        r"(?:make image IMAGE=|docker push |docker save |docker-image |FROM )(?:registry\.example\.com/)?([\w-]+):"
    ),
    "plugin": re.compile(r"kubectl why|kubectl (podseat)"),
}
ELSEWHERE = {"py-spy", "uv"}
RIGHT = {NAME, f"charts/{NAME}"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_installs_names_the_product(command: str) -> None:
    names = [
        (str(path.relative_to(ROOT)), found[1])
        for path in TEXTS
        for found in COMMANDS[command].finditer(path.read_text())
    ]
    assert names, "the pattern finds no command any more"
    assert [(path, name) for path, name in names if name not in RIGHT | ELSEWHERE] == []
