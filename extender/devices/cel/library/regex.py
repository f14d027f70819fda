"""Matches regular expressions in linear time, with the same results as RE2 and Go's regexp.

The author of a claim writes the expression, and matching with Python's `re` may take exponential time. So only the
parser of `re` is used. Syntax that RE2 does not support (look-around, references to groups) is rejected.
"""

from __future__ import annotations

import re._constants as op  # type: ignore[import-not-found] # the standard library has no public names for its parser
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from re import DOTALL as DOT_ALL
from re import IGNORECASE, MULTILINE, error
from typing import Any, NamedTuple

from extender.devices.cel.values import EvaluationError

MAX_INSTRUCTIONS = 10_000
MAX_STEPS = 1_000_000  # the most steps of one search
_MAX_REPEAT = 1000
_POSIX = {"[:alpha:]": "a-zA-Z", "[:digit:]": "0-9", "[:alnum:]": "a-zA-Z0-9", "[:upper:]": "A-Z", "[:lower:]": "a-z"}
_POSIX |= {"[:space:]": r"\s\v", "[:xdigit:]": "0-9a-fA-F", "[:word:]": r"\w", "[:punct:]": r"!-/:-@\[-`{-~"}
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CATEGORIES = {"DIGIT": frozenset("0123456789"), "SPACE": frozenset("\t\n\f\r "), "WORD": _WORD}


class _Instruction(NamedTuple):
    """An instruction of a compiled pattern. If its tests pass, the search continues at `targets`.

    Attributes:
        targets: the next instructions, by index, the preferred one first; empty if the pattern has matched.
        test: the next character must pass this test; None if the instruction reads no character.
        at: the position in the text must pass this test, as for `^`; None if every position passes.
    """

    targets: tuple[int, ...]
    test: Callable[[str], bool] | None = None
    at: Callable[[str, int], bool] | None = None


class Pattern:
    """A compiled regular expression."""

    def __init__(self, text: str) -> None:
        for name, members in _POSIX.items():
            text = text.replace(name, members)
        self._program: list[_Instruction] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            tree = parser.parse(text)
        self._flags: int = tree.state.flags
        self._start = self._sequence(tree, self._add(()))

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Returns the range of the first match that begins at `start` or later; None if there is no match."""
        match: tuple[int, int] | None = None
        threads: dict[int, int] = {}  # instruction -> where its match began; the preferred instruction comes first
        steps, seen = 0, set[int]()
        for position in range(start, len(text) + 1):
            if match is None:
                self._follow(threads, seen, self._start, position, text, position)
            steps += len(seen)
            if steps > MAX_STEPS:
                raise EvaluationError("operation cancelled: actual cost limit exceeded")
            following: dict[int, int] = {}
            seen = set()
            for index, began in threads.items():
                instruction = self._program[index]
                if not instruction.targets:
                    match = began, position
                    break
                if instruction.test is not None and position < len(text) and instruction.test(text[position]):
                    self._follow(following, seen, instruction.targets[0], began, text, position + 1)
            threads = following
            if match is not None and not threads:
                break
        return match

    def find_all(self, text: str, most: int) -> list[str]:
        """Returns the texts of non-overlapping matches: at most `most`, or all if `most` is negative."""
        matches: list[str] = []
        position, last_end = 0, -1
        while position <= len(text) and len(matches) != most:
            match = self.find(text, position)
            if match is None:
                break
            begin, end = match
            if begin < end or begin != last_end:  # an empty match directly after another match is skipped, as in Go
                matches.append(text[begin:end])
            last_end = end
            position = end if begin < end else end + 1
        return matches

    def _follow(
        self, threads: dict[int, int], seen: set[int], index: int, began: int, text: str, position: int
    ) -> None:
        """Adds to `threads` the instructions that can be reached from `index` without reading a character.

        `seen`: the instructions already reached at this position. `began`: the start of the match.
        """
        pending = [index]
        while pending:
            index = pending.pop()
            if index in seen:
                continue
            seen.add(index)
            instruction = self._program[index]
            if instruction.test is not None or not instruction.targets:
                threads[index] = began
            elif instruction.at is None or instruction.at(text, position):
                pending.extend(reversed(instruction.targets))

    # ---- compilation: it starts at the end of a pattern, because each part needs the index of its next instruction

    def _add(self, targets: Iterable[int], **more: Any) -> int:
        if len(self._program) >= MAX_INSTRUCTIONS:
            raise error("expression too large")
        self._program.append(_Instruction(tuple(targets), **more))
        return len(self._program) - 1

    def _sequence(self, parts: Any, then: int) -> int:
        for code, argument in reversed(list(parts)):
            then = self._part(code, argument, then)
        return then

    def _part(self, code: Any, argument: Any, then: int) -> int:
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return self._add((then,), test=self._test(code, argument))
        if code is op.SUBPATTERN:
            _, added, removed, parts = argument
            flags = self._flags
            self._flags = (flags | added) & ~removed
            start = self._sequence(parts, then)
            self._flags = flags
            return start
        if code is op.BRANCH:
            return self._add([self._sequence(parts, then) for parts in argument[1]])
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, parts = argument
            return self._repeat(least, most, parts, then, greedy=code is op.MAX_REPEAT)
        if code is op.AT:
            return self._add((then,), at=partial(_at, str(argument), bool(self._flags & MULTILINE)))
        raise error(f"unsupported: {str(code).lower()}")

    def _repeat(self, least: int, most: Any, parts: Any, then: int, *, greedy: bool) -> int:
        if least > _MAX_REPEAT or (most is not op.MAXREPEAT and most > _MAX_REPEAT):
            raise error("invalid repeat count")
        if most is op.MAXREPEAT:
            loop = self._add((then,))
            body = self._sequence(parts, loop)
            self._program[loop] = _Instruction((body, then) if greedy else (then, body))
            start = loop
        else:
            start = then
            for _ in range(most - least):
                body = self._sequence(parts, start)
                start = self._add((body, then) if greedy else (then, body))
        for _ in range(least):
            start = self._sequence(parts, start)
        return start

    def _test(self, code: Any, argument: Any) -> Callable[[str], bool]:
        if code is op.ANY:
            return (lambda _: True) if self._flags & DOT_ALL else (lambda mark: mark != "\n")
        members = argument if code is op.IN else [(op.LITERAL, argument)]
        negated = code is op.NOT_LITERAL or members[0][0] is op.NEGATE
        holds = partial(_is_member, [member for member in members if member[0] is not op.NEGATE])
        if self._flags & IGNORECASE:
            return lambda mark: (holds(mark.lower()) or holds(mark.upper())) is not negated
        return lambda mark: holds(mark) is not negated


def _is_member(members: list[Any], mark: str) -> bool:
    code = ord(mark)
    for kind, argument in members:
        if kind is op.LITERAL:
            is_in = code == argument
        elif kind is op.RANGE:
            is_in = argument[0] <= code <= argument[1]
        else:
            name = str(argument).removeprefix("CATEGORY_")
            is_in = (mark in _CATEGORIES[name.removeprefix("NOT_")]) is not name.startswith("NOT_")
        if is_in:
            return True
    return False


def _at(place: str, multiline: bool, text: str, position: int) -> bool:
    name = place.removeprefix("AT_")
    if name.endswith("BOUNDARY"):
        around = [0 <= index < len(text) and text[index] in _WORD for index in (position - 1, position)]
        return (around[0] is not around[1]) is (name == "BOUNDARY")
    if name.startswith("BEGINNING"):
        return position == 0 or (multiline and name == "BEGINNING" and text[position - 1] == "\n")
    return position == len(text) or (multiline and name == "END" and text[position] == "\n")


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Returns the compiled pattern. Raises EvaluationError if RE2 would reject the pattern."""
    try:
        return Pattern(text)
    except (error, OverflowError, RecursionError) as failure:
        raise EvaluationError(f"Illegal regex: {failure}") from None
