"""The options -l and --sort-by of the commands that list pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from extender.cli.jsonpath import JsonPath, path_of
from extender.errors import ConfigurationError

if TYPE_CHECKING:
    from extender.model.selectors import Selector

_Function = TypeVar("_Function", bound=Callable[..., Any])
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
    return sorted(every, key=lambda item: _key(path.values(item)))


def _key(values: list[Any]) -> tuple[int, float, str]:
    value = values[0] if values else None
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
