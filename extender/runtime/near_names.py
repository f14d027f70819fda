"""Improves messages about configuration mistakes: suggests similar names, and rewrites pydantic's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.7


def nearest(name: str, names: Iterable[str], similarity: float = _SIMILARITY) -> str | None:
    """Returns the name in `names` that is most similar to `name`, ignoring case; None if no name is similar.

    Args:
        similarity: the smallest similarity that counts, from 0 to 1. Choose a higher one if names share a prefix.
    """
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=similarity)
    return by_lower[matches[0]] if matches else None


def with_suggestion(message: str, name: str, names: Iterable[str]) -> str:
    """Appends ` (did you mean OTHER?)` to a message about a wrong name, if one of `names` is similar."""
    similar = nearest(name, names)
    return message if similar is None else f"{message} (did you mean {similar}?)"


def plainly(message: str) -> str:
    """Rewrites a message of pydantic so that it begins with "expected"."""
    text = message.removeprefix("Value error, ")
    text = re.sub(r"Input should be (greater|less)", r"expected a value \1", text)
    return text.replace("Input should be", "expected")
