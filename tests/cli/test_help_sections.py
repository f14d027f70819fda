"""The help of `serve` and `schedule`: each setting is below the heading of what it is about."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from extender.cli.main import cli


@pytest.mark.parametrize("command", ["serve", "schedule"])
def test_every_setting_has_a_heading(command: str) -> None:
    text = CliRunner().invoke(cli, [command, "--help"]).output
    general = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert [line.split()[0].rstrip(",") for line in general.splitlines()] == ["--config", "-h"]
