"""Lays out the help of all commands for the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from textwrap import wrap

import click

_LONGEST = 120
_EXAMPLES = "\b\n"
"""click's mark of a paragraph whose lines it does not wrap."""


class _Formatter(click.HelpFormatter):
    """Wraps the sentences between examples, and leaves the examples as they are."""

    def write_text(self, text: str) -> None:
        super().write_text("\n\n".join(map(self._laid_out, text.split("\n\n"))))

    def _laid_out(self, paragraph: str) -> str:
        if not paragraph.startswith(_EXAMPLES):
            return paragraph
        return _EXAMPLES + "\n".join(self._lines(paragraph.removeprefix(_EXAMPLES)))

    def _lines(self, examples: str) -> Iterator[str]:
        for is_example, lines in groupby(examples.splitlines(), lambda line: line.startswith("  ")):
            if is_example:
                yield from lines
            else:
                yield from wrap(" ".join(lines), self.width - self.current_indent)


class _Context(click.Context):
    formatter_class = _Formatter


def lay_out(command: click.Command) -> None:
    """Gives this help layout to the command, and to its subcommands if it is a group."""
    command.context_class = _Context
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        lay_out(subcommand)


class ListingGroup(click.Group):
    """A group whose help lists its commands with their whole first sentence; click shortens it to one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        write_commands(formatter, "Commands", self.commands.values())


def write_commands(formatter: click.HelpFormatter, heading: str, commands: Iterable[click.Command]) -> None:
    """Writes the commands below the heading, each with its whole first sentence."""
    with formatter.section(heading):
        formatter.write_dl([(each.name or "", each.get_short_help_str(_LONGEST)) for each in commands])
