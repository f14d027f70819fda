"""Stores the cluster as the watches show it, plus decisions that they do not show yet (upstream cache.go).

`changed`, `deleted` and `replaced` store what the API server reports. The methods from `assume` to `expire` are the
steps of a pod's life, which pod_states draws. Tables are updated from the journal, in which every change is recorded.
Every change is also reported to the scheduling queue.

The lock is held only while a change is stored. Each reader has a table to itself, so it reads without the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar

from extender.cache.changes import (
    NODE,
    POD,
    Changes,
    Current,
    Listener,
    Notifications,
    Reference,
    Update,
    Updates,
    deliver,
)
from extender.cache.groups import GroupStates, Viable
from extender.cache.observed import (
    AssumeCache,
    CachedPod,
    CacheSize,
    ObjectReader,
    PodOverview,
    PodStore,
    batches,
    cached_pods,
    id_of,
    occupant,
    overview_of,
    version_of,
)
from extender.cache.pod_states import Placements, PodEvent, PodPlacement, PodState, after
from extender.cache.table_pool import TablePool
from extender.errors import ExtenderError, Outdated, UnknownNode
from extender.framework.status import Refusal
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.clock import NO_DEADLINE, Clock, Deadline
from extender.runtime.ports import LONG_AGO, Annotations, Telemetry
from extender.runtime.threads import TimedLock, going_on
from extender.table import PodInfo, Table
from extender.table.features import DEFAULT_FEATURES, FeatureGates

_CHECKS = 5
_QUICK_SECONDS = 0.02
# With more objects set aside, the error cannot be about single objects, and decisions would miss too much.
MOST_SET_ASIDE = 1000

T = TypeVar("T")
NodeCheck = Callable[[Table], Refusal | Annotations | None]
"""Checks a pod on its node in the given table; returns the refusal, or the annotations to bind it with (None: none)."""


class Cache:
    """The nodes, pods and other objects of a cluster, with the assumptions about them. Thread-safe.

    The watches call `changed`, `deleted` and `replaced`. Pods are identified by UID, all other objects by key.

    Args:
        ttl_seconds: how long a pod waits for the watch after its bind has finished; 0 means forever.
        features: the feature gates of the tables.
        changes: an empty journal, for example one that also records every change to a file; None creates a plain one.
        unanswered_ttl_seconds: like `ttl_seconds`, for a bind without an answer; never 0, as the pod may not be bound.
    """

    def __init__(
        self,
        clock: Clock,
        telemetry: Telemetry,
        ttl_seconds: float = 30.0,
        features: FeatureGates = DEFAULT_FEATURES,
        changes: Changes | None = None,
        unanswered_ttl_seconds: float = 30.0,
    ) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._ttl_seconds = ttl_seconds
        self._unanswered_ttl_seconds = unanswered_ttl_seconds
        self._locked = TimedLock(clock, telemetry)
        self._objects = AssumeCache()
        self._pods = PodStore()
        self._placements = Placements()
        self.groups = GroupStates(
            self._locked,
            composites=features.composites,
            tries_deep_trees=features.behaviours.whole_trees_are_validated,
        )
        self._changes = changes or Changes()
        self._tables = TablePool(self._changes, self._locked, features, self._leave_out)
        self.reader = ObjectReader(telemetry, self._pods.watched)
        self._notifications = Notifications()
        self._listed_at: dict[str, float] = {}  # kind -> the time when its last stored list was requested
        self._interrupted: set[str] = set()  # the kinds for which an error has interrupted a change
        # The objects whose errors repeat, until the next list of their kind; True if `_store_rest` has stored a rest.
        self._set_aside: dict[Reference, bool] = {}
        self._listener_missed = False

    @property
    def features(self) -> FeatureGates:
        """The feature gates, and the version of Kubernetes, that decisions follow."""
        return self._tables.features

    def use(self, features: FeatureGates) -> None:
        """Makes later decisions follow another version of Kubernetes, in which the gates that a user sets are equal."""
        self._tables.use(features)
        self.groups.use(tries_deep_trees=features.behaviours.whole_trees_are_validated)

    def listen(self, listener: Listener | None) -> None:
        """Reports every later change to the listener; None stops the reports."""
        self._notifications.listener = listener

    # ---- objects from the API server (ports.Sink)

    def changed(self, kind: str, obj: Object) -> None:
        """Stores an object that was added or modified; of one that is set aside, what `_store_rest` keeps."""
        if self._set_aside and (reference := (kind, id_of(kind, obj))) in self._set_aside:
            with self._changing("watch", kind):
                self._store_rest(reference, obj)
            return
        if (stored := self.reader.read_or_report(kind, obj)) is not None:
            with self._changing("watch", kind):
                self._set(kind, stored)

    def deleted(self, kind: str, obj: Object) -> None:
        """Removes an object that was deleted."""
        with self._changing("watch", kind):
            self._remove(kind, id_of(kind, obj))
        self._set_aside.pop((kind, id_of(kind, obj)), None)

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        """Stores a full list of a kind, and removes all objects of that kind that are not in the list.

        The list was requested at `asked_at`, in monotonic seconds. Objects that were written earlier and are not listed
        are discarded: the API server lost them. If an error interrupted an earlier change, `_repair` is called too. If
        storing one of the objects raises an error, that object is set aside until the next list.
        """
        repair = kind in self._interrupted
        try:
            self._interrupted.discard(kind)
            self._set_aside = {each: has_rest for each, has_rest in self._set_aside.items() if each[0] != kind}
            listed = {id_of(kind, obj): obj for obj in objects}
            with self._locked("watch"):
                stored = list(self._pods.watched if kind == POD else self._objects.of_kind(kind))
            gone = [key for key in stored if key not in listed]  # without a lock, as 200,000 pods take 0.1 s
            self._in_batches(kind, gone, lambda key: self._try((kind, key), partial(self._remove, kind, key)))
            store = partial(self._store_listed, kind, asked_at=asked_at, repair=repair)
            self._in_batches(kind, listed.values(), store)
            with self._changing("watch", kind):
                self._end_list(kind, asked_at, repair=repair)
            self._tables.keep_up()
        except BaseException:
            self._interrupted.add(kind)
            raise

    def _in_batches(self, kind: str, items: Iterable[T], store: Callable[[T], object]) -> None:
        """Stores a list in batches, so that no decision waits long for the lock or for a table."""
        for batch in batches(items):
            with self._changing("watch", kind):
                for item in batch:
                    store(item)
            self._tables.keep_up()

    def _leave_out(self, update: Update, error: Exception) -> bool:
        """Sets an object aside whose value tables cannot hold; returns False if it still has that value."""
        kind, key, current = update
        with self._changing("set_aside", kind):
            if self._changes.current(kind, key) is not current:
                return True
            if (kind, key) in self._set_aside:  # tables cannot hold its rest either
                self._store_rest((kind, key), None)
            else:
                info = current.info if isinstance(current, PodPlacement) else current
                self._put_aside((kind, key), error, info.pod if isinstance(info, PodInfo) else info)
            return self._changes.current(kind, key) is not current

    def take_missed(self) -> bool:
        """Returns True if the listener has missed a change since the last call, because it raised an error."""
        missed = self._listener_missed
        self._listener_missed = False
        return missed

    def interrupted_kinds(self) -> list[str]:
        """Returns the kinds for which an error interrupted a change. The next list of the kind repairs the objects."""
        return sorted(self._interrupted)

    # ---- pods and their nodes

    def remember(self, info: PodInfo, size_bytes: int) -> None:
        """Stores a pod that kube-scheduler has sent, in case its bind arrives before its watch event."""
        with self._locked("remember"):
            self._pods.remembered.put(info, size_bytes)

    def info_of(self, pod: Pod) -> PodInfo | None:
        """Returns the stored PodInfo of this pod; None if no pod is stored, or if the stored pod differs from `pod`."""
        with self._locked("info_of"):
            info = self._pods.find(pod.uid)
        return info if info is not None and info.pod == pod else None

    def find_pod(self, uid: str, key: str) -> PodInfo | None:
        """Returns the pod as the watch or kube-scheduler last sent it; None if its name now belongs to another pod."""
        with self._locked("find_pod"):
            return self._pods.find(uid) if self._pods.uid_of.get(key, uid) == uid else None

    def placement(self, uid: str) -> PodPlacement | None:
        """Returns the pod's placement on a node, assumed or confirmed; None if the pod has no node."""
        with self._locked("placement"):
            return self._placements.get(uid)

    def assume(
        self, info: PodInfo, node_name: str, check: NodeCheck | None = None, annotations: Annotations = ()
    ) -> Refusal | None:
        """Assumes the pod on the node, unless `check` refuses the node; returns the refusal, or None.

        The pod is assumed with the annotations that `check` returns, or without a check with `annotations`. They leave
        the cache together with the assumption.

        `check` may be slow, so it runs without the lock. If the cluster changes during the run, `check` runs again,
        because its result may differ. Changes of other nodes do not count. After several runs, a quick `check` runs
        with the lock held. The scheduler's own loop passes no check, because no other thread assumes pods there.

        Raises:
            UnknownNode: the node is not in the cache.
            IllegalTransition: the pod has a node already, assumed or confirmed.
            Outdated: the cluster changed during every run of a slow `check`.
        """
        if check is None:
            with self._locked("assume"):
                self._check_assumable(info, node_name)
                self._assume(info, node_name, annotations)
            return None
        for remaining in reversed(range(_CHECKS)):
            with self._locked("assume"):
                self._check_assumable(info, node_name)
            begin = self._clock.monotonic()
            verdict, cursor = self._tables.ask(check)
            is_quick = self._clock.monotonic() - begin < _QUICK_SECONDS
            with self._locked("assume"):
                if self._changes.may_affect(node_name, cursor):
                    if remaining or not is_quick:
                        continue
                    self._check_assumable(info, node_name)
                    verdict = self._tables.ask_locked(check)
                if isinstance(verdict, Refusal):
                    return verdict
                self._assume(info, node_name, verdict or ())
                return None
        raise Outdated(f"{info.pod.key}: the cluster changed during each of {_CHECKS} checks of node {node_name}")

    def assume_all(
        self, chosen: Sequence[tuple[PodInfo, str, Annotations]], viable: Viable
    ) -> Mapping[str, ExtenderError]:
        """Assumes pods on nodes, under a single lock; returns, by UID, the error of each pod that cannot be assumed.

        Each pod is assumed with its annotations, as in `assume`.

        `viable` is called with the UIDs of the pods that can be assumed, and returns the UIDs of the pods to assume.
        """
        errors: dict[str, ExtenderError] = {}
        with self._locked("assume_all"):
            for info, node_name, _ in chosen:
                try:
                    self._check_assumable(info, node_name)
                except ExtenderError as error:
                    errors[info.uid] = error
            kept = viable([info.uid for info, _, _ in chosen if info.uid not in errors])
            for info, node_name, annotations in [each for each in chosen if each[0].uid in kept]:
                self._assume(info, node_name, annotations)
        return errors

    def keep_place(self, info: PodInfo, node_name: str, annotations: Annotations) -> None:
        """Assumes the pod on the node, whether that exists or not, because an earlier process may have bound the pod.

        `annotations` are those of the earlier process's Binding.

        Raises IllegalTransition if the pod has a node already.
        """
        with self._locked("keep_place"):
            self._assume(info, node_name, annotations)
        self.finish_binding(info.uid, certain=False)

    def finish_binding(self, uid: str, *, certain: bool = True) -> None:
        """Starts the pod's time to live after its bind. If not `certain`, the outcome of the bind is unknown.

        Does nothing for a pod that the watch has confirmed. Raises IllegalTransition if the pod has no node.
        """
        ttl_seconds = self._ttl_seconds if certain else self._unanswered_ttl_seconds
        with self._locked("finish_binding"):
            expires_at = self._clock.monotonic() + ttl_seconds if ttl_seconds else None
            self._placements.finish_binding(uid, certain=certain, expires_at=expires_at)

    def forget(self, uid: str) -> None:
        """Removes the pod from its node after a failed bind. Raises IllegalTransition if the pod is not assumed."""
        with self._changing("forget"):
            self._displace(uid, PodEvent.FORGET)

    def overdue(self, now: float) -> Mapping[str, Pod | None]:
        """Returns the pods whose time to live has ended, by UID. The value is None if no watch has shown the pod."""
        with self._locked("expire"):
            overdue = self._placements.overdue(now)
            return {uid: info.pod if (info := self._pods.watched.get(uid)) else None for uid in overdue}

    def expire(self, uids: Iterable[str], now: float) -> list[str]:
        """Removes the given pods from their nodes if they are still overdue; returns their `namespace/name`."""
        with self._changing("expire"):
            overdue = set(self._placements.overdue(now))
            expired: list[str] = []
            for uid in [uid for uid in uids if uid in overdue]:
                with going_on(self._telemetry.set_aside, "expiry", uid, lambda: self._interrupted.add(POD)):
                    expired.append(self._displace(uid, PodEvent.EXPIRE).info.pod.key)
            return expired

    def evicted(self, uid: str) -> None:
        """Marks an evicted pod as terminating, even if an older watch event still shows it running."""
        with self._locked("evicted"):
            terminating = self._pods.evict(uid, self._clock.now(), self._clock.monotonic())
            if terminating is not None:
                self._placements.update_info(terminating)
                self._note_pod(uid)

    def nominate(self, uid: str, node_name: str, instead_of: str | None = None) -> str:
        """Nominates a waiting pod; see `PodStore.nominate`."""
        with self._locked("nominate"):
            before = self._pods.nominate(uid, node_name, instead_of)
            self._note_pod(uid)
            return before

    def nominated_node(self, uid: str) -> str:
        """Returns the node that a waiting pod is nominated to; "" for none."""
        with self._locked("nominated_node"):
            return self._pods.nominated_node(uid)

    # ---- assumed objects (upstream util/assumecache)

    def assume_object(self, obj: Object) -> None:
        """Makes readers see `obj`, which is about to be written, until the watch shows it. Raises Outdated."""
        with self._locked("assume_object"):
            self._objects.assume(obj)
            self._note_object(type(obj).__name__, obj.key)

    def confirm_object(self, obj: Object, instead_of: Reference | None = None) -> None:
        """Replaces the assumed object with `obj`, which the API server returned.

        Readers see `obj` until the watch shows this version or a newer one, or until a later list lacks `obj`, which
        means that the API server lost the write. `instead_of` names another assumed object, which is discarded.
        """
        with self._locked("confirm_object"):
            self._objects.confirm(obj, self._clock.monotonic())
            self._note_object(type(obj).__name__, obj.key)
            if instead_of is not None:
                self._objects.restore(*instead_of)
                self._note_object(*instead_of)

    def restore_object(self, kind: str, key: str) -> None:
        """Discards the assumed object; readers see the version before the assumption again."""
        with self._changing("restore_object", kind):
            assumed = self._objects.restore(kind, key)
            self._note_object(kind, key)  # always noted, because an earlier call may have failed
            if assumed is not None:
                self._notifications.discarded(assumed, self._objects.effective(kind, key))

    def observed(self, kind: str, key: str) -> Object | None:
        """Returns the object as the watch last showed it, without assumptions."""
        with self._locked("observed"):
            return self._objects.observed(kind, key)

    def effective(self, kind: str, key: str) -> Object | None:
        """Returns the version of the object that readers see: assumed, or else written, or else observed."""
        with self._locked("effective"):
            return self._objects.effective(kind, key)

    # ---- readers

    def snapshot(self, reader: str, deadline: Deadline = NO_DEADLINE) -> AbstractContextManager[Table]:
        return self._tables.lend(reader, deadline)

    def refresh(self, tables: int) -> None:
        self._tables.refresh(tables)

    def check_tables(self, is_right: Callable[[Table, Table], bool], breathe: Callable[[], object]) -> int:
        return self._tables.check(is_right, breathe)

    def size(self) -> CacheSize:
        with self._locked("size"):
            pods = self._pods.watched
            return CacheSize(len(self._objects.of_kind(NODE)), len(pods), len(self._placements.unconfirmed()))

    def overview(self) -> PodOverview:
        """Returns all pods of the cache, grouped by whether they have a node."""
        with self._locked("overview"):
            return overview_of(self._pods, self._placements)

    def unconfirmed(self) -> Mapping[str, list[str]]:
        """Returns, by node name, the UIDs of the assumed pods that the watch has not confirmed yet."""
        with self._locked("unconfirmed"):
            return self._placements.unconfirmed_by_node()

    def objects(self, kind: str) -> Mapping[str, Object]:
        """Returns the objects of a kind by key, as the watch shows them. For pods, call `pods`."""
        with self._locked("objects"):
            return self._objects.of_kind(kind).copy()

    def pods(self) -> Mapping[str, CachedPod]:
        """Returns every pod that the watch shows or that is assumed on a node, by UID."""
        with self._locked("pods"):
            watched, uids = self._pods.watched.copy(), self._pods.uid_of.copy()
            placements = self._placements.by_uid()
        return cached_pods(watched, placements, uids)

    # ---- for the Comparer and other readers of the journal

    def cursor(self) -> int:
        """Returns the current end of the journal, for `reported_since` and `correct`."""
        with self._locked("cursor"):
            return self._changes.now

    def updates_since(self, cursor: int) -> tuple[Updates, int, bool]:
        """Returns three values: the updates after `cursor`, the new cursor, and True if the reader must start over.

        A reader must start over if the journal has dropped changes after `cursor`. It then gets all current values.
        """
        with self._locked("updates"):
            updates = self._changes.since(cursor)
            return self._changes.all() if updates is None else updates, self._changes.now, updates is None

    def reported_since(self, cursor: int, reference: Reference) -> bool:
        """Returns True if the journal recorded the object, or a list of its kind, after `cursor`."""
        with self._locked("reported_since"):
            return self._changes.reported_since(cursor, reference)

    def listed_since(self, moment: float, kind: str) -> bool:
        """Returns True if the last stored list of the kind was requested after `moment`, in monotonic seconds."""
        with self._locked("listed_since"):
            return self._listed_at.get(kind, moment) > moment

    def correct(self, reference: Reference, listed: Object | PodInfo | None, cursor: int) -> bool:
        """Stores `listed` in place of the cached object, or removes the cached object if `listed` is None.

        Returns False and changes nothing if `reported_since` returns True for this object and `cursor`, or if the
        object is set aside.
        """
        kind, key = reference
        with self._changing("correct", kind):
            if self._changes.reported_since(cursor, reference) or reference in self._set_aside:
                return False
            self._remove(kind, key) if listed is None else self._set(kind, listed)
        return True

    # ---- helpers, called with the lock held

    def _store_listed(self, kind: str, obj: Object, asked_at: float, *, repair: bool) -> None:
        """Stores a listed object if it differs or if `repair`. Removes an object that cannot be read.

        Compares contents, because an API server that was restored from a backup may use a resource version again.
        """
        key = id_of(kind, obj)

        def store() -> None:
            stored_object = self._objects.observed(kind, obj.key)
            differs = self._pods.differs_from(obj, asked_at) if isinstance(obj, Pod) else obj != stored_object
            if differs or repair:
                stored = self.reader.read_or_report(kind, obj)
                self._remove(kind, key) if stored is None else self._set(kind, stored)

        self._try((kind, key), store, obj)

    def _try(self, reference: Reference, change: Callable[[], object], obj: Object | None = None) -> None:
        """Makes a change of one object. If it raises an error, sets the object aside, unless too many are."""
        try:
            change()
        except Exception as error:
            if not self._put_aside(reference, error, obj):
                raise

    def _put_aside(self, reference: Reference, error: Exception, obj: Object | None) -> bool:
        """Sets aside an object that repeatedly raises an error; returns False if the error is not the object's."""
        if isinstance(error, MemoryError) or len(self._set_aside) >= MOST_SET_ASIDE:
            return False
        self._telemetry.set_aside("cache", f"{reference[0]} {obj.key if obj else reference[1]}", error)
        self._store_rest(reference, obj)
        return True

    def _store_rest(self, reference: Reference, obj: Object | None) -> None:
        """Stores the `occupant` of a pod on a node, so that others do not get its room; removes any other object.

        An object that is set aside may raise an error here, too. It is then removed.
        """
        kind, key = reference
        pod = obj if isinstance(obj, Pod) and not obj.finished else None
        placed = self._placements.get(key) if pod else None
        self._set_aside[reference] = False
        with going_on(self._telemetry.set_aside, "cache", f"{kind} {key}", partial(self._remove, kind, key)):
            if pod and pod.node_name:
                self._set_pod(occupant(pod))
            elif placed and placed.state is not PodState.ADDED:  # its Binding may be on its way
                if (waiting := self._pods.remove(key)) is not None:
                    self._notifications.changed(POD, waiting, None)
                self._placements.update_info(occupant(placed.info.pod))
                self._note_pod(key)
            else:
                self._remove(kind, key)
                return
            self._set_aside[reference] = True

    def _end_list(self, kind: str, asked_at: float, *, repair: bool) -> None:
        repair = repair or any(reference[0] == kind for reference in self._set_aside)
        for lost in self._objects.lost(kind, asked_at):  # the API server lost these when it was restored from a backup
            self._objects.drop(kind, lost.key)
            self._note_object(kind, lost.key)
            self._notifications.discarded(lost, self._objects.effective(kind, lost.key))
        if repair:
            self._repair(kind)
        self._listed_at[kind] = asked_at
        self._changes.note_listed(kind)

    def _repair(self, kind: str) -> None:
        """Corrects placements and tables after an interrupted change. A list has already corrected the objects."""
        if kind == POD:
            for uid in self._placements.confirmed() - self._pods.watched.keys():  # removing these pods was interrupted
                self._try((kind, uid), partial(self._displace, uid, PodEvent.REMOVE))
            placed, pods = self._placements.by_uid(), self._pods.watched
            current: dict[str, Current] = {uid: self._pods.effective(uid) for uid in pods}
            current |= placed
        else:
            current = {key: self._objects.effective(kind, key) for key in self._objects.keys(kind)}
        held = {key: each for key, each in current.items() if self._set_aside.get((kind, key), True)}
        self._changes.restart(kind, held)
        self._notifications.missed()

    def _set(self, kind: str, stored: Object | PodInfo) -> None:
        if not isinstance(stored, PodInfo):
            self._set_object(kind, stored)
        elif stored.pod.finished:
            self._remove_pod(stored.uid)
        else:
            self._set_pod(stored)

    def _remove(self, kind: str, key: str) -> None:
        self._remove_pod(key) if kind == POD else self._remove_object(kind, key)

    def _set_object(self, kind: str, obj: Object) -> None:
        written = self._objects.assumed(kind, obj.key)
        before = self._objects.put(kind, obj)
        self._note_object(kind, obj.key)
        if written is not None and before is not None and version_of(before) < version_of(written) < version_of(obj):
            self._notifications.changed(kind, before, written)  # readers saw `written`, but the watch did not show it
            before = written
        self._notifications.changed(kind, before, obj)

    def _remove_object(self, kind: str, key: str) -> None:
        removed = self._objects.remove(kind, key)
        self._note_object(kind, key)
        if removed is not None:
            self._notifications.changed(kind, removed, None)

    def _set_pod(self, info: PodInfo) -> None:
        uid = info.uid
        before, info = self._pods.effective(uid), self._pods.put(info)
        placed, node_name = self._placements.get(uid), info.pod.node_name
        if placed and placed.node_name != node_name and (node_name or placed.state is PodState.ADDED):
            self._displace(uid, PodEvent.REMOVE)  # bound to another node, or lost in a restore of the API server
        if node_name:
            self._placements.confirm(info)
        elif placed and version_of(info.pod) >= version_of(placed.info.pod):
            self._placements.update_info(info)  # the pod may have been resized since it was assumed
        self._note_pod(uid)
        self._notifications.changed(POD, before, self._pods.effective(uid))

    def _remove_pod(self, uid: str) -> None:
        removed = self._pods.remove(uid)
        if uid in self._placements:
            self._displace(uid, PodEvent.REMOVE)
        else:
            self._note_pod(uid)
        if removed is not None:
            self._notifications.changed(POD, removed, None)

    def _check_assumable(self, info: PodInfo, node_name: str) -> None:
        """Raises UnknownNode if the cache lacks the node, and IllegalTransition if the pod has a node already."""
        if self._objects.observed(NODE, node_name) is None:
            raise UnknownNode(f"node {node_name} is not in the cache")
        after(self._placements.state(info.uid), PodEvent.ASSUME)

    def _assume(self, info: PodInfo, node_name: str, annotations: Annotations) -> None:
        self._placements.assume(info, node_name, annotations)
        try:
            self._note_pod(info.uid)
        except BaseException:
            self._placements.remove(info.uid, PodEvent.FORGET)
            self._interrupted.add(POD)
            raise

    def _displace(self, uid: str, event: PodEvent) -> PodPlacement:
        """Removes the pod from its node and notifies the listener; returns the former placement."""
        placement = self._placements.remove(uid, event)
        self._note_pod(uid)
        self._notifications.displaced(placement, event)
        return placement

    # ---- the journal and the lock

    def _note_object(self, kind: str, key: str) -> None:
        obj = self._objects.effective(kind, key)
        self._changes.note(kind, key, obj)
        self.groups.set_object(kind, key, obj)

    def _note_pod(self, uid: str) -> None:
        placement = self._placements.get(uid)
        info = placement.info if placement else self._pods.effective(uid)
        self._changes.note(POD, uid, placement or info)
        self.groups.update(uid, info, placement.state if placement else PodState.INITIAL)

    @contextmanager
    def _changing(self, caller: str, kind: str = POD) -> Iterator[None]:
        """Holds the lock during a change, then notifies the listener. An unexpected error marks the kind for repair."""
        try:
            with self._locked(caller):
                yield
                notifications = self._notifications.take()
            if not deliver(notifications, self._telemetry.set_aside):
                self._listener_missed = True  # the sweep tells the queue: that may be slow, and errors may be frequent
        except ExtenderError:
            raise
        except BaseException:
            self._interrupted.add(kind)
            raise
