"""Reads manifests: maps and lists in which every field may be missing or null, and paths to say where a fault is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Fields = Mapping[str, Any]


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def fields(parent: Fields, *keys: str) -> Fields:
    """Returns the map at the end of the keys; an empty one if it is missing."""
    value: Any = parent
    for key in keys:
        value = value.get(key) or {}
    return value if isinstance(value, Mapping) else {}


def items(parent: Fields, key: str, path: str) -> Iterator[tuple[str, Fields]]:
    """Yields (path, map) for each map in a list; an empty map for null."""
    for number, item in enumerate(parent.get(key) or ()):
        yield f"{join(path, key)}[{number}]", item or {}


def texts(parent: Fields, key: str) -> list[str]:
    return [text or "" for text in parent.get(key) or ()]


def at(path: str, fault: str | None) -> Iterator[str]:
    """Yields the fault with its path, if there is one."""
    if fault is not None:
        yield f"{path}: {fault}"
