"""Answers as small HTML tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A caption and a table; every text is escaped."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
