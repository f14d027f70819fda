"""Selectors and label sets brought together without trying every pair.

A selector that wants one of some values of a label is filed under those (key, value) pairs, and a label set under all
its pairs; only what shares a pair is worth trying. Few selectors want nothing of the kind, and those are always tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from extender.model.selectors import Selector

T = TypeVar("T")
Pair = tuple[str, str]


def filing_pairs(selector: Selector) -> list[Pair] | None:
    """Pairs of one key of which a label set must have one for the selector to match; None: no such pairs are known."""
    if selector.nothing:
        return []
    wanted = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    if not wanted:
        return None
    narrowest = min(wanted, key=lambda requirement: len(requirement.values))
    return [(narrowest.key, value) for value in narrowest.values]


class SelectorIndex(Generic[T]):
    """Items by the selector that they go with; asked with labels."""

    def __init__(self) -> None:
        self._filed: dict[Pair, dict[T, None]] = {}
        self._unfiled: dict[T, None] = {}

    def add(self, selector: Selector, item: T) -> None:
        pairs = filing_pairs(selector)
        if pairs is None:
            self._unfiled[item] = None
        for pair in pairs or ():
            self._filed.setdefault(pair, {})[item] = None

    def remove(self, selector: Selector, item: T) -> None:
        """Takes back an `add`."""
        pairs = filing_pairs(selector)
        if pairs is None:
            del self._unfiled[item]
        for pair in pairs or ():
            _unfile(self._filed, pair, item)

    def candidates(self, labels: Iterable[Pair]) -> Iterator[T]:
        """Every item whose selector matches `labels`, and some whose selector does not; each once."""
        yield from self._unfiled
        for pair in labels:
            yield from self._filed.get(pair, ())


class LabelIndex(Generic[T]):
    """Items by the labels that they have; asked with a selector."""

    def __init__(self) -> None:
        self._filed: dict[Pair, dict[T, None]] = {}
        self._all: dict[T, None] = {}

    def add(self, labels: Iterable[Pair], item: T) -> None:
        self._all[item] = None
        for pair in labels:
            self._filed.setdefault(pair, {})[item] = None

    def remove(self, labels: Iterable[Pair], item: T) -> None:
        """Takes back an `add`."""
        del self._all[item]
        for pair in labels:
            _unfile(self._filed, pair, item)

    def candidates(self, selector: Selector) -> Collection[T]:
        """Every item whose labels the selector matches, and some that it does not match; each once."""
        pairs = filing_pairs(selector)
        if pairs is None:
            return self._all
        return [item for pair in pairs for item in self._filed.get(pair, ())]


def _unfile(filed: dict[Pair, dict[T, None]], pair: Pair, item: T) -> None:
    del filed[pair][item]
    if not filed[pair]:
        del filed[pair]
