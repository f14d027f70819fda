"""The state of the cache: all that the watches have told and that was decided since. The cache has the lock.

Every change is noted twice: in `changes`, for the tables, and among the notifications for the listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol

from msgspec import structs

from extender.cache.changes import NODE, POD, Changes
from extender.cache.placements import Placements, PodPlacement
from extender.cache.pod_states import PodEvent, PodState, after
from extender.cache.pods import KnownPods
from extender.cache.watched import AssumedObjects, WatchedObjects, version_of
from extender.errors import Outdated, UnknownNode
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.table import PodInfo

Read = Callable[[str, Iterable[Object]], Mapping[str, Object | PodInfo]]
"""Returns the objects of a kind as the cache keeps them, by `id_of`."""

_LISTED_AT_ONCE = 50  # a millisecond or two of the lock


class Listener(Protocol):
    """Hears of every change of the cache, without its lock, each kind in the order of its events."""

    def changed(self, kind: str, before: Any, after: Any) -> None:
        """An object came (`before` is None), was modified, or went (`after` is None); pods are given as PodInfo."""

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        """The pod no longer counts on the node where it did: it was removed or forgotten, or has expired."""

    def missed(self) -> None:
        """Some changes may not have been reported, because an error interrupted them."""


class CacheState:
    """Nodes, pods, places, nominations and the other objects.

    Attributes:
        listed_at: when the last list of each kind was asked for.
        interrupted: the kinds of which an error has left a change half made.
    """

    def __init__(self, changes: Changes | None = None) -> None:
        self.listener: Listener | None = None
        self.objects = WatchedObjects()
        self.assumed = AssumedObjects()
        self.pods = KnownPods()
        self.placements = Placements()
        self.changes = changes or Changes()
        self.listed_at: dict[str, float] = {}
        self.interrupted: set[str] = set()
        self._notifications: list[Callable[[], None]] = []

    def take_notifications(self) -> list[Callable[[], None]]:
        """Returns what the listener has not been told yet: to be called without the lock."""
        notifications, self._notifications = self._notifications, []
        return notifications

    # ---- what the watches tell of any kind; pods go by UID, all else by key

    def known(self, kind: str) -> list[str]:
        """Returns the UIDs or keys of all objects of the kind."""
        return list(self.pods.watched if kind == POD else self.objects.of(kind))

    def replace(
        self, kind: str, gone: Iterable[str], listed: Iterable[Object], read: Read, asked_at: float, repair: bool
    ) -> Iterator[bool]:
        """A list, see ports.Sink, tells of all objects of the kind: takes a part of it in before each True.

        `gone`: what is known and not in it. `read` leaves out what makes no sense; nothing is known of such an object
        from then on. `repair`: an error has left a change of the kind half made.
        """
        for number, key in enumerate(gone, start=1):
            self.remove(kind, key)
            if number % _LISTED_AT_ONCE == 0:
                yield True
        objects = iter(listed)
        while part := tuple(islice(objects, _LISTED_AT_ONCE)):
            news = [obj for obj in part if self._is_news(kind, obj, asked_at) or repair]
            readable = read(kind, news)
            for key in {id_of(kind, obj) for obj in news} - readable.keys():
                self.remove(kind, key)
            for told in readable.values():
                self.set(kind, told)
            yield True
        for lost in self.assumed.lost(kind, asked_at):  # the API server was restored from a copy
            self.assumed.drop(kind, lost.key)
            self._note_object(kind, lost.key)
            self.notify_restored(lost)
        if repair:
            self._repair(kind)
        self.listed_at[kind] = asked_at
        self.changes.note_listed(kind)

    def _repair(self, kind: str) -> None:
        """Rebuilds what is derived from the objects of a kind, each of which has just been listed."""
        if kind == POD:
            for uid in self.placements.confirmed() - self.pods.watched.keys():  # a removal was interrupted
                self.displace(uid, PodEvent.REMOVE)
            pods = self.pods.watched.keys() | self.placements.by_uid().keys()
            self.changes.restart(kind, {uid: self._present_pod(uid) for uid in pods})
        else:
            keys = self.objects.of(kind).keys() | self.assumed.keys(kind)
            self.changes.restart(kind, {key: self.effective(kind, key) for key in keys})
        if self.listener is not None:
            self._notifications.append(self.listener.missed)

    def _is_news(self, kind: str, listed: Object, asked_at: float) -> bool:
        """Returns whether a list tells something new of an object.

        A server that was restored from a copy gives the versions that came after it to other contents.
        """
        if kind != POD:
            return listed != self.objects.get(kind, listed.key)
        info = self.pods.watched.get(listed.uid)
        if info is None:
            return True
        if self.pods.spare(listed.uid, asked_at):
            return listed != info.pod
        return version_of(listed) != version_of(info.pod)  # older than an eviction: it cannot show that

    def set(self, kind: str, told: Object | PodInfo) -> None:
        """The watch tells of the object."""
        self.set_pod(told) if isinstance(told, PodInfo) else self.set_object(kind, told)

    def remove(self, kind: str, key: str) -> None:
        """The watch tells that the object is gone."""
        self.remove_pod(key) if kind == POD else self.remove_object(kind, key)

    # ---- objects

    def set_object(self, kind: str, obj: Object) -> None:
        """The watch tells of the object."""
        written = self.assumed.get(kind, obj.key)
        before = self.objects.put(kind, obj)
        self.assumed.told(obj)
        self._note_object(kind, obj.key)
        if written is not None and before is not None and version_of(before) < version_of(written) < version_of(obj):
            self._notify(kind, before, written)  # the watch has passed over what readers have got
            before = written
        self._notify(kind, before, obj)

    def remove_object(self, kind: str, key: str) -> None:
        """The watch tells that the object is gone."""
        gone = self.objects.remove(kind, key)
        written = self.assumed.drop(kind, key)
        self._note_object(kind, key)
        if gone is not None:
            self._notify(kind, written or gone, None)

    def effective(self, kind: str, key: str) -> Object | None:
        """Returns the object as readers get it: as it is assumed, or as the watch told."""
        return self.assumed.get(kind, key) or self.objects.get(kind, key)

    def assume_object(self, obj: Object) -> None:
        """Raises Outdated if the object is no longer what `obj` was decided on, or gone."""
        kind = type(obj).__name__
        known = self.effective(kind, obj.key)
        if known is None or known.uid != obj.uid or version_of(known) != version_of(obj):
            raise Outdated(f"{kind} {obj.key} has changed meanwhile")
        self.assumed.assume(obj)
        self._note_object(kind, obj.key)

    def assume_new_object(self, obj: Object) -> None:
        """Raises Outdated if there is one."""
        kind = type(obj).__name__
        if self.assumed.get(kind, obj.key) is not None:
            raise Outdated(f"{kind} {obj.key} was made meanwhile")
        self.assumed.assume(obj)
        self._note_object(kind, obj.key)

    def confirm_object(self, obj: Object, now: float) -> None:
        """`obj` was written so."""
        kind = type(obj).__name__
        self.assumed.confirm(obj, self.objects.get(kind, obj.key), now)
        self._note_object(kind, obj.key)

    def restore_object(self, kind: str, key: str) -> Object | None:
        """Ends what is assumed of the object; returns it."""
        assumed = self.assumed.restore(kind, key)
        self._note_object(kind, key)  # even if nothing was assumed: an earlier call may have failed before this
        return assumed

    def notify_restored(self, assumed: Object) -> None:
        """Has the listener told that what was assumed is not to be."""
        # It never was in any version: a listener must not take it for what the watch told.
        versionless = structs.replace(assumed, metadata=structs.replace(assumed.metadata, resource_version=""))
        kind = type(assumed).__name__
        self._notify(kind, versionless, self.effective(kind, assumed.key))

    # ---- pods

    def set_pod(self, info: PodInfo) -> None:
        """The watch tells of the pod."""
        if info.pod.finished:
            self.remove_pod(info.uid)
            return
        before, info = self.pods.described(info.uid), self.pods.put(info)
        placed = self.placements.get(info.uid)
        if placed and placed.node_name != info.pod.node_name and (info.pod.node_name or placed.state is PodState.ADDED):
            self.displace(info.uid, PodEvent.REMOVE)  # bound by another, or the API server was restored from a copy
        if info.pod.node_name:
            self.placements.confirm(info)
        self._note_pod(info.uid)
        self._notify(POD, before, self.pods.described(info.uid))

    def remove_pod(self, uid: str) -> None:
        """The watch tells that the pod is gone."""
        gone = self.pods.described(uid)
        self.pods.remove(uid)
        if uid in self.placements:
            self.displace(uid, PodEvent.REMOVE)
        else:
            self._note_pod(uid)
        if gone is not None:
            self._notify(POD, gone, None)

    def check_assumable(self, info: PodInfo, node_name: str) -> None:
        """Raises UnknownNode, or IllegalTransition if the pod is assumed or added already."""
        if self.objects.get(NODE, node_name) is None:
            raise UnknownNode(f"node {node_name} is not in the cache")
        after(self.placements.state(info.uid), PodEvent.ASSUME)

    def assume(self, info: PodInfo, node_name: str) -> None:
        """Counts the pod on the node from now on."""
        self.check_assumable(info, node_name)
        self.placements.assume(info, node_name)
        try:
            self._note_pod(info.uid)
        except BaseException:
            self.placements.remove(info.uid, PodEvent.FORGET)
            self.interrupted.add(POD)
            raise

    def overdue(self, now: float) -> dict[str, Pod | None]:
        """Returns the pods whose time to live is over at `now`, as the watch told of them (None: not), by UID."""
        over = self.placements.overdue(now)
        return {uid: info.pod if (info := self.pods.watched.get(uid)) else None for uid in over}

    def expire(self, uids: Iterable[str], now: float) -> list[str]:
        """Takes those of the pods off their nodes that are overdue at `now`; returns their `namespace/name`."""
        overdue = set(self.placements.overdue(now))
        return [self.displace(uid, PodEvent.EXPIRE).info.pod.key for uid in uids if uid in overdue]

    def displace(self, uid: str, event: PodEvent) -> PodPlacement:
        """Takes the pod off its node; returns the placement that it had."""
        placement = self.placements.remove(uid, event)
        self._note_pod(uid)
        if self.listener is not None:
            self._notifications.append(partial(self.listener.displaced, placement, event))
        return placement

    def nominate(self, uid: str, node_name: str) -> str:
        """Nominates the pod, if it waits, whatever its status says; returns the node before."""
        info, before = self.pods.watched.get(uid), self.pods.described(uid)
        if info is None or before is None or info.pod.node_name:
            return ""
        self.pods.nominate(info, node_name)
        self._note_pod(uid)
        return before.pod.status.nominated_node_name

    def evict_pod(self, info: PodInfo, now: float) -> None:
        """Replaces the pod by what it will be once the watch tells of its eviction; `now`: in monotonic seconds."""
        self.pods.evict(info, now)
        self.placements.describe(info)
        self._note_pod(info.uid)

    def unplaced(self) -> list[PodInfo]:
        """Returns the pods that the watch knows and that count nowhere."""
        return [
            self.pods.described(uid) or info for uid, info in self.pods.watched.items() if uid not in self.placements
        ]

    # ---- what is noted

    def _note_object(self, kind: str, key: str) -> None:
        self.changes.note(kind, key, self.effective(kind, key))

    def _note_pod(self, uid: str) -> None:
        self.changes.note(POD, uid, self._present_pod(uid))

    def _present_pod(self, uid: str) -> PodPlacement | PodInfo | None:
        return self.placements.get(uid) or self.pods.described(uid)

    def _notify(self, kind: str, before: Object | PodInfo | None, after: Object | PodInfo | None) -> None:
        if self.listener is not None:
            self._notifications.append(partial(self.listener.changed, kind, before, after))


def id_of(kind: str, obj: Object) -> str:
    """Returns what the cache knows the object by: pods by UID, all else by key."""
    return obj.uid if kind == POD else obj.key
