"""Formats text for people, such as tables, lists and amounts, for commands and web pages.

Improves messages about configuration mistakes: suggests similar names, and rewrites pydantic's messages.
Reads what a class says of its attributes from its docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from difflib import SequenceMatcher, get_close_matches

Cells = Sequence[str]
MOST_ROWS = 20
_MOST_DIGITS = 18
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SIMILARITY = 0.7
_MOST_NAMED = 3
_ATTRIBUTES = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {5,}.+)*)", re.MULTILINE)


def whole_number(text: str) -> int | None:
    """Returns the number that `text` writes in ASCII digits; None for other text, and for more than 18 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def aligned(lines: Sequence[Cells], gap: str = "  ") -> Iterator[str]:
    """Yields the lines with their cells padded into columns."""
    printed = [[printable(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*printed, strict=True)]
    for line in printed:
        yield gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def cut(lines: Sequence[Cells], most: int | None, what: str = "") -> Iterator[str]:
    """Yields the heading and at most `most` lines, then the number of lines left out.

    The last line is for example `and 5 more pods: use -o wide`. If `most` is None, all lines are yielded.
    """
    printed = lines if most is None else lines[: most + 1]
    yield from aligned(printed)
    if len(lines) > len(printed):
        yield f"and {len(lines) - len(printed)} more{what}: use -o wide"


def section(head: Cells, rows: Iterable[Cells], most: int | None = None, what: str = "") -> Iterator[str]:
    """Yields an empty line, then a table as `cut` does; yields nothing if there are no rows."""
    lines = [head, *rows]
    if len(lines) > 1:
        yield ""
        yield from cut(lines, most, what)


def printable(text: str) -> str:
    """Returns the text with control characters escaped, because names in a cluster may contain any character."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def age(seconds: float) -> str:
    """Returns an age in the largest whole unit, as kubectl shows it: 45s, 12m, 3h, 2d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def age_of(time: datetime, now: datetime) -> str:
    """Returns the time from `time` to `now` as `age` does; 0s if `time` is in the future."""
    return age(max((now - time).total_seconds(), 0))


def go_duration(seconds: float) -> str:
    """Returns a duration as Go prints it (time.Duration.String): 0s, 500ms, 1.5s, 1m30s, 1h0m0s."""
    nanos = round(seconds * 1e9)
    for unit, length in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if 0 < nanos < 1000 * length:
            return f"{_decimal(nanos, length)}{unit}"
    minutes, nanos = divmod(nanos, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    prefix = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{prefix}{_decimal(nanos, 10**9)}s"


def _decimal(amount: int, unit: int) -> str:
    text = format(Decimal(amount) / unit, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(resource: str, amount: int) -> str:
    """Formats an amount of a resource exactly: `1500m` or `2` for cpu, `1536Mi` for memory."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if "/" in resource or resource == "pods" or not amount:
        return str(amount)
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def rounded(resource: str, amount: int) -> str:
    """Formats an amount of a resource with at most two decimals: `5.2`, `3.75Gi`."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    size, power = float(amount), 0
    if "/" not in resource and resource != "pods":
        while abs(size) >= 1024 and power < len(_BINARY) - 1:
            size, power = size / 1024, power + 1
    return f"{round(size, 2):g}{_BINARY[power]}" if size < 1e6 else str(amount)


def distinguishable(resource: str, *amounts: int) -> list[str]:
    """Formats several amounts of a resource: rounded, or exactly if different amounts would look equal."""
    texts = [rounded(resource, amount) for amount in amounts]
    is_clear = len(set(texts)) == len(set(amounts))
    return texts if is_clear else [quantity(resource, amount) for amount in amounts]


def counted(number: int, noun: str) -> str:
    """Returns the number with the noun in the singular or plural: `1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(words: Iterable[str], most: int = 3) -> str:
    """Returns the first `most` words, and how many more there are: `a, b, c and 2 more`."""
    every = list(words)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


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


def attributes_in(docstring: str | None) -> dict[str, str]:
    """Returns the text of each name below "Attributes:" in a docstring, in one line."""
    texts = _ATTRIBUTES.findall(inspect.cleandoc(docstring or ""))
    return {name: " ".join(text.split()) for names, text in texts for name in names.split(", ")}
