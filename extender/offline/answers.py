"""Defines the base of all answers: the fields of an answer are the keys of its JSON document.

The published schemas come from the same fields (`extender.cli.schemas`). pandas is an optional dependency, which only
this module imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from extender.errors import ExtenderError
from extender.offline.html import rendering

if TYPE_CHECKING:
    import pandas as pd


class Documented(msgspec.Struct, frozen=True, rename="camel"):
    """An answer, or a part of one. The section "Attributes" of its docstring describes its keys in the schema."""

    def to_dict(self) -> dict[str, Any]:
        """Returns a mapping of the attributes, ready for JSON; names are written like `runnerUp`."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # `to_builtins` would keep tuples
        return document


_Result = TypeVar("_Result", bound=Documented)


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns the rows as a DataFrame; nested mappings become columns such as `requested.cpu`.

    Args:
        columns: the first columns, which the frame has even without rows.

    Raises:
        ExtenderError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ExtenderError("to_frame needs pandas: pip install 'podseat[pandas]'") from None
    made = pd.json_normalize(list(map(dict, rows)))
    if columns is None:
        return made
    return made.reindex(columns=[*columns, *(each for each in made.columns if each not in columns)])


class Listing(list[_Result]):
    """A list of results that a notebook shows as a table."""

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each result. Raises ExtenderError if pandas is not installed."""
        return frame(each.to_dict() for each in self)

    def _repr_html_(self) -> str:
        documents = [each.to_dict() for each in self]
        head = list(documents[0]) if documents else []
        rows = [[_shown(value) for value in document.values()] for document in documents]
        return rendering.part("table.html", {"title": f"{len(self)} rows", "head": head, "rows": rows})


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return "" if value is None else str(value)
