r"""Reads kubectl's JSONPath templates, such as `{range .items[*]}{.name}{"\n"}{end}`, and fills them in.

Python libraries for JSONPath cannot read these templates, because they contain text and loops, and their paths have no
`$`. A template may have quoted text, loops `{range PATH}...{end}`, and paths with `.name`, `.*`, `['name']`, `[*]`,
`[N]`, `[M:N]` and `[?(@.name OP value)]`; OP is == != < <= > or >=, and `[?(@.name)]` needs no OP. A missing key gives
no text, as in `kubectl get`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Loop:
    path: JsonPath
    body: list[_Text | _Loop | JsonPath] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: text, paths, and loops over the values of a path."""

    parts: Sequence[_Text | _Loop | JsonPath]

    def render(self, document: Any) -> str:
        """Returns the text of the template, filled in with the document."""
        return "".join(_rendered(self.parts, document))


def template_of(text: str) -> Template:
    """Parses a template; `.name` alone means `{.name}`, as in kubectl. Raises ValueError, which says what is wrong."""
    if "{" not in text and text.startswith((".", "[", "$")):
        text = f"{{{text}}}"
    parts: list[_Text | _Loop | JsonPath] = []
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
            here.append(_Text(text[position:end]))
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
            here.append(_Text(_unquoted(content)))
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


def _rendered(parts: Sequence[_Text | _Loop | JsonPath], document: Any) -> Iterable[str]:
    for part in parts:
        match part:
            case _Text(text):
                yield text
            case _Loop(path, body):
                for value in path.values(document):
                    yield from _rendered(body, value)
            case JsonPath():
                yield " ".join(map(_shown, part.values(document)))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"))
