"""Preemption carried out: victims are evicted in a thread of their own, while the preemptor is kept from being tried.

Source: upstream preemption.Executor (KEP-4832).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from extender.cache.cache import Cache
from extender.errors import ClusterError
from extender.preemption import Candidate
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import Events, SchedulerTelemetry, Victims, Workers
from extender.table import PodInfo

_log = logging.getLogger(__name__)


class EvictionsInProgress:
    """A PreEnqueue rule: a preemptor is not tried while its victims are being evicted.

    The last victim may be seen leaving before the call that evicts it returns. Were the preemptor still kept then, the
    event that should wake it would be lost on it; so from that moment on it is let go. Of an event that came earlier,
    as of the first victim's leaving, it is told at the end.
    """

    name = "DefaultPreemption"

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._last_victim: dict[str, PodInfo | None] = {}
        self._held_back: set[str] = set()

    def admits(self, pod: PodInfo) -> bool:
        """See state.pre_enqueue.PreEnqueue."""
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
        self._note(preemptor, None)

    def come_to_last(self, preemptor: PodInfo, victim: PodInfo) -> None:
        self._note(preemptor, victim)

    def end(self, preemptor: PodInfo) -> bool:
        """Whether the preemptor would have been tried meanwhile."""
        with self._lock:
            self._last_victim.pop(preemptor.uid, None)
            held_back = preemptor.uid in self._held_back
            self._held_back.discard(preemptor.uid)
            return held_back

    def has_evicted(self, victim: PodInfo) -> None:
        """The preemptor may be tried before the watch tells of that: it must not evict others meanwhile."""
        self._cache.evicted(victim.uid)

    def _note(self, preemptor: PodInfo, last_victim: PodInfo | None) -> None:
        with self._lock:
            self._last_victim[preemptor.uid] = last_victim

    def _leaves(self, victim: PodInfo) -> bool:
        known = self._cache.find_pod(victim.uid, victim.pod.key)
        return known is None or known.pod.terminating


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Makes room on nodes.

    Attributes:
        under_way: the rule that the queue asks.
        workers: where victims are evicted.
        waiting: the pods that are not bound yet: such a victim is called off, and not deleted.
    """

    under_way: EvictionsInProgress
    queue: PriorityQueue
    nominations: Nominations
    victims: Victims
    events: Events
    telemetry: SchedulerTelemetry
    workers: Workers
    waiting: WaitingPods

    def begin(self, preemptor: PodInfo, candidate: Candidate) -> None:
        """Keeps the preemptor from being tried, until `carry_out` is done or `cancel` is called.

        Where all victims terminate already there is nothing to be done, and the next event may be the one it waits for.
        """
        if _staying(candidate):
            self.under_way.begin(preemptor)

    def cancel(self, preemptor: PodInfo) -> None:
        """No room is to be made after all."""
        self.under_way.end(preemptor)

    def carry_out(self, preemptor: PodInfo, candidate: Candidate) -> None:
        """Has the candidate's victims evicted; the preemptor is in the queue by now."""
        self.telemetry.preempted(len(candidate.victims))
        self.workers.submit(lambda: self._carry_out(preemptor, candidate.node, _staying(candidate)))

    def _carry_out(self, preemptor: PodInfo, node_name: str, victims: list[PodInfo]) -> None:
        awake = False
        try:
            self.nominations.end_lesser(node_name, preemptor.priority)
            for victim in victims:
                if victim is victims[-1]:
                    self.under_way.come_to_last(preemptor, victim)
                awake = not self._take_away(preemptor, node_name, victim)
        except Exception as error:  # whatever it was, the preemptor must not wait for ever
            unexpected = None if isinstance(error, ClusterError) else error
            _log.warning("preemption for %s on %s: %s", preemptor.pod.key, node_name, error, exc_info=unexpected)
            awake = True  # no victim's leaving may come to wake it
        finally:
            held_back = self.under_way.end(preemptor)
        if awake or held_back:
            self.queue.activate([preemptor.uid])

    def _take_away(self, preemptor: PodInfo, node_name: str, victim: PodInfo) -> bool:
        """Whether the victim's leaving will be heard of; not so if it was only called off, or had left before."""
        if not self.waiting.call_off(victim.uid, f"preempted by {preemptor.pod.key}"):
            return self._evict(preemptor, node_name, victim)
        note = f"Preempted by pod {preemptor.uid} on node {node_name} before it was bound"
        self.events.record(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod)
        return False

    def _evict(self, preemptor: PodInfo, node_name: str, victim: PodInfo) -> bool:
        name = preemptor.pod.spec.scheduler_name
        evicted = self.victims.evict(victim.pod, f"{name}: preempting to accommodate a higher priority pod")
        if evicted:
            self.under_way.has_evicted(victim)
            note = f"Preempted by pod {preemptor.uid} on node {node_name}"
            self.events.record(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod)
        return evicted


def _staying(candidate: Candidate) -> list[PodInfo]:
    return [victim for victim in candidate.victims if not victim.pod.terminating]
