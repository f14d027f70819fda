"""The documents name what is there: files, rooms, folders of tests, targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import LAYERS, PACKAGE

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "tests/README.md"])
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(document: Path) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text())]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_targets_that_are_named_are_in_the_makefile(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", document.read_text())) <= targets


def test_the_picture_of_the_rooms_is_what_the_layers_are() -> None:
    boxes = re.findall(r'^  L(\d+)\["(.+)"\]$', ARCHITECTURE, re.MULTILINE)
    assert [int(number) for number, _ in boxes] == list(range(len(LAYERS)))
    assert [set(rooms.split(" | ")) for _, rooms in boxes] == LAYERS
    assert f"  {' --> '.join(f'L{number}' for number, _ in boxes)}\n" in ARCHITECTURE


def test_every_room_is_described() -> None:
    described = {name for row in re.findall(r"^\| (`.*?) \|", ARCHITECTURE, re.MULTILINE) for name in row.split(", ")}
    assert described == {f"`{room}`" for rooms in LAYERS for room in rooms}


def test_every_folder_of_tests_is_a_rooms_or_on_the_map() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir()}
    mapped = set(re.findall(r"^\| `(\w+)`", (ROOT / "tests/README.md").read_text(), re.MULTILINE))
    folders = {path.parent.name for path in ROOT.glob("tests/*/__init__.py")}
    assert folders - rooms - mapped == set()
    assert mapped <= folders
