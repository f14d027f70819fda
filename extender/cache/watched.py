"""Everything that is known of objects and pods without their places: what the watches, and schedulers, have told.

What is assumed stands before what the watch told, until the watch tells of something newer. Versions of a kind are
numbers that grow (KEP-5504). Source: upstream util/assumecache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import KeysView
from typing import NamedTuple

from extender.cache.changes import NODE, Reference
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
        self._evicted_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def known(self) -> KeysView[str]:
        return self._pods.keys()

    def get(self, uid: str) -> PodInfo | None:
        return self._pods.get(uid)

    def by_uid(self) -> dict[str, PodInfo]:
        return self._pods.copy()

    def uids(self) -> dict[str, str]:
        return self._uid_of.copy()

    def uid_of(self, key: str) -> str | None:
        """Returns the UID of the pod that has the name now."""
        return self._uid_of.get(key)

    def put(self, info: PodInfo) -> PodInfo | None:
        """Adds or replaces the pod; returns what was known of it."""
        before, self._pods[info.uid] = self._pods.get(info.uid), info
        self._uid_of[info.pod.key] = info.uid
        return before

    def evict(self, info: PodInfo, now: float) -> None:
        """Replaces the pod by what it will be; it terminates from now on, whatever an event from before tells."""
        self._pods[info.uid], self._evicted_at[info.uid] = info, now

    def spare(self, uid: str, asked_at: float) -> bool:
        """Returns whether a list that was asked for then knows of all evictions of the pod, and forgets them."""
        evicted_at = self._evicted_at.get(uid)
        if evicted_at is not None and evicted_at >= asked_at:
            return False
        self._evicted_at.pop(uid, None)
        return True

    def told(self, info: PodInfo) -> PodInfo:
        """Takes in how the watch describes the pod now; returns it as terminating if it was evicted."""
        if info.pod.terminating:
            self._evicted_at.pop(info.uid, None)
        if info.uid not in self._evicted_at:
            return info
        deleted_at = self._pods[info.uid].pod.metadata.deletion_timestamp
        return PodInfo(info.pod.preempted(deleted_at.timestamp())) if deleted_at else info

    def remove(self, uid: str) -> PodInfo | None:
        """Removes the pod; returns what was known of it."""
        info = self._pods.pop(uid, None)
        self._evicted_at.pop(uid, None)
        if info is not None and self._uid_of.get(info.pod.key) == uid:
            del self._uid_of[info.pod.key]
        return info


class _Decision(NamedTuple):
    """The pod with the nomination that was decided, and what its status said at the time."""

    info: PodInfo
    status: str


class DecidedNominations:
    """Decisions by UID; each stands until the pod's status says something else than it did."""

    def __init__(self) -> None:
        self._decisions: dict[str, _Decision] = {}

    def decide(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod, given as the watch describes it, to the node; "": to none."""
        status = info.pod.status.nominated_node_name
        self._decisions[info.uid] = _Decision(PodInfo(info.pod.nominated_to(node_name)), status)

    def told(self, info: PodInfo) -> None:
        """Takes in how the watch describes the pod now."""
        decision = self._decisions.pop(info.uid, None)
        if decision and not info.pod.node_name and info.pod.status.nominated_node_name == decision.status:
            self.decide(info, decision.info.pod.status.nominated_node_name)

    def effective(self, info: PodInfo) -> PodInfo:
        """Returns the pod, given as the watch describes it, with the nomination that counts."""
        decision = self._decisions.get(info.uid)
        return info if decision is None else decision.info

    def drop(self, uid: str) -> None:
        """Forgets the decision, if there is one."""
        self._decisions.pop(uid, None)


MOST_PODS = 4096
MOST_BYTES = 64 * 1024 * 1024


class RememberedPods:
    """Pods by UID; ever new or ever larger pods push the oldest out, and take up no more room."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[PodInfo, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, info: PodInfo, size_bytes: int) -> None:
        """Adds or replaces the pod; `size_bytes`: in memory."""
        self.drop(info.uid)
        self._pods[info.uid] = info, size_bytes
        self._bytes += size_bytes
        while len(self._pods) > MOST_PODS or self._bytes > MOST_BYTES:
            self.drop(next(iter(self._pods)))

    def get(self, uid: str) -> PodInfo | None:
        """Returns the pod as it was last described."""
        found = self._pods.get(uid)
        return found[0] if found else None

    def drop(self, uid: str) -> None:
        """Removes the pod, if it is known."""
        _, size_bytes = self._pods.pop(uid, (None, 0))
        self._bytes -= size_bytes


class AssumedObjects:
    """The assumptions by kind and key, and what was written and the watch has not told of yet."""

    def __init__(self) -> None:
        self._assumed: dict[Reference, Object] = {}
        self._written: dict[Reference, tuple[Object, float]] = {}

    def get(self, kind: str, key: str) -> Object | None:
        """Returns what is assumed of the object, or else was written, if the watch knows no better."""
        return self._assumed.get((kind, key)) or self._written.get((kind, key), (None, 0))[0]

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
