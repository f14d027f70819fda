"""Stores the objects of all kinds except pods: as the watches show them, and as they are assumed to be.

An object may have three versions: *observed* is what the watch showed last; *assumed* is about to be written; *written*
was returned by the API server, but the watch has not shown it yet. The resource versions of a kind are increasing
numbers (KEP-5504). Source: upstream util/assumecache.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.cache.changes import NODE, Reference
from extender.errors import Outdated
from extender.model.meta import Object


class _WrittenObject(NamedTuple):
    """An object that the API server returned after a write, and the time of the write in monotonic seconds."""

    obj: Object
    written_at: float


class AssumeCache:
    """The observed, assumed and written versions of all objects except pods, by kind and key."""

    def __init__(self) -> None:
        self._observed: dict[str, dict[str, Object]] = {NODE: {}}
        self._assumed: dict[Reference, Object] = {}
        self._written: dict[Reference, _WrittenObject] = {}  # written objects that the watch has not shown yet

    def of_kind(self, kind: str) -> dict[str, Object]:
        """Returns the objects of a kind by key, as the watch shows them."""
        return self._observed.get(kind, {})

    def observed(self, kind: str, key: str) -> Object | None:
        """Returns the observed version of the object; None if the watch has not shown the object."""
        return self.of_kind(kind).get(key)

    def effective(self, kind: str, key: str) -> Object | None:
        """Returns the version that readers see: assumed, or else written, or else observed."""
        return self.assumed(kind, key) or self.observed(kind, key)

    def assumed(self, kind: str, key: str) -> Object | None:
        """Returns the assumed version of the object, or else the written version; None if there is neither."""
        reference = kind, key
        if (obj := self._assumed.get(reference)) is not None:
            return obj
        written = self._written.get(reference)
        return written.obj if written is not None else None

    def keys(self, kind: str) -> set[str]:
        """Returns the keys of all objects of a kind, observed or assumed."""
        assumed = {key for of_kind, key in (*self._assumed, *self._written) if of_kind == kind}
        return self.of_kind(kind).keys() | assumed

    # ---- objects from the watch

    def put(self, kind: str, obj: Object) -> Object | None:
        """Stores an observed version and drops outdated assumptions; returns the previous observed version."""
        objects = self._observed.setdefault(kind, {})
        before = objects.get(obj.key)
        objects[obj.key] = obj
        reference = kind, obj.key
        assumed, written = self._assumed.get(reference), self._written.get(reference)
        if assumed is not None and version_of(obj) > version_of(assumed):
            del self._assumed[reference]
        if written is not None and version_of(obj) >= version_of(written.obj):
            del self._written[reference]
        return before

    def remove(self, kind: str, key: str) -> Object | None:
        """Removes the object and any assumption about it; returns the version that readers saw.

        Returns None if the watch has never shown the object.
        """
        observed = self.of_kind(kind).pop(key, None)
        assumed = self.drop(kind, key)
        return observed and (assumed or observed)

    # ---- assumptions

    def assume(self, obj: Object) -> None:
        """Makes readers see `obj`, which is about to be written, in place of the observed object.

        `obj` must have the resource version on which the decision was based, or none if the object is to be created.

        Raises:
            Outdated: the object was changed, deleted or created since the decision.
        """
        kind = type(obj).__name__
        current = self.effective(kind, obj.key)
        is_new = not obj.metadata.resource_version
        if is_new and current is not None:
            raise Outdated(f"{kind} {obj.key} was created since the decision")
        if not is_new and (current is None or current.uid != obj.uid or version_of(current) != version_of(obj)):
            raise Outdated(f"{kind} {obj.key} has changed since the decision")
        self._assumed[kind, obj.key] = obj

    def confirm(self, obj: Object, now: float) -> None:
        """Discards the assumed version, because the API server returned `obj` after the write.

        `obj` becomes the written version only if the watch shows an older version of the object.
        """
        kind = type(obj).__name__
        self.drop(kind, obj.key)
        observed = self.observed(kind, obj.key)
        if observed is not None and version_of(observed) < version_of(obj):
            self._written[kind, obj.key] = _WrittenObject(obj, now)

    def restore(self, kind: str, key: str) -> Object | None:
        """Discards and returns the object's assumed version, if any. A written version is kept."""
        return self._assumed.pop((kind, key), None)

    def drop(self, kind: str, key: str) -> Object | None:
        """Discards the assumed and written versions of the object; returns the one that readers saw, if any."""
        written = self._written.pop((kind, key), None)
        return self._assumed.pop((kind, key), None) or (written.obj if written is not None else None)

    def lost(self, kind: str, asked_at: float) -> list[Object]:
        """Returns the written objects of a kind that the API server lost. Called after a list was stored.

        The list was requested at `asked_at`. It should have contained every object that was written earlier.
        """
        return [
            written.obj
            for (of_kind, _), written in self._written.items()
            if of_kind == kind and written.written_at < asked_at
        ]


def version_of(obj: Object) -> int:
    """Returns the object's resource version as a number; 0 if it has none, for example if it is from a file."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0
