"""Improves messages about configuration mistakes: suggests similar names, and rewrites pydantic's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

_SIMILARITY = 0.7
_MOST_NAMED = 3


def nearest(name: str, names: Iterable[str], similarity: float = _SIMILARITY) -> list[str]:
    """Returns the names that are most similar to `name`, ignoring case; [] if none is similar, or too many are equally.

    Args:
        similarity: the smallest similarity that counts, from 0 to 1. Choose a higher one if names share a prefix.
    """
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), by_lower, n=_MOST_NAMED + 1, cutoff=similarity)
    ratios = [SequenceMatcher(None, match, name.lower()).ratio() for match in matches]
    best = [match for match, ratio in zip(matches, ratios, strict=True) if ratio == ratios[0]]
    return [by_lower[lower] for lower in by_lower if lower in best] if len(best) <= _MOST_NAMED else []


def did_you_mean(names: Sequence[str]) -> str:
    """Returns ` (did you mean A or B?)`, to be appended to a message about a wrong name; "" without names."""
    if not names:
        return ""
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    *others, last = [*names[:_MOST_NAMED], *more]
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)"


def with_suggestion(message: str, name: str, names: Iterable[str]) -> str:
    """Appends ` (did you mean OTHER?)` to a message about a wrong name, if some of `names` are similar."""
    return message + did_you_mean(nearest(name, names))


def plainly(message: str) -> str:
    """Rewrites a message of pydantic so that it begins with "expected"."""
    text = message.removeprefix("Value error, ")
    text = re.sub(r"Input should be (greater|less)", r"expected a value \1", text)
    return text.replace("Input should be", "expected")
