"""Aligned columns for a terminal; what objects are called cannot steer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cells = Sequence[str]


def aligned(lines: Sequence[Cells]) -> Iterator[str]:
    """The lines with their columns under each other."""
    shown = [[printable(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """Objects come from anyone: what could move the cursor is shown as an escape."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
