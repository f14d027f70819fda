"""Text for people: tables, and amounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Cells = Sequence[str]
MOST_ROWS = 20
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def aligned(lines: Sequence[Cells], gap: str = "  ") -> Iterator[str]:
    """The lines with their columns under each other."""
    shown = [[printable(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        yield gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def cut(lines: Sequence[Cells], most: int | None, what: str = "") -> Iterator[str]:
    """The head, `most` lines after it (None: all), and how many more there are, of what."""
    shown = lines if most is None else lines[: most + 1]
    yield from aligned(shown)
    if len(lines) > len(shown):
        yield f"and {len(lines) - len(shown)} more{what}: see -o wide"


def printable(text: str) -> str:
    """Objects come from anyone: what could move the cursor is shown as an escape."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def age(seconds: float) -> str:
    """The age in the largest whole unit, as kubectl shows it: 45s, 12m, 3h, 2d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def quantity(resource: str, amount: int) -> str:
    """The exact quantity: `1500m` and `2` of cpu, `1536Mi` of memory."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if "/" in resource or resource == "pods" or not amount:
        return str(amount)
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def rounded(resource: str, amount: int) -> str:
    """The quantity to be read, with two decimals at most: `5.2`, `3.75Gi`."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    size, power = float(amount), 0
    if "/" not in resource and resource != "pods":
        while abs(size) >= 1024 and power < len(_BINARY) - 1:
            size, power = size / 1024, power + 1
    return f"{round(size, 2):g}{_BINARY[power]}" if size < 1e6 else str(amount)


def listed(words: Iterable[str], most: int = 3) -> str:
    """The first few, and how many more there are."""
    each = list(words)
    more = f" and {len(each) - most} more" if len(each) > most else ""
    return ", ".join(each[:most]) + more
