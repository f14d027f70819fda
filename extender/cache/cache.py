"""The assumed-pod cache: what the watches told, and what was decided since.

The cache owns the lock; what it guards is in state. Readers get a table of their own: `snapshot` lends one (see
table_pool). So the lock is held for what has changed, never for a decision: `assume` has the node checked without it,
and confirms under it that nothing has changed that the check has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from extender.cache.changes import NODE, POD, Changes, Reference
from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodEvent
from extender.cache.state import CacheState, Listener, id_of
from extender.cache.table_pool import TablePool
from extender.cache.view import CacheSize, CacheView
from extender.errors import ExtenderError, MalformedInput, Outdated
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.runtime.clock import NO_DEADLINE, Clock, Deadline
from extender.runtime.ports import LONG_AGO, Telemetry
from extender.runtime.threads import TimedLock
from extender.table import PodInfo, Table
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.table.pods.templates import Templates

_CHECKS = 5
_QUICK_SECONDS = 0.02


class Cache:
    """Nodes, pods and the other objects; safe for any number of threads. It is a Sink for reflectors.

    Args:
        ttl_seconds: how long a finished bind may go unconfirmed before the pod may expire; 0: for ever. See Expiry.
        features: the feature gates that its tables are read by.
        changes: its journal, where somebody else follows it too; empty.
    """

    def __init__(
        self, clock: Clock, telemetry: Telemetry, ttl_seconds: float = 30.0,
        features: FeatureGates = DEFAULT_FEATURES, changes: Changes | None = None,
    ) -> None:  # fmt: skip
        self._clock, self._telemetry, self._ttl_seconds = clock, telemetry, ttl_seconds
        self._locked = TimedLock(clock, telemetry)
        self._state = CacheState(changes)
        self.view = CacheView(self._state, self._changing)
        self._tables = TablePool(self._state.changes, self._locked, features)
        self._templates = Templates()

    def listen(self, listener: Listener | None) -> None:
        """Has the listener told of every change from now on; None: nobody."""
        self._state.listener = listener

    # ---- what the watches tell (ports.Sink)

    def changed(self, kind: str, obj: Object) -> None:
        """An object was added or modified."""
        for readable in self._all_readable(kind, (obj,)).values():
            with self._changing("watch", kind):
                self._state.set(kind, readable)

    def deleted(self, kind: str, obj: Object) -> None:
        """An object is gone."""
        with self._changing("watch", kind):
            self._state.remove(kind, id_of(kind, obj))

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """A full list: what is not in it is gone, and so is what was written before it was asked for.

        After a change of this kind was interrupted by an error the list repairs everything: no object is skipped
        because the cache has it already, tables are rebuilt, and the listener learns that it may have missed changes.
        """
        repair = kind in self._state.interrupted
        self._state.interrupted.discard(kind)
        try:
            self._take_list(kind, objects, asked_at, repair=repair)
        except BaseException:
            self._state.interrupted.add(kind)
            raise

    def _take_list(self, kind: str, objects: Sequence[Object], asked_at: float, *, repair: bool) -> None:
        listed = {id_of(kind, obj): obj for obj in objects}
        with self._locked("watch"):
            known = self._state.known(kind)
        gone = [key for key in known if key not in listed]  # without the lock: of 200,000 pods it takes 0.1 s
        steps, under_way = self._state.replace(kind, gone, listed.values(), self._all_readable, asked_at, repair), True
        # Part by part, idle tables too: no decision waits long for the lock, or has much to catch up with.
        while under_way:
            with self._changing("watch", kind):
                under_way = next(steps, False)
            self._tables.keep_up()

    def interrupted_kinds(self) -> list[str]:
        """Returns the kinds of which an error has left a change half made; the next list of the kind repairs it."""
        return sorted(self._state.interrupted)

    def _all_readable(self, kind: str, objects: Iterable[Object]) -> dict[str, Object | PodInfo]:
        """Returns the objects as the cache keeps them, by UID or key; reports and leaves out what makes no sense."""
        readable: dict[str, Object | PodInfo] = {}
        for obj in objects:
            try:
                readable[id_of(kind, obj)] = self.readable(obj)
            except MalformedInput as error:
                self._telemetry.unreadable(kind, obj.key, str(error))
        return readable

    def readable(self, obj: Object) -> Object | PodInfo:
        """Returns the object as the cache keeps it, a pod with all that tables ask of it.

        Raises:
            MalformedInput: it makes no sense.
        """
        if isinstance(obj, Pod):
            return self._templates.info(obj, self._state.pods.watched.get(obj.uid))  # without the lock: a hint
        if isinstance(obj, Node):
            amounts(obj.allocatable)
        return obj

    # ---- pods and their places

    def remember(self, info: PodInfo, size_bytes: int) -> None:
        """Keeps a pod that the scheduler has asked about, in case its bind comes before the watch tells of it.

        `size_bytes`: in memory, for what is kept so is bounded.
        """
        with self._locked("remember"):
            self._state.pods.remembered.put(info, size_bytes)

    def info_of(self, pod: Pod) -> PodInfo | None:
        """Returns what is known of an equal pod that the watch or the scheduler has told of."""
        with self._locked("info_of"):
            info = self._state.pods.find(pod.uid)
        return info if info is not None and info.pod == pod else None

    def find_pod(self, uid: str, key: str) -> PodInfo | None:
        """Returns the pod of this UID, from the watch or as the scheduler last described it; `key`: namespace/name.

        None too where the watch knows a pod of another UID under that name: it was made anew.
        """
        with self._locked("find_pod"):
            if self._state.pods.uid_of.get(key, uid) != uid:
                return None
            return self._state.pods.find(uid)

    def placement(self, uid: str) -> PodPlacement | None:
        """Returns where and how the pod counts at this moment, if it does."""
        with self._locked("placement"):
            return self._state.placements.get(uid)

    def assume(self, info: PodInfo, node_name: str, check: Callable[[Table], str] | None = None) -> str:
        """Counts the pod on the node from now on, unless `check` gives a reason against it; returns that reason or "".

        Nothing that concerns the node changes between the table that `check` is shown and the pod's being assumed. It
        may take long, so it is not asked under the lock, but again where something has changed, and only at last, if it
        is quick, under the lock. Who decides alone needs none.

        Raises:
            UnknownNode: the node is not in the cache.
            IllegalTransition: the pod is assumed or added already.
            Outdated: `check` takes long, and something changes all the while.
        """
        if check is None:
            with self._locked("assume"):
                self._state.assume(info, node_name)
            return ""
        for left in reversed(range(_CHECKS)):
            with self._locked("assume"):
                self._state.check_assumable(info, node_name)
            begin = self._clock.monotonic()
            reason, cursor = self._tables.ask(check)
            is_quick = self._clock.monotonic() - begin < _QUICK_SECONDS
            with self._locked("assume"):
                if self._state.changes.concern(node_name, cursor):
                    if left or not is_quick:
                        continue
                    self._state.check_assumable(info, node_name)
                    reason = self._tables.ask_locked(check)
                if not reason:
                    self._state.assume(info, node_name)
                return reason
        raise Outdated(f"{info.pod.key}: each time that {node_name} was checked the cluster has changed meanwhile")

    def finish_binding(self, uid: str, *, certain: bool = True) -> None:
        """The bind has ended, well or (not `certain`) unknown: the time to live starts, unless the watch was faster.

        For a bind that is tried again the time starts anew.

        Raises:
            IllegalTransition: the pod is not assumed.
        """
        with self._locked("finish_binding"):
            expires_at = self._clock.monotonic() + self._ttl_seconds if self._ttl_seconds else None
            self._state.placements.finish_binding(uid, certain=certain, expires_at=expires_at)

    def forget(self, uid: str) -> None:
        """The bind has failed: the pod's place is free again.

        Raises:
            IllegalTransition: the pod is not assumed, or the watch has confirmed it.
        """
        with self._changing("forget"):
            self._state.displace(uid, PodEvent.FORGET)

    def overdue(self, now: float) -> Mapping[str, Pod | None]:
        """Returns the pods whose time to live is over at `now`, as the watch told of them (None: not), by UID."""
        with self._locked("expire"):
            return self._state.overdue(now)

    def expire(self, uids: Iterable[str], now: float) -> list[str]:
        """Lets go of those of the pods that are overdue at `now` still; returns their `namespace/name`."""
        with self._changing("expire"):
            return self._state.expire(uids, now)  # one may have been confirmed, or bound again, meanwhile

    def evicted(self, uid: str) -> None:
        """The pod was evicted for the sake of another, and will be leaving, whatever the watch has told by now."""
        with self._locked("evicted"):
            info = self._state.pods.watched.get(uid)
            if info is not None and not info.pod.terminating:
                preempted = PodInfo(info.pod.preempted(self._clock.now()))
                self._state.evict_pod(preempted, self._clock.monotonic())

    # ---- nominations

    def nominate(self, uid: str, node_name: str) -> str:
        """Nominates a waiting pod to `node_name` (empty: to none), ahead of its status; returns the node before.

        A pod that is gone, or bound, is left as it is.
        """
        with self._locked("nominate"):
            return self._state.nominate(uid, node_name)

    def nominated_node(self, uid: str) -> str:
        """Returns the node that a waiting pod is nominated to, "" for none."""
        with self._locked("nominated_node"):
            info = self._state.pods.described(uid)
            return info.pod.status.nominated_node_name if info is not None else ""

    # ---- assumed objects

    def assume_object(self, obj: Object) -> None:
        """Readers get `obj` as it is to be written, until the watch tells of a later version, or `restore_object`.

        Raises:
            Outdated: it is no longer what this was decided on, or gone.
        """
        with self._locked("assume_object"):
            self._state.assume_object(obj)

    def assume_new_object(self, obj: Object) -> None:
        """Readers get `obj`, of a kind that no watch tells of, until `restore_object`.

        Raises:
            Outdated: there is one.
        """
        with self._locked("assume_object"):
            self._state.assume_new_object(obj)

    def confirm_object(self, obj: Object, instead_of: Reference | None = None) -> None:
        """Readers get `obj` as it was written, and no longer what was assumed.

        Until the watch tells of it too, or a list that was asked for later does not: the API server has lost it.
        """
        with self._locked("confirm_object"):
            self._state.confirm_object(obj, self._clock.monotonic())
            if instead_of is not None:
                self._state.restore_object(*instead_of)

    def restore_object(self, kind: str, key: str) -> None:
        """Readers get what the watch told, for what was assumed is not to be."""
        with self._changing("restore_object", kind):
            assumed = self._state.restore_object(kind, key)
            if assumed is not None:
                self._state.notify_restored(assumed)

    def observed(self, kind: str, key: str) -> Object | None:
        """Returns the object as the watch told of it last, whatever is assumed."""
        with self._locked("observed"):
            return self._state.objects.get(kind, key)

    def effective(self, kind: str, key: str) -> Object | None:
        """Returns the object as readers get it."""
        with self._locked("effective"):
            return self._state.effective(kind, key)

    # ---- what readers get

    def snapshot(self, reader: str, deadline: Deadline = NO_DEADLINE) -> AbstractContextManager[Table]:
        return self._tables.lend(reader, deadline)

    def refresh(self, tables: int) -> None:
        self._tables.refresh(tables)

    def size(self) -> CacheSize:
        """Returns how many nodes and pods are known, and how many pods are assumed but not confirmed."""
        with self._locked("size"):
            state = self._state
            return CacheSize(len(state.objects.of(NODE)), len(state.pods.watched), len(state.placements.unconfirmed()))

    def check_tables(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        return self._tables.check(is_right, breathe)

    @contextmanager
    def _changing(self, caller: str, kind: str = POD) -> Iterator[None]:
        """Holds the lock in the block, and reports the changes to the listener after it.

        An error leaves the kind marked as interrupted, unless it is of ours: those are raised before anything changes.
        """
        try:
            with self._locked(caller):
                yield
                notifications = self._state.take_notifications()
            _deliver(notifications)
        except ExtenderError:
            raise
        except BaseException:
            self._state.interrupted.add(kind)
            raise


def _deliver(notifications: Iterable[Callable[[], None]]) -> None:
    """Calls them all, even after one has raised; then raises the first error."""
    errors: list[Exception] = []
    for notify in notifications:
        try:
            notify()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
