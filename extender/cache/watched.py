"""Everything that the watches have told: objects by kind and key, pods by UID."""

from __future__ import annotations

from collections.abc import Sequence

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

    def differences(self, kind: str, listed: Sequence[Object]) -> tuple[set[str], list[Object]]:
        """Returns the keys of objects that a list no longer has, and the objects that it has otherwise."""
        known = self.of(kind)
        gone = known.keys() - {obj.key for obj in listed}
        return gone, [obj for obj in listed if obj.key not in known or _differs(known[obj.key], obj)]


class WatchedPods:
    """The pods by UID, and the UIDs by `namespace/name`."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self._uid_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._pods)

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

    def differences(self, listed: Sequence[PodInfo]) -> tuple[set[str], list[PodInfo]]:
        """Returns the UIDs of pods that a list no longer has, and the pods that it has otherwise."""
        known = self._pods
        gone = known.keys() - {info.uid for info in listed}
        return gone, [info for info in listed if info.uid not in known or _differs(known[info.uid].pod, info.pod)]


def _differs(known: Object, listed: Object) -> bool:
    """Returns whether a list tells something new of an object; objects from files have no versions."""
    version = listed.metadata.resource_version
    return not version or version != known.metadata.resource_version or listed.uid != known.uid
