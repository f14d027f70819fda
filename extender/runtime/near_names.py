"""The wording of faults: the name that may have been meant, and messages of pydantic in our own form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.7


def nearest(wrong: str, right: Iterable[str], alike: float = _ALIKE) -> str:
    """Returns the name in `right` that `wrong` resembles most, capitals aside; empty if it resembles none.

    Args:
        alike: how much it has to, up to 1: more where names begin alike.
    """
    by_lower = {name.lower(): name for name in right}
    near = get_close_matches(wrong.lower(), by_lower, n=1, cutoff=alike)
    return by_lower[near[0]] if near else ""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Returns ` (did you mean NAME?)`; empty if `wrong` resembles none of them."""
    near = nearest(wrong, right)
    return f" (did you mean {near}?)" if near else ""


def plainly(message: str) -> str:
    """Rewords a message of pydantic in the form of our own: "expected X"."""
    text = message.removeprefix("Value error, ")
    text = re.sub(r"Input should be (greater|less)", r"expected a value \1", text)
    return text.replace("Input should be", "expected")
