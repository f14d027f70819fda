"""The objects of other kinds that rules read, by kind and key (`namespace/name`, or `name`)."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from typing import TypeVar, cast

from extender.model.meta import Object
from extender.table.journal import Journal

T = TypeVar("T", bound=Object)


class Objects:
    """Objects by kind and key. The journal is told of each change, under the kind's name."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kinds: dict[str, dict[str, Object]] = {}

    def set(self, kind: str, obj: Object) -> None:
        """Adds or replaces an object."""
        self._kinds.setdefault(kind, {})[obj.key] = obj
        self._journal.note(kind, obj.key)

    def remove(self, kind: str, key: str) -> None:
        """Removes an object; an unknown key is ignored."""
        if self._kinds.get(kind, {}).pop(key, None) is not None:
            self._journal.note_removed(kind, key)

    def all(self, kind: type[T]) -> Mapping[str, T]:
        """Returns every object of a kind, by key."""
        return cast("Mapping[str, T]", self._kinds.get(kind.__name__, {}))

    def kinds(self) -> ItemsView[str, Mapping[str, Object]]:
        """Returns every kind with its objects by key."""
        kinds: Mapping[str, Mapping[str, Object]] = self._kinds
        return kinds.items()

    def get(self, kind: type[T], key: str) -> T | None:
        """Returns the object of this kind and key, if there is one."""
        return self.all(kind).get(key)
