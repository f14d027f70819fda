"""Defines containers that release the memory of deleted keys, because one pod may add 100,000 keys.

Also has functions for any dict: a cache with a limit, counts without zeros, and numbers for distinct values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, MutableMapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_WORTH_SHRINKING = 1024


def cached(values: OrderedDict[K, V], key: K, create: Callable[[], V], most: int) -> V:
    """Returns the value with this key, created if missing; beyond `most`, the one unused for longest is dropped."""
    if key not in values:
        values[key] = create()
        if len(values) > most:
            values.popitem(last=False)
    values.move_to_end(key)
    return values[key]


def adjust(counts: MutableMapping[K, int], key: K, change: int) -> None:
    """Adds `change` to the count of the key; a count of 0 is dropped."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]


def drop_empty(collections: MutableMapping[K, Any], key: K) -> None:
    """Drops the key if nothing is left of its collection."""
    if not collections[key]:
        del collections[key]


class Numbers(Generic[V]):
    """Gives each distinct value a number, which is its index in `values`."""

    def __init__(self, values: Iterable[V] = ()) -> None:
        self.values = list(values)
        self._number_of = {value: number for number, value in enumerate(self.values)}

    def of(self, value: V) -> int:
        number = self._number_of.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class ShrinkingDict(dict[K, V]):
    """A dict that releases memory after most of its keys are deleted. Python's dict never does this."""

    def __init__(self) -> None:
        super().__init__()
        self._most_keys = 0  # the largest number of keys since the dict was last rebuilt

    def __delitem__(self, key: K) -> None:
        self._most_keys = max(self._most_keys, len(self))
        super().__delitem__(key)
        self._shrink()

    def pop(self, key: K, *default: Any) -> Any:
        self._most_keys = max(self._most_keys, len(self))
        value = super().pop(key, *default)
        self._shrink()
        return value

    def _shrink(self) -> None:
        if self._most_keys > _WORTH_SHRINKING and len(self) < self._most_keys // 4:
            self._most_keys = len(self)
            items = list(self.items())
            self.clear()
            self.update(items)


class Filing(Generic[K, V]):
    """A mapping from each key to a set of items.

    It saves memory by storing a single item without a container, so an item must not be a dict.
    """

    def __init__(self) -> None:
        self._items: ShrinkingDict[K, V | dict[V, None]] = ShrinkingDict()

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._items)

    def add(self, key: K, item: V) -> None:
        filed = self._items.get(key)
        if filed is None:
            self._items[key] = item
        elif isinstance(filed, dict):
            filed[item] = None
        elif filed != item:
            self._items[key] = {filed: None, item: None}

    def remove(self, key: K, item: V) -> None:
        """Removes an item that was added under this key."""
        filed = self._items[key]
        if isinstance(filed, dict):
            del filed[item]
            if len(filed) == 1:
                self._items[key] = next(iter(filed))
        else:
            del self._items[key]

    def get(self, key: K) -> Collection[V]:
        filed = self._items.get(key)
        if filed is None:
            return ()
        return filed.keys() if isinstance(filed, dict) else (filed,)

    def among(self, keys: frozenset[K]) -> Iterable[K]:
        """Returns all of `keys` that have items, and possibly other keys of `keys`.

        The time for this grows with the number of given keys or of stored keys, whichever is smaller.
        """
        return keys if len(keys) <= len(self._items) else keys.intersection(self._items)
