"""The commands in docs/pod-groups.md print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from extender.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/pod-groups.md"
REWRITES = "REWRITE_GOLDEN" in os.environ
BLOCK = re.compile(r"(```console\n\$ extender ([^\n]*)\n)(.*?)(```)", re.DOTALL)


def test_the_page_shows_what_the_commands_print() -> None:
    text = PAGE.read_text()
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        printed = BLOCK.sub(lambda block: f"{block[1]}{_output(block[2])}{block[4]}", text)
    finally:
        os.chdir(here)
    if REWRITES:
        PAGE.write_text(printed)
    assert printed == text


def _output(command: str) -> str:
    result = CliRunner().invoke(cli, shlex.split(command))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output
