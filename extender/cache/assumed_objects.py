"""Objects as they will be once what was decided about them is written. Source: upstream util/assumecache.

What is assumed stands before what the watch told, until the watch tells of something newer. Versions of a kind are
numbers that grow (KEP-5504).
"""

from __future__ import annotations

from extender.cache.changes import Reference
from extender.model.meta import Object


class AssumedObjects:
    """The assumptions by kind and key, each with the version from which on the watch knows better."""

    def __init__(self) -> None:
        self._assumed: dict[Reference, tuple[Object, int]] = {}

    def get(self, kind: str, key: str) -> Object | None:
        """Returns what is assumed of the object, if anything is."""
        return self._assumed.get((kind, key), (None, 0))[0]

    def assume(self, obj: Object) -> None:
        """Assumes that `obj`, which has the version that it was decided on, will be written so."""
        self._assumed[_reference(obj)] = obj, version_of(obj) + 1

    def confirm(self, obj: Object, observed: Object | None) -> None:
        """Takes in that `obj` is written so; `observed`: as the watch knows it, which may have been faster."""
        if observed is None or version_of(observed) >= version_of(obj):
            self.drop(*_reference(obj))
        else:
            self._assumed[_reference(obj)] = obj, version_of(obj)

    def told(self, obj: Object) -> None:
        """Takes in that the watch tells of `obj`: what was assumed of it may be outdated, or confirmed."""
        assumed = self._assumed.get(_reference(obj))
        if assumed is not None and version_of(obj) >= assumed[1]:
            self.drop(*_reference(obj))

    def drop(self, kind: str, key: str) -> Object | None:
        """Ends what is assumed of the object; returns it."""
        return self._assumed.pop((kind, key), (None, 0))[0]


def version_of(obj: Object) -> int:
    """Returns the object's version as a number; 0 for what has none, such as objects from files."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _reference(obj: Object) -> Reference:
    return type(obj).__name__, obj.key
