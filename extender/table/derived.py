"""What rules have worked out from the table and keep for the next pod."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Derived:
    """Values by key, each with the version of what it was worked out from."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Hashable, Any]] = {}

    def get(self, key: Hashable, version: Hashable, make: Callable[[], T]) -> T:
        """The value kept under `key`, made anew if the version is another. A key always stands for the same type."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != version:
            kept = self._kept[key] = version, make()
        value: T = kept[1]
        return value
