"""Carries out the loop's preemption: workers evict the victims while the preemptor waits.

Source: upstream preemption.Executor (KEP-4832). `rule_preemption` does the same for the webhook.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from extender.cache.cache import Cache
from extender.engine.decision import EvictionPlan
from extender.errors import ClusterError
from extender.framework.status import Refusal, unresolvable
from extender.model.pod_groups import SchedulingGroup
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import Clock
from extender.scheduler.scheduler_ports import Events, Evictor, Preemptors, SchedulerTelemetry, Statuses, WaitingForBind
from extender.table import PodInfo

_log = logging.getLogger(__name__)

_EVICTING = unresolvable("DefaultPreemption", "waiting until its victims are evicted")


@dataclass(slots=True)
class _Evictions:
    """The evictions in progress for one preemptor.

    Attributes:
        held_back: the UIDs of the pods that wait until the evictions end; the preemptor is one of them.
    """

    node_name: str
    last_victim: PodInfo | None = None
    held_back: set[str] = field(default_factory=set)


class EvictionsInProgress:
    """A PreEnqueue rule that keeps a preemptor waiting while its victims are being evicted.

    The rule admits the preemptor once the cache shows that the last victim is terminating. The end of the eviction call
    would be too late: the victim may be gone by then, and no later event would wake the preemptor.

    While the rule refuses a preemptor, the preemptor may miss an event, such as the deletion of the first victim.
    Therefore `end` returns such a preemptor, and the caller puts it back into the active or the backoff queue.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._by_preemptor: dict[str, _Evictions] = {}

    def refuse(self, pod: PodInfo) -> Refusal | None:
        with self._lock:
            evictions = self._by_preemptor.get(pod.uid)
            victim = evictions.last_victim if evictions else None
        if evictions is None or (victim is not None and self._leaves(victim)):
            return None
        with self._lock:
            evictions.held_back.add(pod.uid)
            # If the evictions have just ended, the pod is admitted, because no event would wake it later.
            return _EVICTING if pod.uid in self._by_preemptor else None

    def begin(self, preemptor: PodInfo, node_name: str) -> None:
        """Keeps the preemptor waiting until `end` is called."""
        with self._lock:
            earlier = self._by_preemptor.get(preemptor.uid)
            held_back = earlier.held_back if earlier else set()
            self._by_preemptor[preemptor.uid] = _Evictions(node_name, held_back=held_back)

    def hold_back(self, pod: PodInfo, node_name: str) -> bool:
        """Returns True if pods are being evicted from the node. If so, `pod` is tried again afterwards."""
        with self._lock:
            on_node = [evictions for evictions in self._by_preemptor.values() if evictions.node_name == node_name]
            for evictions in on_node:
                evictions.held_back.add(pod.uid)
            return bool(on_node)

    def begin_last(self, preemptor: PodInfo, victim: PodInfo) -> None:
        """Records which victim is the last. The preemptor is admitted when the watch shows this victim terminating."""
        with self._lock:
            if preemptor.uid in self._by_preemptor:  # there is no entry if the preemptor was admitted again
                self._by_preemptor[preemptor.uid].last_victim = victim

    def end(self, preemptor: PodInfo) -> Collection[str]:
        """Admits the preemptor; returns the UIDs of the pods that waited, which the caller has to requeue."""
        with self._lock:
            evictions = self._by_preemptor.pop(preemptor.uid, None)
            return frozenset(evictions.held_back) if evictions is not None else ()

    def _leaves(self, victim: PodInfo) -> bool:
        cached = self._cache.find_pod(victim.uid, victim.pod.key)
        return cached is None or cached.pod.terminating


class Nominations:
    """Nominates waiting pods to nodes. The cache owns the nominations, and the pods' statuses repeat them.

    Args:
        ended: called with each pod whose nomination to an earlier node ends.
    """

    def __init__(self, cache: Cache, statuses: Statuses, ended: Callable[[PodInfo], object] = lambda _: None) -> None:
        self._cache = cache
        self._statuses = statuses
        self._ended = ended

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod in the cache; "" ends its nomination.

        When a nomination ends, pods of the same or a lower priority may use its node.
        """
        before = self._cache.nominate(info.uid, node_name)
        if before != node_name:
            self._ended(PodInfo(info.pod.nominated_to(before)))

    def withdraw(self, infos: Iterable[PodInfo]) -> None:
        """Ends the pods' nominations, in the cache and in their statuses."""
        for info in infos:
            self.nominate(info, "")
            self._statuses.nominate(info.pod, "")


@dataclass(frozen=True, slots=True)
class VictimEvictor:
    """Evicts victims, and records an event about each.

    Attributes:
        waiting: the pods between their decision and their bind. For a victim among these pods, the bind is cancelled
            and the pod is not deleted.
    """

    cache: Cache
    evictor: Evictor
    events: Events
    waiting: WaitingForBind

    def evict(self, preemptor: PodInfo, victim: PodInfo, node_name: str, group: SchedulingGroup | None = None) -> bool:
        """Evicts the victim for the preemptor or its whole group; returns False if the preemptor needs no room now.

        The preemptor is checked again just before the deletion, because the patch of the victim's status may take long.
        If the victim then stays, kube-controller-manager resets its condition DisruptionTarget after two minutes.

        Raises ClusterError if the victim may still exist.
        """
        if not self._needs_room(preemptor):
            return False
        if self.waiting.preempt(victim.uid, preemptor.pod.key):
            self._record(preemptor, victim, f"on node {node_name} before it was bound", group)
            return True
        scheduler, kind = preemptor.pod.spec.scheduler_name, _kind(group)
        reason = f"{scheduler}: preempting to accommodate a higher priority {kind}"
        existed = self.evictor.mark_victim(victim.pod, reason)
        if not self._needs_room(preemptor):
            return False
        existed = existed and self.evictor.delete_victim(victim.pod)
        # The cache shows the victim as leaving, so that a retry before the watch event evicts no other pods.
        self.cache.evicted(victim.uid)
        if existed:
            self._record(preemptor, victim, f"on node {node_name}", group)
        return True

    def _needs_room(self, preemptor: PodInfo) -> bool:
        """Returns False if evictions cannot help: the preemptor was deleted, is terminating or has a node."""
        cached = self.cache.find_pod(preemptor.uid, preemptor.pod.key)
        needs_room = cached is not None and not cached.pod.terminating and self.cache.placement(preemptor.uid) is None
        if not needs_room:
            reason = "the pod was deleted or has a node"
            _log.debug("preemption abandoned pod=%s reason=%r", preemptor.pod.key, reason)
        return needs_room

    def _record(self, preemptor: PodInfo, victim: PodInfo, where: str, group: SchedulingGroup | None = None) -> None:
        """Records the event that the victim was preempted. `where` is the last part of the message."""
        note = f"Preempted by {_kind(group)} {group.uid if group else preemptor.uid} {where}"
        self.events.record(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod)


@dataclass(frozen=True, slots=True)
class PreemptionExecutor:
    """Evicts the victims of the loop's preemptors.

    Attributes:
        in_progress: the PreEnqueue rule that keeps a preemptor out of the active queue during its evictions.
        workers: run the evictions.
    """

    in_progress: EvictionsInProgress
    cache: Cache
    queue: PriorityQueue
    nominations: Nominations
    evictor: VictimEvictor
    telemetry: SchedulerTelemetry
    clock: Clock
    workers: Preemptors

    def begin(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Keeps the preemptor waiting until `carry_out` has finished or `cancel` is called.

        Does nothing if all victims are already terminating. No evictions are needed then, and the next event, such as
        the deletion of a victim, must be able to wake the preemptor.
        """
        if staying(plan):
            self.in_progress.begin(preemptor, plan.node_name)

    def has_to_wait(self, preemptor: PodInfo) -> bool:
        """Returns True if pods are being evicted from this preemptor's nominated node for another preemptor.

        Both preemptors may fit once these pods are gone. So this preemptor evicts no pods, and is tried again when the
        evictions have ended.
        """
        has_to_wait = self.in_progress.hold_back(preemptor, self.cache.nominated_node(preemptor.uid))
        if has_to_wait:
            reason = "pods are being evicted from its nominated node for another pod"
            _log.debug("preemption abandoned pod=%s reason=%r", preemptor.pod.key, reason)
        return has_to_wait

    def cancel(self, preemptor: PodInfo) -> None:
        """Admits the preemptor again, because no pod will be evicted."""
        self.queue.activate(self.in_progress.end(preemptor))

    def carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Starts the evictions. The preemptor must already be back in the queue."""
        self.telemetry.preempted(_kind(plan.group), len(plan.victims), plan.pdb_violations, plan.disruptions)
        self.workers.submit(lambda: self._carry_out(preemptor, plan))

    def _carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        try:
            self.nominations.withdraw(plan.outranked)
            victims = staying(plan)
            self._evict_all(preemptor, victims, plan)
        except ClusterError as error:
            _log.warning("preemption failed pod=%s node=%s reason=%r", preemptor.pod.key, plan.node_name, str(error))
            self._end_in_error(preemptor)
        except Exception as error:  # neither the preemptor nor the pods that it holds back may wait forever
            self._end_in_error(preemptor)
            self.telemetry.set_aside("preemption", preemptor.pod.key, error)
        else:
            self.queue.activate(self.in_progress.end(preemptor))
            # A victim that still exists wakes the preemptor when it is gone. A retry now would choose it again.
            if victims and not any(self.cache.placement(victim.uid) for victim in victims):
                self.queue.activate([preemptor.uid])

    def _end_in_error(self, preemptor: PodInfo) -> None:
        held_back = self.in_progress.end(preemptor)
        self.queue.back_off(preemptor.uid)
        self.queue.activate(uid for uid in held_back if uid != preemptor.uid)

    def _evict_all(self, preemptor: PodInfo, victims: Sequence[PodInfo], plan: EvictionPlan) -> None:
        """Evicts all victims but the last side by side, then the last one.

        The preemptor is tried again when the watch shows that the last victim is terminating.
        """

        def evict(victim: PodInfo) -> None:
            self.evictor.evict(preemptor, victim, plan.node_name, plan.group)

        if victims:
            with self._timed(plan):
                self.workers.run_all([partial(evict, victim) for victim in victims[:-1]])
                self.in_progress.begin_last(preemptor, victims[-1])
                evict(victims[-1])

    @contextmanager
    def _timed(self, plan: EvictionPlan) -> Iterator[None]:
        began_at = self.clock.monotonic()
        result = "error"
        try:
            yield
            result = "success"
        finally:
            self.telemetry.evictions_ended(_kind(plan.group), result, self.clock.monotonic() - began_at)


def _kind(group: SchedulingGroup | None) -> str:
    return "pod" if group is None else type(group).__name__.lower()


def staying(plan: EvictionPlan) -> list[PodInfo]:
    """Returns the victims that are not terminating yet."""
    return [victim for victim in plan.victims if not victim.pod.terminating]
