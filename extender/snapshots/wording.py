"""Rewrites msgspec's errors of decoding in plain words: the path, the expected type, and the value found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_KEY = re.compile(r".* - at `key` in `\$(.*)`")
_MISMATCH = re.compile(r"Expected `([^`]*)`(?:, got `[^`]*`)?(?: ([<>]=?) (\S+))?(?: - at `\$(.*)`)?")
_LIMITS = {"<=": " of at most ", ">=": " of at least "}
_OTHER = re.compile(r"(.*?)(?: - at `\$(.*)`)?")
_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
# msgspec's name of a type -> its name in words, and the Python types.
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text", (str,)),
    "bool": ("true or false", (bool,)),
    "object": ("a mapping", (dict,)),
    "array": ("a list", (list,)),
    "null": ("", (type(None),)),
}
_QUANTITY = {"int", "float", "str"}
_TIME = "Invalid RFC3339 encoded datetime"
_LONGEST = 40


def plain(error: msgspec.ValidationError, document: Any) -> str:
    """Returns the error as "path: expected TYPE, got VALUE"; `document` is the value that could not be decoded."""
    text = str(error)
    if match := _KEY.fullmatch(text):
        path, value = _found(document, match[1], [])
        key = next((each for each in value if not isinstance(each, str)), None)
        return f"{path}: expected text as the key (put it in quotes), got {_shown(key)}"
    if match := _MISMATCH.fullmatch(text):
        kinds = match[1].split(" | ")
        path, value = _found(document, match[4] or "", kinds)
        limit = f"{_LIMITS.get(match[2], f' {match[2]} ')}{match[3]}" if match[2] else ""
        return f"{path or 'the object'}: expected {_expected(kinds, value)}{limit}, got {_shown(value)}"
    match = _OTHER.fullmatch(text)
    assert match is not None  # the pattern matches any line
    path, value = _found(document, match[2] or "", [])
    if match[1] == _TIME:
        return f"{path}: expected a time, like 2026-11-25T09:00:00Z, got {_shown(value)}"
    return f"{path or 'the object'}: {match[1][:1].lower()}{match[1][1:]}"


def _expected(kinds: Sequence[str], value: object) -> str:
    if {*kinds} >= _QUANTITY:
        return "a quantity, like 100m or 2Gi"
    words = " or ".join(_TYPES[kind][0] if kind in _TYPES else kind for kind in kinds if kind != "null")
    needs_quotes = words == "text" and isinstance(value, bool | int | float)
    return f"{words} (put it in quotes)" if needs_quotes else words


def _found(document: Any, path: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """Returns the complete path, and the value at this path. msgspec writes `...` instead of a map's key."""
    value, names = document, []
    parts = [match[1] or match[2] for match in _PART.finditer(path)]
    for position, part in enumerate(parts):
        if part == "...":
            part = _key(value, parts[position + 1 :], kinds)
            names.append(f".{part}")
        else:
            names.append(f"[{part}]" if isinstance(value, list) else f".{part}")
        value = _inner(value, part)
    return "".join(names).removeprefix("."), value


def _key(value: Any, rest: Sequence[str], kinds: Sequence[str]) -> str:
    """Returns the key of the map's first value that is wrong at the path `rest`; "*" if no value is wrong.

    A value is wrong if its type is not in `kinds`.
    """
    keys = list(_wrong(value, rest, kinds)) if isinstance(value, dict) else []
    return str(keys[0]) if keys else "*"


def _wrong(value: Mapping[Any, Any], rest: Sequence[str], kinds: Sequence[str]) -> Iterator[object]:
    for key, inner in value.items():
        for part in rest:
            inner = _inner(inner, part)
        if not any(_is_of(inner, kind) for kind in kinds):
            yield key


def _inner(value: Any, part: str) -> Any:
    if isinstance(value, list) and part.isdecimal():
        return value[int(part)] if int(part) < len(value) else None
    return value.get(part) if isinstance(value, dict) else None


def _is_of(value: object, kind: str) -> bool:
    types = _TYPES.get(kind, ("", ()))[1]
    return isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except ValueError:  # Python prints no number with more than 4,300 digits
        return "a number that is too long to print"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
