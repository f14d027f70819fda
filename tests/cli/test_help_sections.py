"""The help of `serve` and `schedule`: each setting is below the heading of what it is about."""

from __future__ import annotations

import click
import pytest

from extender.cli.process_commands import schedule, serve


@pytest.mark.parametrize("command", [serve, schedule], ids=str)
def test_every_setting_has_a_heading(command: click.Command) -> None:
    text = command.get_help(click.Context(command))
    general = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in general.splitlines()] == ["--config", "--help"]
