"""The other objects that rules look at, by kind and key (`namespace/name`, or `name`)."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sequence
from typing import TypeVar, cast

from extender.model.meta import Object

T = TypeVar("T", bound=Object)
_REMEMBERED = 4096


class Objects:
    """Objects by kind and key. A kind's version tells when what was derived from its objects is out of date."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Object]] = {}
        self._changed: dict[str, list[str]] = {}  # the keys of the latest changes, one a version
        self.versions: dict[str, int] = {}

    def set(self, kind: str, obj: Object) -> None:
        """Adds or replaces."""
        self._kinds.setdefault(kind, {})[obj.key] = obj
        self._note(kind, obj.key)

    def remove(self, kind: str, key: str) -> None:
        """Removes; an unknown key is ignored."""
        if self._kinds.get(kind, {}).pop(key, None) is not None:
            self._note(kind, key)

    def all(self, kind: type[T]) -> Mapping[str, T]:
        """Every object of a kind, by key."""
        return cast("Mapping[str, T]", self._kinds.get(kind.__name__, {}))

    def kinds(self) -> ItemsView[str, Mapping[str, Object]]:
        """Every kind with its objects by key."""
        kinds: Mapping[str, Mapping[str, Object]] = self._kinds
        return kinds.items()

    def get(self, kind: type[T], key: str) -> T | None:
        """The object of this kind and key, if there is one."""
        return self.all(kind).get(key)

    def version(self, kind: type[Object]) -> int:
        """How often objects of this kind have changed."""
        return self.versions.get(kind.__name__, 0)

    def changed_since(self, kind: type[Object], version: int) -> Sequence[str] | None:
        """The keys of all that has changed after `version`, oldest first; None: more than is remembered."""
        changes = self.version(kind) - version
        remembered = self._changed.get(kind.__name__, [])
        return remembered[len(remembered) - changes :] if changes <= len(remembered) else None

    def _note(self, kind: str, key: str) -> None:
        self.versions[kind] = self.versions.get(kind, 0) + 1
        changed = self._changed.setdefault(kind, [])
        changed.append(key)
        if len(changed) > 2 * _REMEMBERED:
            del changed[:_REMEMBERED]
