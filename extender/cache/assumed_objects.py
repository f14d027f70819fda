"""Objects as they will be once what was decided about them is written. Source: upstream util/assumecache.

What is assumed stands before what the watch told, until the watch tells of something newer. Versions of a kind are
numbers that grow (KEP-5504).
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.cache.changes import Change
from extender.model.meta import Object


class AssumedObjects:
    """The assumptions by kind and key, each with the version from which on the watch knows better."""

    def __init__(self) -> None:
        self._assumed: dict[Change, tuple[Object, int]] = {}

    def get(self, change: Change) -> Object | None:
        return self._assumed[change][0] if change in self._assumed else None

    def changes(self) -> Iterable[Change]:
        """What is assumed, by kind and key."""
        return self._assumed.keys()

    def assume_object(self, obj: Object) -> None:
        """`obj`, which has the version that it was decided on, is to be written so."""
        self._assumed[_change_of(obj)] = obj, version_of(obj) + 1

    def confirm(self, obj: Object, told: Object | None) -> None:
        """`obj` is written so. `told`: the object as the watch knows it, which may have come before."""
        if told is None or version_of(told) >= version_of(obj):
            self.drop(_change_of(obj))
        else:
            self._assumed[_change_of(obj)] = obj, version_of(obj)

    def told(self, obj: Object) -> None:
        """The watch tells of `obj`: what was assumed of it may be outdated, or confirmed."""
        assumed = self._assumed.get(_change_of(obj))
        if assumed is not None and version_of(obj) >= assumed[1]:
            self.drop(_change_of(obj))

    def drop(self, change: Change) -> Object | None:
        """Nothing is assumed of the object any more; returns what was."""
        return self._assumed.pop(change, (None, 0))[0]


def version_of(obj: Object) -> int:
    """The object's version as a number; 0 for what has none, such as objects from files."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _change_of(obj: Object) -> Change:
    return type(obj).__name__, obj.key
