"""Defines what the output of commands has in common: `-o`, its formats, lists, and help texts.

It also defines yes-or-no options, the options -l and --sort-by of the commands that list pods, and writes files: a
regular file is written completely or not at all.

kubectl's JSONPath templates are read here, because Python libraries for JSONPath cannot: the templates contain text and
loops, and their paths have no `$`. A template may have quoted text, loops `{range PATH}...{end}`, and paths with
`.name`, `.*`, `['name']`, `[*]`, `[N]`, `[M:N]` and `[?(@.name OP value)]`; OP is == != < <= > or >=, and `[?(@.name)]`
needs no OP. A missing key gives no text, as in `kubectl get`.
"""

from __future__ import annotations

import json
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from extender.cli.document_kinds import names_in
from extender.errors import ConfigurationError
from extender.runtime.text import printable

if TYPE_CHECKING:
    from extender.model.selectors import Selector

_Document = TypeVar("_Document", bound=Mapping[str, Any])


def selector_of(text: str) -> Selector:
    """Parses a label selector; see `parse_selector`, which is imported only here because --help must not wait."""
    from extender.model.selectors import parse_selector

    return parse_selector(text)


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # the class is not generic before click 8.5
    """Parses the value of an option with one of the functions of this module."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the parsed value, or fails with the parser's message."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def list_options(command: _Function) -> _Function:
    """Adds kubectl's -l and --sort-by to a command, which gets them as `selector` and `sort_by`."""
    by = click.option(
        "--sort-by",
        type=_Parsed("JSONPath", path_of),
        metavar="JSONPATH",
        help="sort the pods by a key of -o json, such as .name",
    )
    selector = click.option(
        "-l",
        "--selector",
        type=_Parsed("selector", selector_of),
        metavar="SELECTOR",
        help="list only pods with these labels, such as app=web,tier!=db",
    )
    return selector(by(command))


def in_order(items: Iterable[_Document], path: JsonPath | None) -> list[_Document]:
    """Returns the items sorted by the value at the path, as numbers or as text. Items without a value come last.

    Raises:
        ConfigurationError: no item has the path.
    """
    every = list(items)
    if path is None or not every:
        return every
    if not any(path.values(item) for item in every):
        raise ConfigurationError([f"--sort-by: no such key; the keys are {', '.join(f'.{key}' for key in every[0])}"])
    return sorted(every, key=lambda item: _sort_key(path.values(item)))


def _sort_key(values: list[Any]) -> tuple[int, float, str]:
    value = values[0] if values else None
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


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


class _OutputType(_Parsed):
    """Parses the value of `-o`, and completes it in a shell."""

    def __init__(self, *, page: bool) -> None:
        """
        Args:
            page: True if the command can print an HTML page.
        """
        super().__init__("output", self._output)
        formats = [each.value for each in Format if each not in (Format.JSONPATH, Format.HTML)]
        self.choices = (*formats, f"{_JSONPATH}TEMPLATE", *((Format.HTML.value,) if page else ()))

    def _output(self, text: str) -> Output:
        if text == _JSONPATH:
            raise ValueError(f"{_JSONPATH} needs a template, such as {_JSONPATH}{{.name}}")
        if text.startswith(_JSONPATH):
            return Output(Format.JSONPATH, template_of(text.removeprefix(_JSONPATH)))
        if text not in self.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(self.choices)}.")
        return Output(Format(text))

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


def add_options(command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]) -> Any:
    """Adds options to a command; its help lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def switch(*names: str, help: str, default: bool = False) -> Callable[[_Function], _Function]:  # noqa: A002  # as click
    """Adds a yes-or-no option `--name/--no-name`. The first of `names` may be a short form."""
    *short, name = names
    declared = f"{name}/--no-{name.removeprefix('--')}"
    return click.option(*short, declared, default=default, show_default=default, help=help)


FILE = click.Path(path_type=Path)


def file_option(*names: str, help: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: A002  as click
    """Adds an option for the path of a file or folder. `more` are other arguments of click.option."""
    return click.option(*names, type=FILE, metavar="FILE", help=help, **more)


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


Step = Callable[[Any], list[Any]]
"""Takes a value, and returns the values inside it that one part of a path, such as `.items` or `[*]`, selects."""

_BLOCK = re.compile(r"""\{((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^{}"'])*)\}""")
_NAME = re.compile(r"\.((?:[^.\[\]{}()\\\s]|\\.)+)")
_QUOTED = re.compile(r"""\[(?:'([^']*)'|"([^"]*)")\]""")
_SLICE = re.compile(r"\[(-?\d{1,18})?:(-?\d{1,18})?\]")  # Python cannot read numbers of thousands of digits
_INDEX = re.compile(r"\[(-?\d{1,18})\]")
_FILTER = re.compile(r"""\[\?\(\s*@((?:[^()\s=!<>'"]|'[^']*'|"[^"]*")+)\s*(?:(==|!=|<=|>=|<|>)\s*([^)]+?)\s*)?\)\]""")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path to values in a document, such as `.items[*].name`."""

    steps: Sequence[Step]

    def values(self, document: Any) -> list[Any]:
        """Returns the values at the path; there are none if a key is missing."""
        found = [document]
        for step in self.steps:
            found = [value for each in found for value in step(each)]
        return found


@dataclass(frozen=True, slots=True)
class _Loop:
    path: JsonPath
    body: list[str | _Loop | JsonPath] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: text, paths, and loops over the values of a path."""

    parts: Sequence[str | _Loop | JsonPath]

    def render(self, document: Any) -> str:
        """Returns the text of the template, filled in with the document."""
        return "".join(_rendered(self.parts, document))


def template_of(text: str) -> Template:
    """Parses a template; `.name` alone means `{.name}`, as in kubectl. Raises ValueError, which says what is wrong."""
    if "{" not in text and text.startswith((".", "[", "$")):
        text = f"{{{text}}}"
    parts: list[str | _Loop | JsonPath] = []
    open_loops: list[_Loop] = []
    position = 0
    while position < len(text):
        here = open_loops[-1].body if open_loops else parts
        block = _BLOCK.match(text, position)
        if block is None and text[position] == "{":
            raise ValueError(f"{text[position:]}: the brace is not closed")
        if block is None:
            end = text.find("{", position)
            end = len(text) if end < 0 else end
            here.append(text[position:end])
            position = end
            continue
        position = block.end()
        content = block[1].strip()
        if content == "end":
            if not open_loops:
                raise ValueError("{end} has no {range}")
            open_loops.pop()
        elif content.startswith("range "):
            loop = _Loop(path_of(content.removeprefix("range ")))
            here.append(loop)
            open_loops.append(loop)
        elif content[:1] in ('"', "'"):
            here.append(_unquoted(content))
        else:
            here.append(path_of(content))
    if open_loops:
        raise ValueError("{range} has no {end}")
    return Template(parts)


def path_of(text: str) -> JsonPath:
    """Parses a path, with or without braces. Raises ValueError, which quotes the part that is wrong."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    rest = text.removeprefix("$").removeprefix("@")
    if rest in ("", "."):
        return JsonPath(())
    steps: list[Step] = []
    while rest:
        step, rest = _first_step(rest if rest[0] in ".[" or steps else f".{rest}")
        steps.append(step)
    return JsonPath(steps)


def _first_step(rest: str) -> tuple[Step, str]:
    for wildcard in (".*", "[*]"):
        if rest.startswith(wildcard):
            return _children, rest.removeprefix(wildcard)
    if match := _NAME.match(rest):
        return _key(re.sub(r"\\(.)", r"\1", match[1])), rest[match.end() :]
    if match := _QUOTED.match(rest):
        return _key(match[1] if match[1] is not None else match[2]), rest[match.end() :]
    if match := _INDEX.match(rest):
        index = int(match[1])
        return _slice(slice(index, index + 1 or None)), rest[match.end() :]
    if match := _SLICE.match(rest):
        bounds = (int(match[1]) if match[1] else None, int(match[2]) if match[2] else None)
        return _slice(slice(*bounds)), rest[match.end() :]
    if match := _FILTER.match(rest):
        return _filter(path_of(match[1]), match[2], match[3]), rest[match.end() :]
    raise ValueError(f"{rest}: expected .name, .*, ['name'], [*], [N], [M:N] or [?(@.name == value)]")


def _children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _key(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, Mapping) and name in value else []


def _slice(bounds: slice) -> Step:
    return lambda value: value[bounds] if isinstance(value, list) else []


def _filter(path: JsonPath, sign: str | None, literal: str | None) -> Step:
    if sign is None or literal is None:
        return lambda value: [each for each in _children(value) if any(path.values(each))]
    compare, expected = _COMPARISONS[sign], _literal(literal)

    def holds(found: Any) -> bool:
        try:
            return compare(found, expected)
        except TypeError:
            return False

    return lambda value: [each for each in _children(value) if any(map(holds, path.values(each)))]


def _literal(text: str) -> Any:
    if text[:1] == "'":
        return _unquoted(text)
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{text}: expected a number, true, false, null or quoted text") from None


def _unquoted(text: str) -> str:
    """Returns the text between the quotation marks, with its escapes replaced."""
    inner = text[1:-1]
    if len(text) < 2 or text[-1] != text[0]:
        raise ValueError(f"{text}: the quotation mark is not closed")
    if text[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        unquoted: str = json.loads(f'"{inner}"', strict=False)
    except ValueError:
        raise ValueError(f"{text}: unknown escape") from None
    return unquoted


def _rendered(parts: Sequence[str | _Loop | JsonPath], document: Any) -> Iterable[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case _Loop(path, body):
                for value in path.values(document):
                    yield from _rendered(body, value)
            case JsonPath():
                yield " ".join(map(_shown, part.values(document)))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"))
