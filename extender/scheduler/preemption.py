"""Preemption carried out: victims are evicted by workers, while the preemptor is kept from being tried.

Source: upstream preemption.Executor (KEP-4832).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.errors import ClusterError
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import Events, Evictor, SchedulerTelemetry, Workers
from extender.scheduler.scheduling_cycle import EvictionPlan
from extender.table import PodInfo

_log = logging.getLogger(__name__)


class EvictionsInProgress:
    """A PreEnqueue rule: a preemptor is not tried while its victims are being evicted.

    The last victim may be seen leaving before the call that evicts it returns. Were the preemptor still kept then, the
    event that should wake it would be lost on it; so from that moment on it is admitted. An event that came earlier,
    such as the first victim's leaving, is made up for at the end.
    """

    name = "DefaultPreemption"

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._last_victim: dict[str, PodInfo | None] = {}
        self._held_back: set[str] = set()

    def admits(self, pod: PodInfo) -> bool:
        """See PreEnqueue."""
        with self._lock:
            if pod.uid not in self._last_victim:
                return True
            victim = self._last_victim[pod.uid]
        if victim is not None and self._leaves(victim):
            return True
        with self._lock:
            if pod.uid not in self._last_victim:  # it has ended in this moment
                return True
            self._held_back.add(pod.uid)
            return False

    def begin(self, preemptor: PodInfo) -> None:
        """Keeps the preemptor from being tried until `end`."""
        self._set_last_victim(preemptor, None)

    def begin_last(self, preemptor: PodInfo, victim: PodInfo) -> None:
        """Admits the preemptor as soon as `victim`, the last one to be evicted, is seen leaving."""
        self._set_last_victim(preemptor, victim)

    def end(self, preemptor: PodInfo) -> bool:
        """Admits the preemptor; returns whether it would have been tried meanwhile."""
        with self._lock:
            self._last_victim.pop(preemptor.uid, None)
            held_back = preemptor.uid in self._held_back
            self._held_back.discard(preemptor.uid)
            return held_back

    def _set_last_victim(self, preemptor: PodInfo, victim: PodInfo | None) -> None:
        with self._lock:
            self._last_victim[preemptor.uid] = victim

    def _leaves(self, victim: PodInfo) -> bool:
        known = self._cache.find_pod(victim.uid, victim.pod.key)
        return known is None or known.pod.terminating


@dataclass(frozen=True, slots=True)
class PreemptionExecutor:
    """Makes room on nodes.

    Attributes:
        in_progress: the rule that the queue asks.
        workers: threads that evict.
        waiting: the pods that are not bound yet: such a victim is cancelled, and not deleted.
    """

    in_progress: EvictionsInProgress
    cache: Cache
    queue: PriorityQueue
    nominations: Nominations
    evictor: Evictor
    events: Events
    telemetry: SchedulerTelemetry
    workers: Workers
    waiting: WaitingPods

    def begin(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Keeps the preemptor from being tried, until `carry_out` is done or `cancel` is called.

        Where all victims terminate already there is nothing to do, and the next event may be the one it waits for.
        """
        if _staying(plan):
            self.in_progress.begin(preemptor)

    def cancel(self, preemptor: PodInfo) -> None:
        """Admits the preemptor again without evicting anybody."""
        self.in_progress.end(preemptor)

    def carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Has the victims evicted; the preemptor is in the queue by now."""
        self.telemetry.preempted(len(plan.victims))
        self.workers.submit(lambda: self._carry_out(preemptor, plan))

    def _carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        try:
            self.nominations.withdraw(plan.outranked)
            victims = _staying(plan)
            self._evict_all(preemptor, victims, plan.node_name)
        except Exception as error:  # whatever it was, the preemptor must not wait for ever
            unexpected = None if isinstance(error, ClusterError) else error
            _log.warning("preemption for %s on %s: %s", preemptor.pod.key, plan.node_name, error, exc_info=unexpected)
            self.in_progress.end(preemptor)
            self.queue.back_off(preemptor.uid)
        else:
            held_back = self.in_progress.end(preemptor)
            # One that is still there wakes the preemptor as it leaves; till then each attempt would choose it again.
            if held_back or not any(self.cache.placement(victim.uid) for victim in victims):
                self.queue.activate([preemptor.uid])

    def _evict_all(self, preemptor: PodInfo, victims: Sequence[PodInfo], node_name: str) -> None:
        for victim in victims:
            if victim is victims[-1]:
                self.in_progress.begin_last(preemptor, victim)
            if self.waiting.cancel(victim.uid, f"preempted by {preemptor.pod.key}"):
                self._record(preemptor, victim, f"on node {node_name} before it was bound")
            else:
                self._evict(preemptor, victim, node_name)

    def _evict(self, preemptor: PodInfo, victim: PodInfo, node_name: str) -> None:
        scheduler = preemptor.pod.spec.scheduler_name
        if self.evictor.evict(victim.pod, f"{scheduler}: preempting to accommodate a higher priority pod"):
            self.cache.evicted(victim.uid)  # the preemptor may be tried before the watch tells: it evicts no others
            self._record(preemptor, victim, f"on node {node_name}")

    def _record(self, preemptor: PodInfo, victim: PodInfo, where: str) -> None:
        note = f"Preempted by pod {preemptor.uid} {where}"
        self.events.record(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod)


def _staying(plan: EvictionPlan) -> list[PodInfo]:
    return [victim for victim in plan.victims if not victim.pod.terminating]
