"""The help: its sentences fit narrow terminals, and each setting is below the heading of what it is about."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from extender.cli.main import cli

NARROW = 62
_VERBATIM = ("    ", "  -")  # examples, options, and the lines below them


def _paths(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in group.commands.items():
        yield from _paths(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]


@pytest.mark.parametrize("path", list(_paths(cli)), ids=" ".join)
def test_the_sentences_of_a_help_are_as_narrow_as_the_terminal(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=NARROW).output
    assert [line for line in shown.splitlines() if len(line) > NARROW and not line.startswith(_VERBATIM)] == []


def test_an_example_stays_on_one_line() -> None:
    shown = CliRunner().invoke(cli, ["explain", "--help"], terminal_width=NARROW).output
    assert "    extender explain -n shop --sort-by .at --from http://127.0.0.1:8889\n" in shown


def test_the_commands_of_a_group_are_described_in_full() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["rule", "--help"], terminal_width=NARROW).output.split())
    assert shown.endswith("test Run the rules in FILE on a cluster, and show what they refuse, what they prefer, "
                          "and how long they take.")  # fmt: skip


@pytest.mark.parametrize("command", ["serve", "schedule"])
def test_every_setting_has_a_heading(command: str) -> None:
    text = CliRunner().invoke(cli, [command, "--help"]).output
    general = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert [line.split()[0].rstrip(",") for line in general.splitlines()] == ["--config", "-h"]
