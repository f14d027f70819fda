"""Random choices that a seed repeats."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Dice(Random):
    """A Random with the words of the generator.

    Attributes:
        faults: what was made wrong on purpose, by name; the API server need not refuse it.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.faults: list[str] = []
        self._may_spoil = self.chance(50)

    def chance(self, percent: float) -> bool:
        return self.random() * 100 < percent

    def one(self, *options: T) -> T:
        return self.choice(options)

    def maybe(self, percent: float, **fields: Any) -> dict[str, Any]:
        """Returns the fields, or none of them."""
        return fields if self.chance(percent) else {}

    def spoil(self, thing: Any, percent: float, *ways: Callable[[Any], None]) -> None:
        """Makes `thing` wrong in one of the ways, whose names are those of the functions."""
        if self._may_spoil and self.chance(percent):
            way = self.choice(ways)
            try:
                way(thing)
            except (KeyError, IndexError, TypeError):
                return  # the thing has no such part
            self.faults.append(way.__name__)
