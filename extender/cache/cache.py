"""The assumed-pod cache: what the watches told, and what was decided since.

The cache itself holds objects and pod states only. Readers get a Table of their own: `snapshot` lends one (table_pool).
So the lock is held for what changed, never for a decision; the one exception is `assume`, where the check of the node
and the change must be one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from extender.cache.assumed_objects import AssumedObjects, version_of
from extender.cache.changes import NODE, POD, Change, Placement, Present
from extender.cache.nominations import DecidedNominations
from extender.cache.pod_states import PodEvent, PodState, after
from extender.cache.remembered_pods import RememberedPods
from extender.cache.table_pool import TablePool
from extender.cache.timed_lock import TimedLock
from extender.errors import MalformedInput, Outdated, UnknownNode
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.table.pods.templates import Templates


@dataclass(frozen=True, slots=True)
class CacheSize:
    """How much the cache holds."""

    nodes: int
    pods: int
    assumed_pods: int


class Overview(NamedTuple):
    """Every pod, by what is known of its place: assumed there, waiting for one, and how many stand confirmed."""

    assumed: list[Placement]
    unplaced: list[PodInfo]
    scheduled: int


class HeldPod(NamedTuple):
    """What the cache has of a pod.

    Attributes:
        pod: as the watch told; None where it has not yet.
        node_name: where it counts, "" if nowhere.
        state: of its place.
        findable: it is found by its UID and name.
    """

    pod: Pod | None
    node_name: str
    state: PodState
    findable: bool


Journal = set[Change]
"""What has changed since somebody began to take notes; (kind, EVERY_KEY): the kind was listed anew."""
EVERY_KEY = ""


def is_noted(change: Change, journal: Journal) -> bool:
    """Whether the object may have changed; a list changes even what it does not name."""
    return change in journal or (change[0], EVERY_KEY) in journal


class Listener(Protocol):
    """Who wants to hear what has become of the cache; told without its lock, each kind in the order of its events."""

    def changed(self, kind: str, before: Any, after: Any) -> None:
        """An object came (`before` is None), was modified, or went (`after` is None); pods are given as PodInfo."""

    def displaced(self, placement: Placement, event: PodEvent) -> None:
        """The pod no longer counts on the node where it did: it was removed or forgotten, or has expired."""


class Cache:
    """Nodes, pods and the other objects; safe for any number of threads. It is a Sink for reflectors.

    Args:
        ttl_seconds: how long a finished bind may go unconfirmed before the pod may expire; 0: for ever. See Expiry.

    Attributes:
        listener: told of every change, if there is one.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry, ttl_seconds: float = 30.0) -> None:
        self._clock, self._telemetry, self._ttl_seconds = clock, telemetry, ttl_seconds
        self.listener: Listener | None = None
        self._news: list[Callable[[], None]] = []
        self._locked = TimedLock(clock, telemetry)
        self._objects: dict[str, dict[str, Object]] = {NODE: {}}
        self._assumed = AssumedObjects()
        self._pods: dict[str, PodInfo] = {}
        self._uid_of: dict[str, str] = {}
        self._placements: dict[str, Placement] = {}
        self._nominations = DecidedNominations()
        self._remembered = RememberedPods()
        self._recognised: tuple[Pod | None, PodInfo | None] = None, None  # by `info_of`
        self._templates = Templates()
        self._tables = TablePool(self, self._locked)
        self._journals: list[Journal] = []

    # ---- what the watches tell (ports.Sink)

    def changed(self, kind: str, obj: Object) -> None:
        """An object was added or modified."""
        for readable in self._worked_out(kind, (obj,)):
            with self._telling("watch"):
                self._set_pod(readable) if isinstance(readable, PodInfo) else self._set_object(kind, readable)

    def deleted(self, kind: str, obj: Object) -> None:
        """An object is gone."""
        with self._telling("watch"):
            self._remove_pod(obj.uid) if kind == POD else self._remove_object(kind, obj.key)

    def replaced(self, kind: str, objects: Sequence[Object]) -> None:
        """A full list: what is not in it is gone."""
        worked_out = self._worked_out(kind, objects)
        with self._telling("watch"):
            for journal in self._journals:
                journal.add((kind, EVERY_KEY))
            if kind == POD:
                self._replace_pods([info for info in worked_out if isinstance(info, PodInfo)])
            else:
                self._replace_objects(kind, [obj for obj in worked_out if isinstance(obj, Object)])

    def _worked_out(self, kind: str, objects: Sequence[Object]) -> list[Object | PodInfo]:
        """The objects, pods with what tables want of them; what cannot be read is told of and left out.

        The lock is not held here, for this is most of the work that a list makes.
        """
        readable: list[Object | PodInfo] = []
        for obj in objects:
            try:
                readable.append(self._readable(obj))
            except MalformedInput as error:
                self._telemetry.unreadable(kind, obj.key, str(error))
        return readable

    def _readable(self, obj: Object) -> Object | PodInfo:
        if isinstance(obj, Pod):
            return self._templates.info(obj)
        if isinstance(obj, Node):
            amounts(obj.allocatable)
        return obj

    # ---- what is decided

    def remember(self, info: PodInfo, size_bytes: int) -> None:
        """Keeps a pod that the scheduler has asked about, in case its bind comes before the watch tells of it.

        `size_bytes`: of its JSON, for what is kept so is bounded.
        """
        with self._locked("remember"):
            self._remembered.put(info, size_bytes)
        self._recognised = info.pod, info

    def info_of(self, pod: Pod) -> PodInfo | None:
        """What has been worked out of the pod, where the watch or the scheduler has told of one that is the same."""
        known, info = self._recognised
        if known is pod:
            return info
        with self._locked("info_of"):
            info = self._pods.get(pod.uid) or self._remembered.get(pod.uid)
        if info is None or info.pod != pod:
            return None
        self._recognised = pod, info
        return info

    def find_pod(self, uid: str, key: str) -> PodInfo | None:
        """The pod of this UID, from the watch or as the scheduler last described it; `key`: namespace/name.

        None too where the watch knows a pod of another UID under that name: it was made anew.
        """
        with self._locked("find_pod"):
            known = self._uid_of.get(key)
            if known is not None and known != uid:
                return None
            return self._pods.get(uid) or self._remembered.get(uid)

    def placement(self, uid: str) -> Placement | None:
        """Where and how the pod counts at this moment, if it does."""
        with self._locked("placement"):
            placement = self._placements.get(uid)
            return replace(placement) if placement else None

    def assume(self, info: PodInfo, node_name: str, check: Callable[[Table], str] | None = None) -> str:
        """Counts the pod on the node from now on, unless `check` gives a reason against it; returns that reason or "".

        `check` sees the table as it is at this moment, and nothing changes until the pod is assumed. Who decides alone
        needs none.

        Raises:
            UnknownNode: the node is not in the cache.
            IllegalTransition: the pod is assumed or added already.
        """
        with self._locked("assume"):
            if node_name not in self._objects[NODE]:
                raise UnknownNode(f"node {node_name} is not in the cache")
            state = after(self._state(info.uid), PodEvent.ASSUME)
            if check is not None and (reason := self._tables.ask(check)):
                return reason
            self._placements[info.uid] = Placement(info, node_name, state)
            self._note(POD, info.uid)
            return ""

    def finish_binding(self, uid: str, *, certain: bool = True) -> None:
        """The bind has ended, well or (not `certain`) unknown: the time to live starts, unless the watch was faster.

        For a bind that is tried again the time starts anew.

        Raises:
            IllegalTransition: the pod is not assumed.
        """
        with self._locked("finish_binding"):
            state = after(self._state(uid), PodEvent.FINISH_BINDING)
            placement = self._placements[uid]
            placement.state = state
            if state is PodState.FINISHED:
                placement.certain = certain
                placement.expires_at = self._clock.monotonic() + self._ttl_seconds if self._ttl_seconds else None

    def forget(self, uid: str) -> None:
        """The bind has failed: the pod's place is free again.

        Raises:
            IllegalTransition: the pod is not assumed, or the watch has confirmed it.
        """
        with self._telling("forget"):
            self._displace(uid, PodEvent.FORGET)

    def overdue(self, now: float) -> bool:
        """Whether the time to live of any pod is over at `now`."""
        with self._locked("expire"):
            return any(pod.expires_at and pod.expires_at <= now for pod in self._placements.values())

    def expire(self, told_until: float) -> list[str]:
        """Lets go of every pod whose time to live was over at `told_until`; their `namespace/name`.

        `told_until`: the cache has been told of whatever there was at that moment, in monotonic seconds.
        """
        with self._telling("expire"):
            over = [uid for uid, pod in self._placements.items() if pod.expires_at and pod.expires_at <= told_until]
            keys = [self._placements[uid].info.pod.key for uid in over]
            for uid in over:
                self._displace(uid, PodEvent.EXPIRE)
            return keys

    def nominate(self, uid: str, node_name: str) -> str:
        """Nominates a waiting pod to `node_name` (empty: to none), ahead of its status; returns the node before.

        A pod that is gone, or bound, is left as it is.
        """
        with self._locked("nominate"):
            info = self._pods.get(uid)
            if info is None or info.pod.node_name:
                return ""
            self._pods[uid] = self._nominations.decide(info, node_name)
            self._note(POD, uid)
            return info.pod.status.nominated_node_name

    def nominated_node(self, uid: str) -> str:
        """Returns the node that a waiting pod is nominated to, "" for none."""
        with self._locked("nominated_node"):
            info = self._pods.get(uid)
            return info.pod.status.nominated_node_name if info is not None else ""

    def evicted(self, uid: str) -> None:
        """The pod was evicted for the sake of another, and will be leaving, whatever the watch has told by now."""
        with self._locked("evicted"):
            info = self._pods.get(uid)
            if info is None or info.pod.terminating:
                return
            leaving = self._pods[uid] = PodInfo(info.pod.preempted(self._clock.now()))
            if uid in self._placements:
                self._placements[uid] = replace(self._placements[uid], info=leaving)
            self._note(POD, uid)

    def assume_object(self, obj: Object) -> None:
        """Readers get `obj` as it is to be written, until the watch tells of a later version, or `restore_object`.

        Raises:
            Outdated: it is no longer what this was decided on, or gone.
        """
        change = type(obj).__name__, obj.key
        with self._locked("assume_object"):
            known = self._present_object(change)
            if known is None or known.uid != obj.uid or version_of(known) != version_of(obj):
                raise Outdated(f"{change[0]} {obj.key} has changed meanwhile")
            self._assumed.assume_object(obj)
            self._note(*change)

    def assume_new_object(self, obj: Object) -> None:
        """Readers get `obj`, of a kind that no watch tells of, until `restore_object`.

        Raises:
            Outdated: there is one.
        """
        change = type(obj).__name__, obj.key
        with self._locked("assume_object"):
            if self._assumed.get(change) is not None:
                raise Outdated(f"{change[0]} {obj.key} was made meanwhile")
            self._assumed.assume_object(obj)
            self._note(*change)

    def confirm_object(self, obj: Object, instead_of: Change | None = None) -> None:
        """Readers get `obj` as it was written, until the watch tells of it too, and no longer what was intended."""
        kind, key = type(obj).__name__, obj.key
        with self._locked("confirm_object"):
            self._assumed.confirm(obj, self._objects.get(kind, {}).get(key))
            self._note(kind, key)
            if instead_of is not None and self._assumed.drop(instead_of) is not None:
                self._note(*instead_of)

    def restore_object(self, kind: str, key: str) -> None:
        """What was intended is not to be: readers get what the watch told."""
        with self._telling("restore_object"):
            assumed = self._assumed.drop((kind, key))
            if assumed is not None:
                self._note(kind, key)
                self._tell(kind, _versionless(assumed), self._objects.get(kind, {}).get(key))

    def observed(self, kind: str, key: str) -> Object | None:
        """The object as the watch told of it last, whatever is intended."""
        with self._locked("observed"):
            return self._objects.get(kind, {}).get(key)

    def effective(self, kind: str, key: str) -> Object | None:
        """The object as readers get it."""
        with self._locked("effective"):
            return self._present_object((kind, key))

    # ---- what readers get

    def snapshot(self, reader: str) -> AbstractContextManager[Table]:
        """See TablePool.lend."""
        return self._tables.lend(reader)

    def refresh(self, tables: int) -> None:
        """See TablePool.refresh."""
        self._tables.refresh(tables)

    # ---- what the comparer gets

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """What changes within the block is noted in the set, at once and under the lock."""
        journal: Journal = set()
        with self._locked("journal"):
            self._journals.append(journal)
        try:
            yield journal
        finally:
            with self._locked("journal"):
                self._journals = [kept for kept in self._journals if kept is not journal]

    def held(self, kind: str) -> Mapping[str, Object]:
        """The objects of a kind by key; pods are asked for by `held_pods`."""
        with self._locked("held"):
            return dict(self._objects.get(kind, {}))

    def held_pods(self) -> Mapping[str, HeldPod]:
        """Every pod that is known or counts, by UID."""
        with self._locked("held"):
            pods, placements, uid_of = self._pods.copy(), self._placements.copy(), self._uid_of.copy()
        return {
            uid: _held_pod(uid, pods.get(uid), placements.get(uid), uid_of) for uid in pods.keys() | placements.keys()
        }

    def put_right(self, change: Change, listed: Object | None, journal: Journal) -> bool:
        """Makes an object what the API server's list says (None: it is not there), and every table with it.

        False, and nothing is done, where `journal` says that it has changed since.

        Raises:
            MalformedInput: the object makes no sense, so the cache does without it.
        """
        kind, key = change
        right = None if listed is None else self._readable(listed)
        with self._locked("put_right"):
            if is_noted(change, journal):
                return False
            if kind == POD:
                self._put_pod_right(key, right if isinstance(right, PodInfo) else None)
            elif isinstance(right, Object):
                self._set_object(kind, right)
            else:
                self._remove_object(kind, key)
        return True

    def check_tables(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """See TablePool.check."""
        return self._tables.check(is_right, breathe)

    def size(self) -> CacheSize:
        """How many nodes and pods are known, and how many pods are assumed but not confirmed."""
        with self._locked("size"):
            assumed = sum(placement.state is not PodState.ADDED for placement in self._placements.values())
            return CacheSize(len(self._objects[NODE]), len(self._pods), assumed)

    def overview(self) -> Overview:
        """All pods at one moment."""
        with self._locked("overview"):
            assumed = [replace(pod) for pod in self._placements.values() if pod.state is not PodState.ADDED]
            unplaced = [info for uid, info in self._pods.items() if uid not in self._placements]
            return Overview(assumed, unplaced, len(self._placements) - len(assumed))

    def assumed(self) -> list[Placement]:
        """The pods that count on a node where the watch has not seen them yet."""
        with self._locked("assumed"):
            return [replace(pod) for pod in self._placements.values() if pod.state is not PodState.ADDED]

    # ---- with the lock held

    @contextmanager
    def _telling(self, caller: str) -> Iterator[None]:
        with self._locked(caller):
            yield
            news, self._news = self._news, []
        for tell in news:
            tell()

    def _tell(self, kind: str, before: Object | PodInfo | None, after: Object | PodInfo | None) -> None:
        if self.listener is not None:
            self._news.append(partial(self.listener.changed, kind, before, after))

    def _state(self, uid: str) -> PodState:
        placement = self._placements.get(uid)
        return placement.state if placement else PodState.INITIAL

    def _replace_pods(self, infos: Sequence[PodInfo]) -> None:
        for uid in self._pods.keys() - {info.uid for info in infos}:
            self._remove_pod(uid)
        for info in infos:
            known = self._pods.get(info.uid)
            if known is None or _differs(known.pod, info.pod):
                self._set_pod(info)

    def _replace_objects(self, kind: str, objects: Sequence[Object]) -> None:
        known = self._objects.get(kind, {})
        for key in known.keys() - {obj.key for obj in objects}:
            self._remove_object(kind, key)
        for obj in objects:
            if obj.key not in known or _differs(known[obj.key], obj):
                self._set_object(kind, obj)

    def _set_object(self, kind: str, obj: Object) -> None:
        objects = self._objects.setdefault(kind, {})
        before, objects[obj.key] = objects.get(obj.key), obj
        self._assumed.told(obj)
        self._note(kind, obj.key)
        self._tell(kind, before, obj)

    def _remove_object(self, kind: str, key: str) -> None:
        gone = self._objects.get(kind, {}).pop(key, None)
        self._assumed.drop((kind, key))
        self._note(kind, key)
        if gone is not None:
            self._tell(kind, gone, None)

    def _set_pod(self, info: PodInfo) -> None:
        if info.pod.finished:
            self._remove_pod(info.uid)
            return
        info = self._nominations.effective(info)
        before, self._pods[info.uid] = self._pods.get(info.uid), info
        self._uid_of[info.pod.key] = info.uid
        self._remembered.drop(info.uid)
        if info.pod.node_name:
            state = self._state(info.uid)
            event = PodEvent.UPDATE if state is PodState.ADDED else PodEvent.ADD
            self._placements[info.uid] = Placement(info, info.pod.node_name, after(state, event))
        self._note(POD, info.uid)
        self._tell(POD, before, info)

    def _remove_pod(self, uid: str) -> None:
        info = self._pods.pop(uid, None)
        if info is not None and self._uid_of.get(info.pod.key) == uid:
            del self._uid_of[info.pod.key]
        self._nominations.drop(uid)
        self._remembered.drop(uid)
        if uid in self._placements:
            self._displace(uid, PodEvent.REMOVE)
        self._note(POD, uid)
        if info is not None:
            self._tell(POD, info, None)

    def _displace(self, uid: str, event: PodEvent) -> None:
        after(self._state(uid), event)
        placement = self._placements.pop(uid)
        self._note(POD, uid)
        if self.listener is not None:
            self._news.append(partial(self.listener.displaced, placement, event))

    def _put_pod_right(self, uid: str, info: PodInfo | None) -> None:
        if self._state(uid) is PodState.ADDED:
            del self._placements[uid]  # Wherever it stood: its place is the listed one, and no event may lead there.
        self._remove_pod(uid) if info is None else self._set_pod(info)

    def _note(self, kind: str, key: str) -> None:
        self._tables.note((kind, key))
        for journal in self._journals:
            journal.add((kind, key))

    # ---- for the tables, with the lock held

    def everything(self) -> Iterator[Change]:
        """See Holder."""
        yield from ((kind, key) for kind, objects in self._objects.items() for key in objects)
        yield from ((POD, uid) for uid in self._pods.keys() | self._placements.keys())
        yield from self._assumed.changes()

    def present(self, change: Change) -> Present:
        """See Holder."""
        kind, key = change
        if kind == POD:
            return self._placements.get(key) or self._pods.get(key)
        return self._present_object(change)

    def _present_object(self, change: Change) -> Object | None:
        kind, key = change
        return self._assumed.get(change) or self._objects.get(kind, {}).get(key)


def _held_pod(uid: str, info: PodInfo | None, placement: Placement | None, uid_of: Mapping[str, str]) -> HeldPod:
    return HeldPod(
        info.pod if info else None,
        placement.node_name if placement else "",
        placement.state if placement else PodState.INITIAL,
        info is not None and uid_of.get(info.pod.key) == uid,
    )


def _versionless(assumed: Object) -> Object:
    """It never was in any version: a listener must not take it for what the watch told."""
    return structs.replace(assumed, metadata=structs.replace(assumed.metadata, resource_version=""))


def _differs(known: Object, listed: Object) -> bool:
    """Whether a list tells something new of an object; objects from files have no versions."""
    version = listed.metadata.resource_version
    return not version or version != known.metadata.resource_version or listed.uid != known.uid
