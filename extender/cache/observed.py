"""Stores pods and all other objects as the watches show them, together with what was decided about them since.

A pod comes from the watch or from kube-scheduler's call. Any other object may have three versions: *observed* is what
the watch showed last; *assumed* is about to be written; *written* was returned by the API server, but the watch has not
shown it yet. The resource versions of a kind are increasing numbers (KEP-5504). Source: upstream util/assumecache.

`ObjectReader` gives objects the form in which they are stored. `CachedPod` and `PodOverview` show them to the debugger
and to status pages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

from extender.cache.changes import NODE, POD, Reference
from extender.cache.pod_states import Placements, PodPlacement, PodState
from extender.errors import MalformedInput, Outdated
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod, PodSpec
from extender.model.quantity import amounts
from extender.runtime.ports import Telemetry
from extender.runtime.threads import going_on
from extender.table import PodInfo
from extender.table.podinfo import Templates

MOST_PODS = 4096
MOST_BYTES = 64 * 1024 * 1024
_BATCH = 50  # how many listed objects are stored before the lock is released; this takes 1 or 2 ms

T = TypeVar("T")


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


class RememberedPods:
    """Pods that kube-scheduler has sent, by UID; above MOST_PODS or MOST_BYTES, the oldest are dropped."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[PodInfo, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, info: PodInfo, size_bytes: int) -> None:
        """Adds or replaces the pod, which takes `size_bytes` of memory."""
        self.drop(info.uid)
        self._pods[info.uid] = info, size_bytes
        self._bytes += size_bytes
        while len(self._pods) > MOST_PODS or self._bytes > MOST_BYTES:
            self.drop(next(iter(self._pods)))

    def get(self, uid: str) -> PodInfo | None:
        entry = self._pods.get(uid)
        return entry[0] if entry else None

    def drop(self, uid: str) -> None:
        _, size_bytes = self._pods.pop(uid, (None, 0))
        self._bytes -= size_bytes


class _Nomination(NamedTuple):
    """A nomination that the pod's status does not show yet.

    Attributes:
        info: the pod with the nomination in its status.
        status_node: the nominated node in the observed status when the nomination was decided.
    """

    info: PodInfo
    status_node: str


class PodStore:
    """The pods of the cluster by UID, with evictions and nominations that the watch does not show yet.

    Attributes:
        watched: pods as the watch shows them, except that evicted pods are marked as terminating.
        uid_of: `namespace/name` -> the UID of the pod that has this name now.
        remembered: pods as kube-scheduler sent them, until the watch shows them.
    """

    def __init__(self) -> None:
        self.watched: dict[str, PodInfo] = {}
        self.uid_of: dict[str, str] = {}
        self.remembered = RememberedPods()
        self._evicted_at: dict[str, float] = {}
        self._nominations: dict[str, _Nomination] = {}

    def find(self, uid: str) -> PodInfo | None:
        """Returns the pod as the watch shows it, or else as kube-scheduler sent it."""
        return self.effective(uid) or self.remembered.get(uid)

    def effective(self, uid: str) -> PodInfo | None:
        """Returns the pod as the watch shows it, but with the nominated node that `nominate` set, if any."""
        nomination = self._nominations.get(uid)
        return nomination.info if nomination else self.watched.get(uid)

    def differs_from(self, listed: Pod, asked_at: float) -> bool:
        """Returns True if the stored pod differs from `listed`, a pod of a list that was requested at `asked_at`.

        If the pod was evicted after the request, only versions are compared, because the stored pod is marked as
        terminating and the listed pod is not.
        """
        info = self.watched.get(listed.uid)
        if info is None:
            return True
        if self.evicted_since(listed.uid, asked_at):
            return version_of(listed) != version_of(info.pod)
        return listed != info.pod

    def put(self, info: PodInfo) -> PodInfo:
        """Stores the pod as the watch shows it, but marked as terminating if it was evicted; returns the stored pod.

        A nomination by `nominate` is kept until the watch shows the pod on a node or with another nominated node.
        """
        uid = info.uid
        if info.pod.terminating:
            self._evicted_at.pop(uid, None)
        if uid in self._evicted_at and (deleted_at := self.watched[uid].pod.metadata.deletion_timestamp):
            info = PodInfo(info.pod.preempted(deleted_at.timestamp()))
        self.watched[uid] = info
        self.uid_of[info.pod.key] = uid
        self.remembered.drop(uid)
        nomination = self._nominations.pop(uid, None)
        if nomination and not info.pod.node_name and info.pod.status.nominated_node_name == nomination.status_node:
            self._nominate(info, nomination.info.pod.status.nominated_node_name)
        return info

    def remove(self, uid: str) -> PodInfo | None:
        """Removes the pod; returns the version that readers saw, if any."""
        removed = self.effective(uid)
        info = self.watched.pop(uid, None)
        if info is not None and self.uid_of.get(info.pod.key) == uid:
            del self.uid_of[info.pod.key]
        self._evicted_at.pop(uid, None)
        self._nominations.pop(uid, None)
        self.remembered.drop(uid)
        return removed

    def nominate(self, uid: str, node_name: str, instead_of: str | None = None) -> str:
        """Nominates a waiting pod to the node ("" ends its nomination); returns the node of its former nomination.

        Does nothing if `instead_of` is given, and the pod is not nominated to that node.
        """
        info, before = self.watched.get(uid), self.nominated_node(uid)
        if info is None or info.pod.node_name:
            return ""
        if instead_of is None or instead_of == before:
            self._nominate(info, node_name)
        return before

    def nominated_node(self, uid: str) -> str:
        """Returns the node that the pod is nominated to; "" for none."""
        info = self.effective(uid)
        return info.pod.status.nominated_node_name if info is not None else ""

    def _nominate(self, info: PodInfo, node_name: str) -> None:
        status_node = info.pod.status.nominated_node_name
        self._nominations[info.uid] = _Nomination(PodInfo(info.pod.nominated_to(node_name)), status_node)

    def evict(self, uid: str, now: float, evicted_at: float) -> PodInfo | None:
        """Marks the pod as terminating until the watch shows it as terminating; returns the marked pod.

        Returns None if the pod was deleted or is already terminating.

        Args:
            now: the time of the eviction, in seconds since the epoch.
            evicted_at: the same time, in monotonic seconds.
        """
        info = self.watched.get(uid)
        if info is None or info.pod.terminating:
            return None
        terminating = PodInfo(info.pod.preempted(now))
        self.watched[uid] = terminating
        self._evicted_at[uid] = evicted_at
        return terminating

    def evicted_since(self, uid: str, moment: float) -> bool:
        """Returns True if the pod was evicted at `moment` or later; forgets an earlier eviction.

        `moment` is when a list was requested. The list already shows the outcome of an earlier eviction.
        """
        evicted_at = self._evicted_at.get(uid)
        if evicted_at is not None and evicted_at >= moment:
            return True
        self._evicted_at.pop(uid, None)
        return False


def batches(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    remaining = iter(items)
    while batch := tuple(islice(remaining, _BATCH)):
        yield batch


def id_of(kind: str, obj: Object) -> str:
    """Returns the id of an object in the cache: the UID for a pod, the key for any other object."""
    return obj.uid if kind == POD else obj.key


class ObjectReader:
    """Converts objects into the form in which the cache stores them. Thread-safe.

    Args:
        watched: UID -> the pod in the cache, read without the cache's lock. A new version of a pod shares all unchanged
            parts with the cached version.
    """

    def __init__(self, telemetry: Telemetry, watched: Mapping[str, PodInfo]) -> None:
        self._telemetry = telemetry
        self._watched = watched
        self._templates = Templates()

    def read(self, obj: Object) -> Object | PodInfo:
        """Returns the object as the cache stores it; a pod becomes a PodInfo. Raises MalformedInput."""
        if isinstance(obj, Pod):
            return self._templates.info(obj, self._watched.get(obj.uid))
        if isinstance(obj, Node):
            amounts(obj.allocatable)
        return obj

    def read_or_report(self, kind: str, obj: Object) -> Object | PodInfo | None:
        """Returns the object as the cache stores it; reports an object that cannot be read, and returns its rest.

        That is the `occupant` for a pod on a node, and None for any other object.
        """
        try:
            return self.read(obj)
        except MalformedInput as error:
            self._telemetry.unreadable(kind, obj.key, str(error))
        except MemoryError:
            raise
        except Exception as error:  # one object must not keep the others out of the cache
            self._telemetry.set_aside("cache", f"{kind} {obj.key}", error)
        if isinstance(obj, Pod) and obj.node_name:
            with going_on(self._telemetry.set_aside, "cache", f"{kind} {obj.key}"), suppress(MalformedInput):
                return occupant(obj)
        return None


def occupant(pod: Pod) -> PodInfo:
    """Returns the pod with only those fields that say what it takes of its node, so that others do not get that too.

    Such a pod replaces one that meets an error in the cache or in a table. The cause is probably in another field.

    Raises:
        MalformedQuantity: a request is not a quantity.
    """
    spec = pod.spec
    kept = PodSpec(
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority,
        containers=spec.containers,
        init_containers=spec.init_containers,
        overhead=spec.overhead,
        resources=spec.resources,
        scheduling_group=spec.scheduling_group,
    )
    info = PodInfo(Pod(metadata=pod.metadata, spec=kept, status=pod.status))
    info.precompute()
    return info


@dataclass(frozen=True, slots=True)
class CacheSize:
    nodes: int
    pods: int
    assumed_pods: int


class PodOverview(NamedTuple):
    """All pods of a cache, grouped by whether they have a node.

    Attributes:
        assumed: the assumed pods, which the watch has not confirmed on their nodes yet.
        unplaced: the pods without a node.
        scheduled: the number of pods that the watch shows on a node.
    """

    assumed: list[PodPlacement]
    unplaced: list[PodInfo]
    scheduled: int


def overview_of(pods: PodStore, placements: Placements) -> PodOverview:
    assumed = placements.unconfirmed()
    waiting = [pods.effective(uid) for uid in pods.watched if uid not in placements]
    return PodOverview(assumed, [info for info in waiting if info is not None], len(placements) - len(assumed))


class CachedPod(NamedTuple):
    """One pod in the cache, for the Comparer, the dump and status pages.

    Attributes:
        pod: the pod as the watch shows it; None if the watch has not shown it yet.
        node_name: the node where the pod is counted; "" if it has no node.
        state: the pod's state in the cache, see pod_states.
        findable: True if a lookup by `namespace/name` finds this pod.
    """

    pod: Pod | None
    node_name: str
    state: PodState
    findable: bool


def cached_pods(
    watched: Mapping[str, PodInfo], placements: Mapping[str, PodPlacement], uid_of: Mapping[str, str]
) -> dict[str, CachedPod]:
    """Returns all pods that the watch shows or that have a node, by UID.

    Args:
        watched: UID -> the pod as the watch shows it.
        placements: UID -> the pod's placement on a node.
        uid_of: `namespace/name` -> the UID of the pod that has this name now.
    """
    uids = watched.keys() | placements.keys()
    return {uid: _cached_pod(watched.get(uid), placements.get(uid), uid_of) for uid in uids}


def _cached_pod(info: PodInfo | None, placement: PodPlacement | None, uid_of: Mapping[str, str]) -> CachedPod:
    return CachedPod(
        info.pod if info else None,
        placement.node_name if placement else "",
        placement.state if placement else PodState.INITIAL,
        info is not None and uid_of.get(info.pod.key) == info.uid,
    )
