"""Reads users' YAML as kubectl and kube-scheduler do, but with limited depth and aliases.

Scalars have the types that Go's YAML 1.1 library gives them, and pass through JSON there: dates stay strings, and 16.0
is the number 16. Keys become strings after that: in `1.10: a` the key is "1.1", in `on: a` it is "true". One exception:
`y` and `n` are text, because they are good names, unless `load_first` reads them.
Source: go.yaml.in/yaml/v2 resolve.go, sigs.k8s.io/yaml.

Values are built from the parser's events, because libyaml's composer overflows the stack on deep nesting and ends the
process (seen with 300,000 brackets).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import yaml

from extender.errors import MalformedInput

DEEPEST = 100
MOST_FROM_ALIASES = 100_000  # the most values that aliases may repeat (a "billion laughs" attack repeats a billion)

_LONGEST_PROBLEM, _MOST_DIGITS = 300, 1000
_CORE = "tag:yaml.org,2002:"
_NodeEvent = Any  # PyYAML's type stubs do not declare the attributes of events
_SYNTAX_ERRORS = (yaml.parser.ParserError, yaml.scanner.ScannerError)
_MERGE = "<<"
_TAGS = frozenset(f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_WORDS: Mapping[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{word: value for words, value in (("yes true on", True), ("no false off", False)) for word in words.split()
       for word in (word, word.capitalize(), word.upper())},
}  # fmt: skip
_LETTERS = {"y": True, "Y": True, "n": False, "N": False}
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_PLACES = 21  # Go writes larger whole numbers with an exponent


def load(text: bytes | str) -> object:
    """Returns the only document in `text`; None if `text` is empty.

    Raises:
        MalformedInput: `text` has a mistake. The message is one line, with the number of the faulty line if known.
    """
    documents = load_all(text)
    document = next(documents, None)
    if next(documents, None) is not None:
        raise MalformedInput("more than one document")
    return document


def load_first(text: bytes | str) -> tuple[object, bool]:
    """Returns the first document in `text`, and True if more follow. Raises MalformedInput, as `load` does.

    This is how kube-scheduler reads its configuration: `y` and `n` without quotes are true and false.
    """
    documents = load_all(text, _LETTERS)
    document = next(documents, None)
    try:
        return document, next(documents, None) is not None
    except MalformedInput:
        return document, True


def load_all(
    text: bytes | str, letters: Mapping[str, object] = MappingProxyType({}), repeated: list[str] | None = None
) -> Iterator[object]:
    """Yields the documents in `text`. Raises MalformedInput, as `load` does, when it reaches a mistake.

    Args:
        letters: further words without quotes that are not text -> their values.
        repeated: gets each key that a mapping has already, with its line; its last value counts. Without it, such a key
            is a mistake, also if it overrides a merged one: kube-scheduler refuses that in its configuration.
    """
    try:
        yield from _Builder(yaml.parse(text, yaml.CSafeLoader), letters, repeated).documents()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        note = " (this is not valid YAML)" if isinstance(error, _SYNTAX_ERRORS) else ""
        raise MalformedInput(f"{line}{_cut(error.problem)}{note}") from None
    except yaml.reader.ReaderError as error:
        raise MalformedInput(
            f"position {error.position}: this byte is not allowed in YAML; is it a text file?"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError means a wrong encoding
        raise MalformedInput(_cut(" ".join(str(error).split()))) from None


class _Builder:
    """Builds the values of one YAML stream from the parser's events."""

    def __init__(self, events: Iterator[_NodeEvent], letters: Mapping[str, object], repeated: list[str] | None) -> None:
        self._events = events
        self._letters = letters
        self._repeated = repeated
        self._anchors: dict[str, tuple[object, int]] = {}  # anchor -> (its value, the number of values in it)
        self._built = 0
        self._from_aliases = 0

    def documents(self) -> Iterator[object]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                yield self._value(next(self._events), 0)

    def _value(self, event: _NodeEvent, depth: int) -> object:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag not in (None, "!") and event.tag not in _TAGS:
            raise _fault(event, f"the tag {event.tag} is not allowed")
        if depth > DEEPEST:
            raise _fault(event, f"nested deeper than {DEEPEST} levels")
        before = self._built
        value = self._node(event, depth)
        self._built += 1
        if event.anchor:
            self._anchors[event.anchor] = value, self._built - before
        return value

    def _node(self, event: _NodeEvent, depth: int) -> object:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth + 1)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth + 1)
        if event.tag not in (None, "!", f"{_CORE}str"):
            return _scalar(event)
        if not event.implicit[0]:
            return event.value
        return self._letters[event.value] if event.value in self._letters else _scalar(event)

    def _mapping(self, depth: int) -> dict[str, object]:
        mapping: dict[str, object] = {}
        merged: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, depth)
            if key in mapping or (self._repeated is None and key in merged):
                if self._repeated is None:
                    raise _fault(event, f"duplicate key {key}")
                self._repeated.append(f"{key} in line {event.start_mark.line + 1}")
            value = self._value(next(self._events), depth)
            if key == _MERGE and event.implicit[0]:
                for each in value if isinstance(value, list) else [value]:
                    if not isinstance(each, dict):
                        raise _fault(event, "expected a mapping, or a list of mappings, after the merge key <<")
                    if self._repeated is None and (twice := each.keys() & {*mapping, *merged}):
                        raise _fault(event, f"duplicate key {min(twice)}")
                    merged = {**each, **merged}
            else:
                mapping[key] = value
        return {**merged, **mapping} if merged else mapping

    def _key(self, event: _NodeEvent, depth: int) -> str:
        """Returns the key as text, as sigs.k8s.io/yaml writes it into JSON."""
        value = self._node(event, depth) if isinstance(event, yaml.ScalarEvent) else None
        if value is None:
            raise _fault(event, "expected text as the key")
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def _sequence(self, depth: int) -> list[object]:
        sequence = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            sequence.append(self._value(event, depth))
        return sequence

    def _alias(self, event: _NodeEvent) -> object:
        if event.anchor not in self._anchors:
            raise _fault(event, f"no anchor {event.anchor} before this alias")
        value, size = self._anchors[event.anchor]
        self._built += size
        self._from_aliases += size
        if self._from_aliases > MOST_FROM_ALIASES:
            raise _fault(event, f"aliases repeat more than {MOST_FROM_ALIASES} values")
        return value


def _scalar(event: _NodeEvent) -> object:
    if len(event.value) > _MOST_DIGITS and _INTEGER.fullmatch(event.value.replace("_", "")):
        raise _fault(event, f"a number with more than {_MOST_DIGITS} digits")  # Python may be unable to print it
    if _NOT_A_NUMBER.fullmatch(event.value):
        raise _fault(event, f"{event.value} is not a number that JSON has")
    return _plain(event.value)


@lru_cache(maxsize=4096)
def _plain(text: str) -> object:
    """Returns the value of a scalar without quotes: None, a boolean, a number or a string."""
    if text in _WORDS:
        return _WORDS[text]
    digits = text.replace("_", "")
    if text[0] in "+-0123456789" and _INTEGER.fullmatch(digits):
        is_octal = re.fullmatch(r"[-+]?0[0-7]+", digits)
        return int(digits, 8) if is_octal else int(digits, 0)
    if text[0] in "+-.0123456789" and _FLOAT.fullmatch(digits):
        number = float(digits)
        if math.isinf(number):
            return text
        return int(number) if number.is_integer() and abs(number) < 10**_MOST_PLACES else number
    return text


def _cut(problem: object) -> str:
    """Returns only the beginning of an error message, because it may quote the whole document."""
    text = str(problem)
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}..."


def _fault(event: _NodeEvent, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
