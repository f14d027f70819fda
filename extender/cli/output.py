"""Defines what the output of commands has in common: the option `-o`, its formats, and the layout of help texts.

It also defines yes-or-no options, and writes files: a regular file is written completely or not at all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from extender.cli.document_kinds import names_in
from extender.cli.jsonpath import Template, template_of
from extender.runtime.text import printable

_Function = TypeVar("_Function", bound=Callable[..., Any])
_STDOUT = f"{__name__}.stdout"
_JSONPATH = "jsonpath="
_LONGEST = 120
_EXAMPLES = "\b\n"
"""click's mark of a paragraph whose lines it does not wrap."""
_BY_UMASK = 0o666


class Format(StrEnum):
    """The output formats that `-o` can select."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"
    JSONPATH = "jsonpath"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class Output:
    """The value of `-o`. `template` is the template of the format jsonpath; None for the other formats."""

    format: Format
    template: Template | None = None

    @property
    def is_text(self) -> bool:
        """True if the answer is text for people: lines and tables."""
        return self.format in (Format.TABLE, Format.WIDE)

    @property
    def is_wide(self) -> bool:
        return self.format is Format.WIDE

    @property
    def is_page(self) -> bool:
        return self.format is Format.HTML


class _OutputType(click.ParamType):  # type: ignore[type-arg]  # the class is not generic before click 8.5
    """Parses the value of `-o`, and completes it in a shell."""

    name = "output"

    def __init__(self, *, page: bool) -> None:
        """
        Args:
            page: True if the command can print an HTML page.
        """
        formats = [each.value for each in Format if each not in (Format.JSONPATH, Format.HTML)]
        self.choices = (*formats, f"{_JSONPATH}TEMPLATE", *((Format.HTML.value,) if page else ()))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Parses a value of `-o`. For an unknown value, fails with a message that lists the formats."""
        if isinstance(value, Output):
            return value
        if value == _JSONPATH:
            self.fail(f"{_JSONPATH} needs a template, such as {_JSONPATH}{{.name}}", param, ctx)
        if value.startswith(_JSONPATH):
            try:
                return Output(Format.JSONPATH, template_of(value.removeprefix(_JSONPATH)))
            except ValueError as error:
                self.fail(str(error), param, ctx)
        if value not in self.choices:
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}.", param, ctx)
        return Output(Format(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002  # click's signature
        """Returns the formats that begin with `incomplete`."""
        names = [_JSONPATH if each.startswith(_JSONPATH) else each for each in self.choices]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def output_option(*, page: bool = False) -> Callable[[_Function], _Function]:
    """Adds `-o` to a command, which gets it as `output`. If `page` is True, the command can print an HTML page."""
    converter = _OutputType(page=page)
    return click.option(
        "-o",
        "--output",
        type=converter,
        default=Format.TABLE.value,
        show_default=True,
        metavar="|".join(converter.choices),
        help="output format, as kubectl's",
    )


def switch(*names: str, help: str, default: bool = False) -> Callable[[_Function], _Function]:  # noqa: A002  # as click
    """Adds a yes-or-no option `--name/--no-name`. The first of `names` may be a short form."""
    *short, name = names
    declared = f"{name}/--no-{name.removeprefix('--')}"
    return click.option(*short, declared, default=default, show_default=default, help=help)


@contextmanager
def answering() -> Iterator[None]:
    """Redirects what users' rules print in the `with` block to stderr, so that stdout contains only the answer."""
    click.get_current_context().meta[_STDOUT] = sys.stdout
    with redirect_stdout(sys.stderr):
        yield


def answer_stream() -> TextIO | None:
    """Returns the stream to print the answer to; None if stdout is closed."""
    stream: TextIO | None = click.get_current_context().meta.get(_STDOUT, sys.stdout)
    return stream


def say(text: str, *, newline: bool = True) -> None:
    """Prints one or more lines of the answer to stdout."""
    if (stream := answer_stream()) is not None:
        click.echo(text, file=stream, nl=newline)


def show(document: Mapping[str, Any], output: Output) -> None:
    """Prints a document for programs in the format of `output`: JSON, YAML, names or a template."""
    match output.format:
        case Format.YAML:
            import yaml

            say(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120).rstrip())
        case Format.NAME:
            for name in names_in(document):
                say(printable(name))
        case Format.JSONPATH if output.template is not None:
            say(_safe(output.template.render(document)), newline=False)  # like kubectl, adds no line end
        case _:
            say(json.dumps(document, indent=2))


def _safe(text: str) -> str:
    """Escapes control characters, except tabs and line ends, if the text is printed on a terminal."""
    stream = answer_stream()
    if stream is None or not stream.isatty():
        return text
    return "".join(each if each in "\n\t" else printable(each) for each in text)


def say_lines(lines: Iterable[str], notes: Sequence[str] = ()) -> None:
    """Prints notes, and then the lines of an answer."""
    for line in (*(f"note: {note}" for note in notes), *lines):
        say(line)


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


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replaces the file in one step, so that a failure leaves the old file. Raises OSError with `path` in its message.

    A pipe or a device such as /dev/stdout cannot be replaced; the data is written into it.

    Args:
        mode: the permissions of the new file; by default those of the old file.
    """
    target = path.resolve()  # if the path is a symbolic link, its target is replaced
    partial = target.with_name(f".{target.name}.partial")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        if mode is None:
            mode = target.stat().st_mode & 0o777 if target.exists() else _BY_UMASK
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def os_error_text(error: OSError) -> str:
    """Returns the error in one line of text. If it is about a file, the line names the file."""
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
