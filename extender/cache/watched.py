"""The objects of all kinds but pods: what the watches have told, and what was assumed since.

What is assumed stands before what the watch told, until the watch tells of something newer. Versions of a kind are
numbers that grow (KEP-5504). Source: upstream util/assumecache.
"""

from __future__ import annotations

from extender.cache.changes import NODE, Reference
from extender.model.meta import Object


class WatchedObjects:
    """The objects of all kinds but pods."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Object]] = {NODE: {}}

    def of(self, kind: str) -> dict[str, Object]:
        return self._kinds.get(kind, {})

    def get(self, kind: str, key: str) -> Object | None:
        return self.of(kind).get(key)

    def put(self, kind: str, obj: Object) -> Object | None:
        """Adds or replaces the object; returns what was known of it."""
        objects = self._kinds.setdefault(kind, {})
        before, objects[obj.key] = objects.get(obj.key), obj
        return before

    def remove(self, kind: str, key: str) -> Object | None:
        """Removes the object; returns what was known of it."""
        return self.of(kind).pop(key, None)


class AssumedObjects:
    """The assumptions by kind and key, and what was written and the watch has not told of yet."""

    def __init__(self) -> None:
        self._assumed: dict[Reference, Object] = {}
        self._written: dict[Reference, tuple[Object, float]] = {}

    def get(self, kind: str, key: str) -> Object | None:
        """Returns what is assumed of the object, or else was written, if the watch knows no better."""
        return self._assumed.get((kind, key)) or self._written.get((kind, key), (None, 0))[0]

    def keys(self, kind: str) -> set[str]:
        """Returns the keys of the objects of a kind that are assumed, or written and not observed yet."""
        return {key for of_kind, key in (*self._assumed, *self._written) if of_kind == kind}

    def assume(self, obj: Object) -> None:
        """Assumes that `obj`, which has the version that it was decided on, will be written so."""
        self._assumed[_reference(obj)] = obj

    def confirm(self, obj: Object, observed: Object | None, now: float) -> None:
        """Takes in that `obj` is written so; `observed`: as the watch knows it, which may have been faster."""
        self.drop(*_reference(obj))
        if observed is not None and version_of(observed) < version_of(obj):
            self._written[_reference(obj)] = obj, now

    def told(self, obj: Object) -> None:
        """Takes in that the watch tells of `obj`: what was assumed of it may be outdated, or confirmed."""
        reference = _reference(obj)
        assumed, (written, _) = self._assumed.get(reference), self._written.get(reference, (None, 0))
        if assumed is not None and version_of(obj) > version_of(assumed):
            del self._assumed[reference]
        if written is not None and version_of(obj) >= version_of(written):
            del self._written[reference]

    def lost(self, kind: str, asked_at: float) -> list[Object]:
        """Returns what was written before a list of the kind, now taken in, was asked for, and is not in it."""
        written = [(of_kind, obj, at) for (of_kind, _), (obj, at) in self._written.items()]
        return [obj for of_kind, obj, at in written if of_kind == kind and at < asked_at]

    def drop(self, kind: str, key: str) -> Object | None:
        """Ends what is assumed of the object, or was written; returns it."""
        written, _ = self._written.pop((kind, key), (None, 0))
        return self._assumed.pop((kind, key), None) or written

    def restore(self, kind: str, key: str) -> Object | None:
        """Ends what is assumed of the object, but not what was written; returns it."""
        return self._assumed.pop((kind, key), None)


def version_of(obj: Object) -> int:
    """Returns the object's version as a number; 0 for what has none, such as objects from files."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _reference(obj: Object) -> Reference:
    return type(obj).__name__, obj.key
