"""Matches regular expressions in linear time by RE2, whose syntax and results CEL asks for; so does Go's regexp.

The author of a claim writes the expression, and matching with Python's `re` may take exponential time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import re2

from extender.devices.cel.values import EvaluationError

MAX_STEPS = 5_000_000  # of one call, at most a tenth of a second
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class Pattern:
    """A compiled regular expression.

    Its methods raise EvaluationError if the search may take more than MAX_STEPS steps.
    """

    def __init__(self, text: str) -> None:
        if r"\C" in text.replace(r"\\", ""):  # a single byte, which Go does not support
            raise re2.error(rb"invalid escape sequence: \C")
        self._compiled = re2.compile(_valid(text), _OPTIONS)

    def find(self, text: str) -> str | None:
        """Returns the first match; None if there is no match."""
        return next(self._matches(text), None)

    def find_all(self, text: str, most: int) -> list[str]:
        """Returns the texts of non-overlapping matches: at most `most`, or all if `most` is negative."""
        matches: list[str] = []
        for match in self._matches(text):
            if len(matches) == most:
                break
            matches.append(match)
        return matches

    def _matches(self, text: str) -> Iterator[str]:
        valid = _valid(text)
        steps, begin, last_end = 0, 0, -1
        matches = self._compiled.finditer(valid)
        while True:
            steps += self._compiled.programsize * (len(valid) - begin)
            if steps > MAX_STEPS:
                raise EvaluationError("operation cancelled: actual cost limit exceeded")
            match = next(matches, None)
            if match is None:
                return
            begin, end = match.span()
            if begin < end or begin != last_end:  # an empty match directly after another match is skipped, as in Go
                yield match[0]
            last_end = end


def _valid(text: str) -> str:
    return text.encode(errors="replace").decode()  # a YAML file may hold half of a surrogate pair


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """Returns the compiled pattern. Raises EvaluationError if RE2 would reject the pattern."""
    try:
        return Pattern(text)
    except re2.error as failure:
        raise EvaluationError(f"Illegal regex: {failure.args[0].decode(errors='replace')}") from None
