"""Everything that the watches have told: objects by kind and key, pods by UID."""

from __future__ import annotations

from collections.abc import KeysView

from extender.cache.changes import NODE
from extender.model.meta import Object
from extender.table import PodInfo


class WatchedObjects:
    """The objects of all kinds but pods."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Object]] = {NODE: {}}

    def of(self, kind: str) -> dict[str, Object]:
        """Returns the objects of a kind, by key."""
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


class WatchedPods:
    """The pods by UID, and the UIDs by `namespace/name`."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self._uid_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def known(self) -> KeysView[str]:
        """Returns the UIDs of all pods."""
        return self._pods.keys()

    def get(self, uid: str) -> PodInfo | None:
        return self._pods.get(uid)

    def by_uid(self) -> dict[str, PodInfo]:
        """Returns all pods."""
        return self._pods.copy()

    def uids(self) -> dict[str, str]:
        """Returns all UIDs by name."""
        return self._uid_of.copy()

    def uid_of(self, key: str) -> str | None:
        """Returns the UID of the pod that has the name now."""
        return self._uid_of.get(key)

    def put(self, info: PodInfo) -> PodInfo | None:
        """Adds or replaces the pod; returns what was known of it."""
        before, self._pods[info.uid] = self._pods.get(info.uid), info
        self._uid_of[info.pod.key] = info.uid
        return before

    def remove(self, uid: str) -> PodInfo | None:
        """Removes the pod; returns what was known of it."""
        info = self._pods.pop(uid, None)
        if info is not None and self._uid_of.get(info.pod.key) == uid:
            del self._uid_of[info.pod.key]
        return info
