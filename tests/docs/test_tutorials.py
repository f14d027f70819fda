"""The tutorials work as printed: their files are written, and their commands run in order in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.stock.process import free_port

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted(path.name for path in DOCS.glob("tutorial-*.md"))
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
INSTALLING = ("python3 -m venv venv && . venv/bin/activate", "pip install podseat")
"""What these commands install is installed already; tests/distribution installs the wheel."""
_ENDS = "-- this command has ended, with status "


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: a console with its commands, or a file; and the line of text before it."""

    before: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file to write the block to: the last name in the line before."""
        return str(re.findall(r"`([\w.]+)`", self.before)[-1])

    def commands(self) -> list[tuple[str, str]]:
        return [(match["command"], match["shown"]) for match in _COMMAND.finditer(self.text)]


def blocks(page: str) -> Iterator[Block]:
    for match in _BLOCK.finditer((DOCS / page).read_text()):
        yield Block(match["before"], match["language"], match["text"])


def run(commands: list[str], directory: Path) -> list[tuple[str, int]]:
    """Runs the commands in one shell with job control. Returns the output and exit status of each."""
    script = "".join(f"{command}\necho; echo '{_ENDS}'$?\n" for command in commands)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-m", "-c", script],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return [(output, int(status)) for output, status in re.findall(rf"(.*?)\n{_ENDS}(\d+)\n", done.stdout, re.DOTALL)]


def pattern_of(shown: str) -> re.Pattern[str]:
    """The shown lines must occur in this order; `...` is any text, and columns may be wider or narrower."""
    words = [r"\s+".join(map(re.escape, part.split())) for part in shown.split("...")]
    return re.compile(r".*".join(words), re.DOTALL)


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_works_from_the_first_line_to_the_last(page: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    for block in blocks(page):
        if block.language != "console":
            (tmp_path / block.file).write_text(block.text)
            continue
        steps = [step for step in block.commands() if step[0] not in INSTALLING]
        answers = run([command.replace("127.0.0.1:8890", address) for command, _ in steps], tmp_path)
        assert len(answers) == len(steps)
        for (command, shown), (output, status) in zip(steps, answers, strict=True):
            assert status in (0, 3), f"$ {command}\n{output}"
            assert pattern_of(shown).search(output), f"$ {command}\n{output}\nexpected:\n{shown}"


def test_there_are_three_tutorials() -> None:
    assert TUTORIALS == ["tutorial-pending.md", "tutorial-policy.md", "tutorial-rule.md"]
