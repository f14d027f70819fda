"""Passes changes of the cache to the queue (upstream eventhandlers.go), and finds pods that the queue has lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from extender.cache.cache import Cache
from extender.cache.changes import NODE, POD
from extender.cache.observed import CachedPod
from extender.cache.pod_states import PodEvent, PodPlacement
from extender.devices.pod_claims import may_be_backed
from extender.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    Action,
    Change,
    ClusterEvent,
    Resource,
    Room,
    node_events,
    pod_events,
)
from extender.model.devices import PendingClaim
from extender.model.kinds import KINDS
from extender.model.meta import CustomObject
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, GroupName, PodGroup, SchedulingGroup
from extender.preemption.candidates import evictable
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.threads import SetAside, going_on
from extender.table import PodInfo, Table

PODS = "pods"
Group = PodGroup | CompositePodGroup
_log = logging.getLogger(__name__)
_RESOURCES = {resource.value.rpartition("/")[2]: resource for resource in Resource}
_RESOURCE_OF = {kind: _RESOURCES[kind] for kind in KINDS if kind != POD}
# If a claim is dropped before its allocation is written, its devices become free.
_RESOURCE_OF[PendingClaim.__name__] = Resource.RESOURCE_CLAIM


@dataclass(frozen=True, slots=True)
class EventRouter:
    """The cache's Listener: passes each change to the queue after the cache has stored it.

    Attributes:
        scheduler_names: the schedulerNames of the pods that the loop places.
        on_displaced: called with each pod that lost its node.
    """

    cache: Cache
    queue: PriorityQueue
    scheduler_names: Collection[str]
    on_displaced: Callable[[Pod], object] = lambda _: None

    def changed(self, kind: str, before: Any, after: Any) -> None:
        if before is not None and after is not None and _is_same(before, after):
            return
        if kind == POD:
            self._pod_changed(before, after)
        elif kind in _RESOURCE_OF or isinstance(before or after, CustomObject):
            if isinstance(before or after, SchedulingGroup):
                self._group_changed(before, after)
            for event in _events(kind, before, after):
                self.queue.move(Change(event, before, after))

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        """Requeues pods that may fit now that a pod has left its node.

        If the pod left because the watch never confirmed its bind, that pod is queued again too, because it may have no
        node.
        """
        info = placement.info
        self.on_displaced(info.pod)
        placed = info if info.pod.node_name else PodInfo(info.pod.placed_on(placement.node_name))
        self.queue.move(Change(ASSIGNED_POD_DELETE, placed, room=self._room(placement.node_name)))
        if event is PodEvent.EXPIRE:
            waiting = self.cache.find_pod(info.uid, info.pod.key)
            if waiting is not None and not waiting.pod.node_name:
                self.queue.add(waiting)

    def missed(self) -> None:
        """Requeues all rejected pods, because events were lost.

        If the lost event was the arrival of a pod, QueueSweep adds this pod later.
        """
        self.queue.events_missed()

    def _pod_changed(self, before: PodInfo | None, after: PodInfo | None) -> None:
        if after is None:
            self._pod_gone(before)
        elif after.pod.node_name:
            self._assigned_pod_changed(before, after)
        elif self._is_responsible_for(after.pod):
            self.queue.add(after)
            if before is not None and before.pod.status.nominated_node_name != after.pod.status.nominated_node_name:
                self.queue.nomination_ended(before)

    def _assigned_pod_changed(self, before: PodInfo | None, after: PodInfo) -> None:
        if before is not None and before.pod.node_name:
            for event in pod_events(before, after, target=False):
                self.queue.move(Change(event, before, after, self._room(after.pod.node_name)))
            return
        if self._is_responsible_for(after.pod):
            self.queue.delete(after.uid)
        self.queue.move(Change(ASSIGNED_POD_ADD, None, after))
        if (key := after.pod.group_key) is not None:
            self.queue.admit_again(self.cache.groups.root_of(key), ASSIGNED_POD_ADD.label)
        if before is not None and before.pod.status.nominated_node_name != after.pod.node_name:
            self.queue.nomination_ended(before)

    def _group_changed(self, before: Group | None, after: Group | None) -> None:
        if before is not None and after is not None:
            if before.uid != after.uid and self.cache.features.behaviours.recreated_groups_are_new:
                self._group_changed(before, None)
                before = None
            elif _decisive(before) == _decisive(after):
                return  # only conditions changed that the scheduler itself writes
        versions = [group for group in (before, after) if group is not None]
        # While a group did not exist, its members were queued under its name.
        roots = {GroupName.of(versions[0]), *map(self.cache.groups.root_above, versions)}
        now_below = None if after is None else self.cache.groups.root_above(after)
        for event in _events(type(versions[0]).__name__, before, after):
            self.queue.groups_changed(roots, event.label, now_below)

    def _pod_gone(self, before: PodInfo | None) -> None:
        if before is not None and not before.pod.node_name and self._is_responsible_for(before.pod):
            self.queue.delete(before.uid)
            self.queue.nomination_ended(before)

    def _is_responsible_for(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self.scheduler_names

    def _room(self, node_name: str) -> Room:
        """Returns a function for queueing hints, which computes the free resources of the node."""

        def free(priority: int) -> Mapping[str, int] | None:
            with self.cache.snapshot("queue") as table:
                return free_on(table, node_name, priority)

        return free


@dataclass(slots=True)
class QueueSweep:
    """Finds and corrects differences between the queue and the cache, which only an error can cause.

    `run` corrects a difference if two calls in a row have found it. One call is not enough, because the queue receives
    each change a moment after the cache.

    Attributes:
        set_aside: receives the error of a pod that cannot be added or removed; the next run tries again.
        missing: (UID, NAMESPACE/NAME) of the pods that the queue lacked in the last run.
        surplus: the UIDs of the pods that the queue should not have had in the last run.
    """

    cache: Cache
    queue: PriorityQueue
    scheduler_names: Collection[str]
    set_aside: SetAside
    missing: frozenset[tuple[str, str]] = frozenset()
    surplus: frozenset[str] = frozenset()

    def run(self) -> None:
        """Adds pods that the queue lacks, and removes pods from the queue that were deleted or bound.

        If the queue has missed a change because of an error, requeues all rejected pods, too.
        """
        if self.cache.take_missed():
            self.queue.events_missed()
        pods = self.cache.pods()
        tiers = self.queue.pods()
        waiting = {info.uid for infos in tiers.values() for info in infos}
        in_flight = {info.uid for info in self.queue.pods_in_flight()}
        expected = {(uid, pod.key) for uid, cached in pods.items() if (pod := cached.pod) and self._waits(pod, cached)}
        missing = frozenset((uid, key) for uid, key in expected if uid not in waiting and uid not in in_flight)
        surplus = frozenset(uid for uid in waiting if not _may_wait(pods.get(uid)))
        for uid, key in missing & self.missing:
            with going_on(self.set_aside, "queue sweep", key):
                if (info := self.cache.find_pod(uid, key)) is not None:
                    self.queue.add(info)
                    _log.error("added a waiting pod that the queue lacked pod=%s", key)
        for uid in surplus & self.surplus:
            with going_on(self.set_aside, "queue sweep", uid):
                self.queue.delete(uid)
                _log.error("removed a pod from the queue that is not waiting for a node uid=%s", uid)
        self.missing = missing
        self.surplus = surplus

    def _waits(self, pod: Pod, cached: CachedPod) -> bool:
        """Returns True if the pod has no node, is not terminating, and is for one of this scheduler's profiles."""
        if cached.node_name or pod.terminating:
            return False
        return pod.spec.scheduler_name in self.scheduler_names


def _may_wait(cached: CachedPod | None) -> bool:
    return cached is not None and cached.pod is not None and not cached.pod.node_name


def free_on(table: Table, node_name: str, priority: int) -> Mapping[str, int] | None:
    """Returns how much of each resource the node has free if all pods of lower priority leave.

    Returns None while pods are nominated to the node (see Room). If there is no such node, no pod fits: `{PODS: 0}`.
    """
    nodes = table.nodes
    row = nodes.row_of.get(node_name)
    if row is None or not nodes.present[row]:
        return {PODS: 0}
    if node_name in table.nominated:
        return None
    lower = evictable(table, table.pods.on(row), priority)
    offered = nodes.allocatable[:, row]
    if row in table.capped_rows:
        free = offered - table.pods.capped_sum(np.setdiff1d(table.pods.on(row), lower))
    else:
        free = offered - nodes.requested[:, row]
        free += table.pods.requested[:, lower].sum(axis=1)
    return {name: int(free[i]) for name, i in nodes.resources.items() if offered[i] or not may_be_backed(name)}


def _events(kind: str, before: Any, after: Any) -> list[ClusterEvent]:
    if kind == NODE and isinstance(before, Node) and isinstance(after, Node):
        return node_events(before, after)
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    return [ClusterEvent(_RESOURCE_OF.get(kind, Resource.CUSTOM_OBJECT), action)]


def _decisive(group: Group) -> object:
    """Returns those parts of the group that decisions depend on."""
    return group.spec, group.status.resource_claim_statuses if isinstance(group, PodGroup) else None


def _is_same(before: Any, after: Any) -> bool:
    """Returns True if both objects have the same version and contents.

    The contents are compared too, because a restored API server may use a version a second time.
    """
    if isinstance(before, PodInfo):
        before, after = before.pod, after.pod
    version = before.metadata.resource_version
    return bool(version) and version == after.metadata.resource_version and before == after
