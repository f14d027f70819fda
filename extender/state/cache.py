"""The assumed-pod cache: what the watches told, and what was decided since.

The cache itself holds objects and pod states only. Readers get a Table of their own: `snapshot` lends one, after it was
given the objects that have changed since it was last lent. So the lock is held for what changed, never for a decision;
the one exception is `assume`, where the check of the node and the change must be one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from extender.clock import Clock
from extender.errors import MalformedInput, UnknownNode
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.ports import Telemetry
from extender.state.pod_states import PodEvent, PodState, after
from extender.state.remembered_pods import RememberedPods
from extender.table import PodInfo, Table

NODE, POD = Node.__name__, Pod.__name__
_CHANGES_AT_ONCE = 50
_TRIES = 100

Change = tuple[str, str]
"""(kind, key) of an object that is no longer what it was; pods go by UID."""


@dataclass(slots=True)
class Placement:
    """A pod that counts on a node.

    Attributes:
        certain: False where the bind ended without an answer.
        expires_at: when the pod expires unless the watch confirms it, in monotonic seconds; None: never.
    """

    info: PodInfo
    node_name: str
    state: PodState
    certain: bool = True
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class CacheSize:
    """How much the cache holds."""

    nodes: int
    pods: int
    assumed_pods: int


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
"""What has changed since somebody began to take notes."""


class Listener(Protocol):
    """Who wants to hear what has become of the cache; told without its lock, each kind in the order of its events."""

    def changed(self, kind: str, before: Any, after: Any) -> None:
        """An object came (`before` is None), was modified, or went (`after` is None); pods are given as PodInfo."""

    def displaced(self, placement: Placement, event: PodEvent) -> None:
        """The pod no longer counts on the node where it did: it was removed or forgotten, or has expired."""


class Replica:
    """A table, and what has changed since it was last brought up to date."""

    def __init__(self, changes: dict[Change, None]) -> None:
        self.table = Table()
        self.changes = changes


class Cache:
    """Nodes, pods and the other objects; safe for any number of threads. It is a Sink for reflectors.

    Args:
        ttl_seconds: how long a finished bind may go unconfirmed before the pod expires; 0: for ever. A watch that tells
            of no pod at all does not confirm, yet proves nothing: the pod expires once it has told of another since.

    Attributes:
        listener: told of every change, if there is one.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry, ttl_seconds: float = 30.0) -> None:
        self._clock, self._telemetry, self._ttl_seconds = clock, telemetry, ttl_seconds
        self.listener: Listener | None = None
        self._news: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {NODE: {}}
        self._pods: dict[str, PodInfo] = {}
        self._uid_of: dict[str, str] = {}
        self._placements: dict[str, Placement] = {}
        self._remembered = RememberedPods()
        self._told_of_pods_at = clock.monotonic()
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []
        self._journals: list[Journal] = []

    # ---- what the watches tell (ports.Sink)

    def changed(self, kind: str, obj: Object) -> None:
        """An object was added or modified."""
        for readable in self._worked_out(kind, (obj,)):
            with self._told(kind):
                self._set_pod(readable) if isinstance(readable, PodInfo) else self._set_object(kind, readable)

    def deleted(self, kind: str, obj: Object) -> None:
        """An object is gone."""
        with self._told(kind):
            self._remove_pod(obj.uid) if kind == POD else self._remove_object(kind, obj.key)

    def replaced(self, kind: str, objects: Sequence[Object]) -> None:
        """A full list: what is not in it is gone."""
        worked_out = self._worked_out(kind, objects)
        with self._told(kind):
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
                readable.append(_worked_out(obj))
            except MalformedInput as error:
                self._telemetry.unreadable(kind, obj.key, str(error))
        return readable

    # ---- what is decided

    def remember(self, info: PodInfo, size_bytes: int) -> None:
        """Keeps a pod that the scheduler has asked about, in case its bind comes before the watch tells of it.

        `size_bytes`: of its JSON, for what is kept so is bounded.
        """
        with self._locked("remember"):
            self._remembered.put(info, size_bytes)

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
            if check is not None and (reason := self._objection(check)):
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

    def expire(self) -> list[str]:
        """Lets go of every pod whose time to live was over when the watch last told of any; their `namespace/name`."""
        with self._telling("expire"):
            told_at = self._told_of_pods_at
            over = [uid for uid, pod in self._placements.items() if pod.expires_at and pod.expires_at <= told_at]
            keys = [self._placements[uid].info.pod.key for uid in over]
            for uid in over:
                self._displace(uid, PodEvent.EXPIRE)
            return keys

    def nominate(self, uid: str, node_name: str) -> None:
        """The pod is to have the next room on `node_name` (empty: nowhere), whatever its status says by now."""
        with self._locked("nominate"):
            info = self._pods.get(uid)
            if info is not None:
                self._pods[uid] = PodInfo(info.pod.nominated_to(node_name))
                self._note(POD, uid)

    # ---- what readers get

    @contextmanager
    def snapshot(self, reader: str) -> Iterator[Table]:
        """A table that is up to date as the block begins and stays as it is; the block's own, so no lock is held."""
        with self._locked(reader):
            replica = self._take_replica()
        try:
            yield replica.table
        except BaseException:
            with self._locked(reader):
                self._discard(replica)
            raise
        self._idle.append(replica)

    def refresh(self, tables: int) -> None:
        """Brings that many tables up to date, if they are not lent, so that no reader has to wait for it.

        The lock is held for a few changes at a time; the first tables of a large cluster take a second or so.
        """
        for _ in range(tables):
            with self._locked("refresh"):
                if not self._idle and len(self._replicas) >= tables:
                    return
                replica = self._idle.pop(0) if len(self._replicas) >= tables else self._new_replica()
            self._catch_up(replica, lambda: None)
            self._idle.append(replica)

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
        right = None if listed is None else _worked_out(listed)
        with self._locked("put_right"):
            if change in journal:
                return False
            if kind == POD:
                self._put_pod_right(key, right if isinstance(right, PodInfo) else None)
            elif isinstance(right, Object):
                self._set_object(kind, right)
            else:
                self._remove_object(kind, key)
        return True

    def check_tables(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        """Shows every table beside one made anew, both as of one moment; keeps those that are right, and the new one.

        The oldest that is right makes way, and with it what it remembers of objects long gone; so the number stays.
        The work is done without the lock, `breathe` called now and then. Returns how many were shown.
        """
        with self._locked("check_tables"):
            known = tuple(self._replicas)
            fresh = self._new_replica()
        self._catch_up(fresh, breathe)
        checked = [replica for replica in known if self._check(replica, fresh, is_right, breathe)]
        with self._locked("check_tables"):
            self._idle.insert(0, fresh)
            if len(self._replicas) > len(known):
                oldest = next((replica for replica in checked if replica in self._idle), fresh)
                self._idle.remove(oldest)
                self._discard(oldest)
        return len(checked)

    def size(self) -> CacheSize:
        """How many nodes and pods are known, and how many pods are assumed but not confirmed."""
        with self._locked("size"):
            assumed = sum(placement.state is not PodState.ADDED for placement in self._placements.values())
            return CacheSize(len(self._objects[NODE]), len(self._pods), assumed)

    def assumed(self) -> list[Placement]:
        """The pods that count on a node where the watch has not seen them yet."""
        with self._locked("assumed"):
            return [replace(pod) for pod in self._placements.values() if pod.state is not PodState.ADDED]

    # ---- with the lock held

    @contextmanager
    def _locked(self, caller: str) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            begin = self._clock.monotonic()
            self._lock.acquire()
            self._telemetry.lock_waited(caller, self._clock.monotonic() - begin)
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _told(self, kind: str) -> Iterator[None]:
        with self._telling("watch"):
            yield
            if kind == POD:
                self._told_of_pods_at = self._clock.monotonic()

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

    def _objection(self, check: Callable[[Table], str]) -> str:
        replica = self._take_replica()
        try:
            reason = check(replica.table)
        except BaseException:
            self._discard(replica)
            raise
        self._idle.append(replica)
        return reason

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
        self._note(kind, obj.key)
        self._tell(kind, before, obj)

    def _remove_object(self, kind: str, key: str) -> None:
        gone = self._objects.get(kind, {}).pop(key, None)
        self._note(kind, key)
        if gone is not None:
            self._tell(kind, gone, None)

    def _set_pod(self, info: PodInfo) -> None:
        if info.pod.finished:
            self._remove_pod(info.uid)
            return
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
        for replica in self._replicas:
            replica.changes[kind, key] = None
        for journal in self._journals:
            journal.add((kind, key))

    def _discard(self, replica: Replica) -> None:
        # Its reader failed, perhaps in the middle of a what-if: nobody shall stand on such a table again.
        self._replicas = [kept for kept in self._replicas if kept is not replica]

    def _take_replica(self) -> Replica:
        replica = self._idle.pop() if self._idle else self._new_replica()
        self._bring_up_to_date(replica)
        return replica

    def _bring_up_to_date(self, replica: Replica) -> None:
        try:
            for change in tuple(replica.changes):
                _apply(replica.table, change, self._present(change))
                del replica.changes[change]
        except BaseException:
            self._discard(replica)
            raise

    def _new_replica(self) -> Replica:
        everything: dict[Change, None] = {
            (kind, key): None for kind, objects in self._objects.items() for key in objects
        }
        everything |= {(POD, uid): None for uid in self._pods.keys() | self._placements.keys()}
        replica = Replica(everything)
        self._replicas.append(replica)
        return replica

    def _present(self, change: Change) -> Present:
        kind, key = change
        if kind == POD:
            placement = self._placements.get(key)
            return placement or self._pods.get(key)
        return self._objects.get(kind, {}).get(key)

    # ---- with a replica that nobody else has, and without the lock

    def _catch_up(self, replica: Replica, breathe: Callable[[], object]) -> None:
        """Brings the replica up to date without keeping readers waiting: the lock is held to look, not to count."""
        try:
            while replica.changes:
                with self._locked("refresh"):
                    batch = [(change, self._present(change)) for change in islice(replica.changes, _CHANGES_AT_ONCE)]
                    for change, _ in batch:
                        del replica.changes[change]
                for change, present in batch:
                    _apply(replica.table, change, present)
                breathe()
        except BaseException:
            with self._locked("refresh"):
                self._discard(replica)
            raise

    def _check(
        self,
        replica: Replica,
        fresh: Replica,
        is_right: Callable[[Table, Table], bool],
        breathe: Callable[[], object],
    ) -> bool:
        """Whether the replica was shown; one that is lent, again and again, is left for the next time."""
        for _ in range(_TRIES):
            with self._locked("check_tables"):
                if replica in self._idle:
                    self._idle.remove(replica)
                    with suppress(Exception):  # Then it lacks the change, and is seen not to be right.
                        self._bring_up_to_date(replica)
                    self._bring_up_to_date(fresh)
                    break
            breathe()
        else:
            return False
        if is_right(replica.table, fresh.table):
            self._idle.append(replica)
        else:
            with self._locked("check_tables"):
                self._discard(replica)
        return True


Present = Object | Placement | PodInfo | None
"""What an object is at this moment; a pod is its placement, or if it has none what is known of it."""


def _apply(table: Table, change: Change, present: Present) -> None:
    kind, key = change
    if kind == POD:
        _apply_pod(table, key, present)
    elif kind == NODE:
        table.set_node(present) if isinstance(present, Node) else table.remove_node(key)
    elif isinstance(present, Object):
        table.set_object(kind, present)
    else:
        table.remove_object(kind, key)


def _apply_pod(table: Table, uid: str, present: Present) -> None:
    if isinstance(present, Placement):
        table.place(present.info, present.node_name)
    else:
        table.take_away(uid)
    if isinstance(present, PodInfo) and present.pod.status.nominated_node_name:
        table.nominate(present, present.pod.status.nominated_node_name)
    else:
        table.withdraw(uid)


def _held_pod(uid: str, info: PodInfo | None, placement: Placement | None, uid_of: Mapping[str, str]) -> HeldPod:
    return HeldPod(
        info.pod if info else None,
        placement.node_name if placement else "",
        placement.state if placement else PodState.INITIAL,
        info is not None and uid_of.get(info.pod.key) == uid,
    )


def _differs(known: Object, listed: Object) -> bool:
    """Whether a list tells something new of an object; objects from files have no versions."""
    version = listed.metadata.resource_version
    return not version or version != known.metadata.resource_version or listed.uid != known.uid


def _worked_out(obj: Object) -> Object | PodInfo:
    if isinstance(obj, Pod):
        info = PodInfo(obj)
        info.work_out()
        return info
    if isinstance(obj, Node):
        amounts(obj.allocatable)
    return obj
