"""The other objects that rules look at, by kind and key (`namespace/name`, or `name`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from extender.model.meta import Object

T = TypeVar("T", bound=Object)


class Objects:
    """Objects by kind and key. A kind's version tells when what was derived from its objects is out of date."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Object]] = {}
        self.versions: dict[str, int] = {}

    def set(self, kind: str, obj: Object) -> None:
        """Adds or replaces."""
        self._kinds.setdefault(kind, {})[obj.key] = obj
        self.versions[kind] = self.versions.get(kind, 0) + 1

    def remove(self, kind: str, key: str) -> None:
        """Removes; an unknown key is ignored."""
        if self._kinds.get(kind, {}).pop(key, None) is not None:
            self.versions[kind] += 1

    def all(self, kind: type[T]) -> Mapping[str, T]:
        """Every object of a kind, by key."""
        return cast("Mapping[str, T]", self._kinds.get(kind.__name__, {}))

    def get(self, kind: type[T], key: str) -> T | None:
        """The object of this kind and key, if there is one."""
        return self.all(kind).get(key)

    def version(self, kind: type[Object]) -> int:
        """How often objects of this kind have changed."""
        return self.versions.get(kind.__name__, 0)
