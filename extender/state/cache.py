"""The assumed-pod cache: what the watches told, and what was decided since.

The cache itself holds objects and pod states only. Readers get a Table of their own: `snapshot` lends one, after it was
given the objects that have changed since it was last lent. So the lock is held for what changed, never for a decision;
the one exception is `assume`, where the check of the node and the change must be one step.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from extender.clock import Clock
from extender.errors import MalformedInput, UnknownNode
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.ports import Telemetry
from extender.state.pod_states import PodEvent, PodState, after
from extender.table import PodInfo, Table

NODE, POD = Node.__name__, Pod.__name__
_REMEMBERED = 4096
_CHANGES_AT_ONCE = 200

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


class Replica:
    """A table, and what has changed since it was last brought up to date."""

    def __init__(self, changes: dict[Change, None]) -> None:
        self.table = Table()
        self.changes = changes


class Cache:
    """Nodes, pods and the other objects; safe for any number of threads. It is a Sink for reflectors.

    Args:
        ttl_seconds: how long a finished bind may go unconfirmed before the pod expires; 0: for ever.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry, ttl_seconds: float = 30.0) -> None:
        self._clock, self._telemetry, self._ttl_seconds = clock, telemetry, ttl_seconds
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {NODE: {}}
        self._pods: dict[str, PodInfo] = {}
        self._uid_of: dict[str, str] = {}
        self._placements: dict[str, Placement] = {}
        self._remembered: OrderedDict[str, PodInfo] = OrderedDict()
        self._replicas: list[Replica] = []
        self._idle: list[Replica] = []

    # ---- what the watches tell (ports.Sink)

    def changed(self, kind: str, obj: Object) -> None:
        """An object was added or modified."""
        for readable in self._worked_out(kind, (obj,)):
            with self._locked("watch"):
                self._set_pod(readable) if isinstance(readable, PodInfo) else self._set_object(kind, readable)

    def deleted(self, kind: str, obj: Object) -> None:
        """An object is gone."""
        with self._locked("watch"):
            self._remove_pod(obj.uid) if kind == POD else self._remove_object(kind, obj.key)

    def replaced(self, kind: str, objects: Sequence[Object]) -> None:
        """A full list: what is not in it is gone."""
        worked_out = self._worked_out(kind, objects)
        with self._locked("watch"):
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

    def remember(self, info: PodInfo) -> None:
        """Keeps a pod that the scheduler has asked about, in case its bind comes before the watch tells of it."""
        with self._locked("remember"):
            self._remembered[info.uid] = info
            self._remembered.move_to_end(info.uid)
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)

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

    def assume(self, info: PodInfo, node_name: str, check: Callable[[Table], str]) -> str:
        """Counts the pod on the node from now on, unless `check` gives a reason against it; returns that reason or "".

        `check` sees the table as it is at this moment, and nothing changes until the pod is assumed.

        Raises:
            UnknownNode: the node is not in the cache.
            IllegalTransition: the pod is assumed or added already.
        """
        with self._locked("assume"):
            if node_name not in self._objects[NODE]:
                raise UnknownNode(f"node {node_name} is not in the cache")
            state = after(self._state(info.uid), PodEvent.ASSUME)
            replica = self._take_replica()
            try:
                reason = check(replica.table)
            except BaseException:
                self._discard(replica)
                raise
            self._idle.append(replica)
            if reason:
                return reason
            self._placements[info.uid] = Placement(info, node_name, state)
            self._note(POD, info.uid)
            return ""

    def finish_binding(self, uid: str, *, certain: bool = True) -> None:
        """The bind has ended, well or (not `certain`) unknown: the time to live starts, unless the watch was faster.

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
        with self._locked("forget"):
            self._displace(uid, PodEvent.FORGET)

    def expire(self) -> list[str]:
        """Lets go of every pod whose time to live is over; returns their `namespace/name`."""
        with self._locked("expire"):
            now = self._clock.monotonic()
            over = [uid for uid, placed in self._placements.items() if placed.expires_at and placed.expires_at <= now]
            keys = [self._placements[uid].info.pod.key for uid in over]
            for uid in over:
                self._displace(uid, PodEvent.EXPIRE)
            return keys

    # ---- what readers get

    @contextmanager
    def snapshot(self, reader: str) -> Iterator[Table]:
        """A table that is up to date as the block begins and stays as it is; the block's own, so no lock is held."""
        with self._locked(reader):
            replica = self._take_replica()
        try:
            yield replica.table
        except BaseException:
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
            while replica.changes:
                with self._locked("refresh"):
                    for change in tuple(islice(replica.changes, _CHANGES_AT_ONCE)):
                        self._bring_up_to_date(replica, change)
            self._idle.append(replica)

    def size(self) -> CacheSize:
        """How many nodes and pods are known, and how many pods are assumed but not confirmed."""
        with self._locked("size"):
            assumed = sum(placement.state is not PodState.ADDED for placement in self._placements.values())
            return CacheSize(len(self._objects[NODE]), len(self._pods), assumed)

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
        self._objects.setdefault(kind, {})[obj.key] = obj
        self._note(kind, obj.key)

    def _remove_object(self, kind: str, key: str) -> None:
        if self._objects.get(kind, {}).pop(key, None) is not None:
            self._note(kind, key)

    def _set_pod(self, info: PodInfo) -> None:
        if info.pod.finished:
            self._remove_pod(info.uid)
            return
        self._pods[info.uid] = info
        self._uid_of[info.pod.key] = info.uid
        self._remembered.pop(info.uid, None)
        if info.pod.node_name:
            state = self._state(info.uid)
            event = PodEvent.UPDATE if state is PodState.ADDED else PodEvent.ADD
            self._placements[info.uid] = Placement(info, info.pod.node_name, after(state, event))
        self._note(POD, info.uid)

    def _remove_pod(self, uid: str) -> None:
        info = self._pods.pop(uid, None)
        if info is not None and self._uid_of.get(info.pod.key) == uid:
            del self._uid_of[info.pod.key]
        self._remembered.pop(uid, None)
        if uid in self._placements:
            self._displace(uid, PodEvent.REMOVE)
        self._note(POD, uid)

    def _displace(self, uid: str, event: PodEvent) -> None:
        after(self._state(uid), event)
        del self._placements[uid]
        self._note(POD, uid)

    def _note(self, kind: str, key: str) -> None:
        for replica in self._replicas:
            replica.changes[kind, key] = None

    def _discard(self, replica: Replica) -> None:
        # Its reader failed, perhaps in the middle of a what-if: nobody shall stand on such a table again.
        self._replicas = [kept for kept in self._replicas if kept is not replica]

    def _take_replica(self) -> Replica:
        replica = self._idle.pop() if self._idle else self._new_replica()
        for change in tuple(replica.changes):
            self._bring_up_to_date(replica, change)
        return replica

    def _new_replica(self) -> Replica:
        everything: dict[Change, None] = {
            (kind, key): None for kind, objects in self._objects.items() for key in objects
        }
        everything |= {(POD, uid): None for uid in self._pods.keys() | self._placements.keys()}
        replica = Replica(everything)
        self._replicas.append(replica)
        return replica

    def _bring_up_to_date(self, replica: Replica, change: Change) -> None:
        kind, key = change
        table = replica.table
        if kind == POD:
            self._bring_pod_up_to_date(table, key)
        else:
            obj = self._objects[kind].get(key)
            if kind == NODE:
                table.set_node(obj) if isinstance(obj, Node) else table.remove_node(key)
            elif obj is not None:
                table.set_object(kind, obj)
            else:
                table.remove_object(kind, key)
        del replica.changes[change]

    def _bring_pod_up_to_date(self, table: Table, uid: str) -> None:
        placement = self._placements.get(uid)
        waiting = self._pods.get(uid) if placement is None else None
        if placement is not None:
            table.place(placement.info, placement.node_name)
        else:
            table.take_away(uid)
        if waiting is not None and waiting.pod.status.nominated_node_name:
            table.nominate(waiting, waiting.pod.status.nominated_node_name)
        else:
            table.withdraw(uid)


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
