"""Reads maps and lists of manifests, whose fields may be missing or null, and builds paths for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Fields = Mapping[str, Any]


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def fields(parent: Fields, *keys: str) -> Fields:
    """Returns the map that the keys lead to, such as spec.affinity; an empty map if it is missing or null."""
    value: Any = parent
    for key in keys:
        value = value.get(key) or {}
    return value if isinstance(value, Mapping) else {}


def items(parent: Fields, key: str, path: str) -> Iterator[tuple[str, Fields]]:
    """Yields each map in a list together with its path. A null in the list becomes an empty map."""
    for number, item in enumerate(parent.get(key) or ()):
        yield f"{join(path, key)}[{number}]", item or {}


def texts(parent: Fields, key: str) -> list[str]:
    return [text or "" for text in parent.get(key) or ()]


def names(
    parent: Fields, key: str, path: str, fault: Callable[[str], str | None], seen: set[str] | None = None
) -> Iterator[str]:
    """Yields the faults in the names of a list's items: malformed names and duplicates.

    Args:
        fault: checks the form of a name.
        seen: the names in earlier lists, which also count as duplicates; the names in this list are added.
    """
    seen = set() if seen is None else seen
    for here, item in items(parent, key, path):
        name = item.get("name") or ""
        yield from with_path(join(here, "name"), fault(name) or (f"{name!r} is used twice" if name in seen else None))
        seen.add(name)


def with_path(path: str, fault: str | None) -> Iterator[str]:
    """Yields "path: fault"; yields nothing if `fault` is None."""
    if fault is not None:
        yield f"{path}: {fault}"
