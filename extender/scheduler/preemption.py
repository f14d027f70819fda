"""Preemption carried out: victims are evicted by workers, while the preemptor is kept from being tried.

Source: upstream preemption.Executor (KEP-4832).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from extender.cache.cache import Cache
from extender.errors import ClusterError, DeadlineExceeded
from extender.framework.find_fit import Fit, find_fit
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Code
from extender.plugins.users.predicate import CustomPredicate
from extender.preemption import preempt
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import Events, Evictor, SchedulerTelemetry, Statuses, Workers
from extender.scheduler.scheduling_cycle import EvictionPlan, eviction_plan
from extender.table import PodInfo
from extender.table.labels import Rows

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Evictions:
    """Those for one preemptor.

    Attributes:
        held_back: the UIDs of the pods that would have been tried meanwhile, the preemptor's or others'.
    """

    node_name: str
    last_victim: PodInfo | None = None
    held_back: set[str] = field(default_factory=set)


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
        self._by_preemptor: dict[str, _Evictions] = {}

    def admits(self, pod: PodInfo) -> bool:
        with self._lock:
            evictions = self._by_preemptor.get(pod.uid)
            victim = evictions.last_victim if evictions else None
        if evictions is None or (victim is not None and self._leaves(victim)):
            return True
        with self._lock:
            evictions.held_back.add(pod.uid)
            return pod.uid not in self._by_preemptor  # they may have ended in this moment

    def begin(self, preemptor: PodInfo, node_name: str) -> None:
        """Keeps the preemptor from being tried until `end`."""
        with self._lock:
            before = self._by_preemptor.get(preemptor.uid)
            self._by_preemptor[preemptor.uid] = _Evictions(node_name, held_back=before.held_back if before else set())

    def hold_back(self, pod: PodInfo, node_name: str) -> bool:
        """Returns whether pods are being evicted from the node; the pod is among those to be tried when that ends."""
        with self._lock:
            there = [evictions for evictions in self._by_preemptor.values() if evictions.node_name == node_name]
            for evictions in there:
                evictions.held_back.add(pod.uid)
            return bool(there)

    def begin_last(self, preemptor: PodInfo, victim: PodInfo) -> None:
        """Admits the preemptor as soon as `victim`, the last one to be evicted, is seen leaving."""
        with self._lock:
            if preemptor.uid in self._by_preemptor:  # it may have been admitted, and tried again, before
                self._by_preemptor[preemptor.uid].last_victim = victim

    def end(self, preemptor: PodInfo) -> Collection[str]:
        """Admits the preemptor; returns the UIDs of the pods that are to be tried now."""
        with self._lock:
            evictions = self._by_preemptor.pop(preemptor.uid, None)
            return frozenset(evictions.held_back) if evictions is not None else ()

    def _leaves(self, victim: PodInfo) -> bool:
        known = self._cache.find_pod(victim.uid, victim.pod.key)
        return known is None or known.pod.terminating


@dataclass(frozen=True, slots=True)
class VictimEvictor:
    """Evicts victims, and tells of it."""

    cache: Cache
    evictor: Evictor
    events: Events

    def evict(self, preemptor: PodInfo, victim: PodInfo, node_name: str) -> None:
        """Has the victim leave. Raises ClusterError: it may still be there."""
        scheduler = preemptor.pod.spec.scheduler_name
        found = self.evictor.evict(victim.pod, f"{scheduler}: preempting to accommodate a higher priority pod")
        self.cache.evicted(victim.uid)  # the preemptor may be tried before the watch tells: it evicts no others
        if found:
            self.record(preemptor, victim, f"on node {node_name}")

    def record(self, preemptor: PodInfo, victim: PodInfo, where: str) -> None:
        """Records the victim's event."""
        note = f"Preempted by pod {preemptor.uid} {where}"
        self.events.record(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod)


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
    evictor: VictimEvictor
    telemetry: SchedulerTelemetry
    workers: Workers
    waiting: WaitingPods

    def begin(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Keeps the preemptor from being tried, until `carry_out` is done or `cancel` is called.

        Where all victims terminate already there is nothing to do, and the next event may be the one it waits for.
        """
        if _staying(plan):
            self.in_progress.begin(preemptor, plan.node_name)

    def has_to_wait(self, preemptor: PodInfo) -> bool:
        """Returns whether pods are being evicted from the node that the preemptor is nominated to.

        Until they are gone it does not fit beside those that they make room for; then it may, and needs no others. It
        is tried again when they are evicted, or cannot be.
        """
        nominated_node = self.cache.nominated_node(preemptor.uid)
        return bool(nominated_node) and self.in_progress.hold_back(preemptor, nominated_node)

    def cancel(self, preemptor: PodInfo) -> None:
        """Admits the preemptor again without evicting anybody."""
        self.queue.activate(self.in_progress.end(preemptor))

    def carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        """Has the victims evicted; the preemptor is in the queue by now."""
        self.telemetry.preempted(len(plan.victims))
        self.workers.submit(lambda: self._carry_out(preemptor, plan))

    def _carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        try:
            self.nominations.withdraw(plan.outranked)
            victims = _staying(plan) if self._waits(preemptor) else []
            self._evict_all(preemptor, victims, plan.node_name)
        except ClusterError as error:
            _log.warning("preemption for %s on %s: %s", preemptor.pod.key, plan.node_name, error)
            held_back = self.in_progress.end(preemptor)
            self.queue.back_off(preemptor.uid)
            self.queue.activate(uid for uid in held_back if uid != preemptor.uid)
        else:
            self.queue.activate(self.in_progress.end(preemptor))
            # One that is still there, or terminated already, wakes the preemptor as it leaves; till then each attempt
            # would choose it again.
            if victims and not any(self.cache.placement(victim.uid) for victim in victims):
                self.queue.activate([preemptor.uid])

    def _waits(self, preemptor: PodInfo) -> bool:
        """Returns False for a pod that is gone, leaves or has a place by now: its victims would go in vain."""
        known = self.cache.find_pod(preemptor.uid, preemptor.pod.key)
        return known is not None and not known.pod.terminating and self.cache.placement(preemptor.uid) is None

    def _evict_all(self, preemptor: PodInfo, victims: Sequence[PodInfo], node_name: str) -> None:
        for victim in victims:
            if victim is victims[-1]:
                self.in_progress.begin_last(preemptor, victim)
            if self.waiting.cancel(victim.uid, f"preempted by {preemptor.pod.key}"):
                self.evictor.record(preemptor, victim, f"on node {node_name} before it was bound")
            else:
                self.evictor.evict(preemptor, victim, node_name)


class RulePreemption:
    """Makes room for pods that only users' rules keep from all nodes, beside kube-scheduler.

    Its own preemption looks at in-tree plugins alone: where these let a pod pass it evicts nobody (kubernetes#139270).
    Pods that it can make room for are left to it. One thread at a time calls `run`.
    """

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        statuses: Statuses,
        evictor: VictimEvictor,
        preempted: Callable[[int], object],
        limit: TimeLimit = NO_LIMIT,
    ) -> None:
        """`preempted` is told how many victims have been evicted for a pod; `limit`: of the decision about one."""
        self._preempted, self._limit = preempted, limit
        self._cache, self._profiles, self._statuses, self._evictor = cache, profiles, statuses, evictor
        self._nominations = Nominations(cache, statuses)
        self._victims: dict[str, Sequence[PodInfo]] = {}

    def rules(self) -> frozenset[str]:
        """Returns the users' rules that evictions may help (sees_pods)."""
        return frozenset().union(*map(_rules_of, self._profiles.all))

    def run(self, pods: Iterable[tuple[str, str]]) -> list[str]:
        """Makes room for the pods, (UID, namespace/name), the most important first.

        Returns the UIDs of those that are to be tried again, for the API server has not done all.
        """
        self._victims = {uid: left for uid, victims in self._victims.items() if (left := self._leaving(victims))}
        found = [info for uid, key in pods if (info := self._cache.find_pod(uid, key)) and self._may_preempt(info)]
        failed = []
        for info in sorted(found, key=lambda info: -info.priority):
            try:
                if (plan := self._plan(info)) is not None:
                    self._carry_out(info, plan)
            except DeadlineExceeded as error:  # kube-scheduler has it judged again
                _log.warning("preemption for %s: %s", info.pod.key, error)
            except ClusterError as error:
                _log.warning("preemption for %s: %s", info.pod.key, error)
                failed.append(info.uid)
        return failed

    def _may_preempt(self, info: PodInfo) -> bool:
        """Returns False for a pod that has a place, or whose victims are leaving."""
        return not (info.uid in self._victims or info.pod.terminating or self._cache.placement(info.uid))

    def _leaving(self, victims: Iterable[PodInfo]) -> list[PodInfo]:
        known = [self._cache.find_pod(victim.uid, victim.pod.key) for victim in victims]
        return [victim for victim in known if victim is not None and victim.pod.terminating]

    def _plan(self, info: PodInfo) -> EvictionPlan | None:
        """Returns the pods to evict; None: there is room, kube-scheduler can make it, or nobody can."""
        profile = self._profiles.of(info.pod)
        with self._cache.snapshot("preemption", self._limit.begin()) as table:
            fit = find_fit(profile, info, table, table.nodes.rows)
            rows, other_rows = _may_be_preempted(fit, _rules_of(profile))
            limits = profile.preemption
            if limits is None or len(fit.feasible) or not len(rows):
                return None
            if len(other_rows) and preempt(profile, info, table, fit, limits, rows=other_rows).candidates:
                return None
            found = preempt(profile, info, table, fit, limits, rows=rows)
            best = found.nominated_node
            return None if best is None else eviction_plan(profile, info, table, found.candidates[best])

    def _carry_out(self, info: PodInfo, plan: EvictionPlan) -> None:
        self._victims[info.uid] = plan.victims
        self._nominations.nominate(info, plan.node_name)
        self._statuses.nominate(info.pod, plan.node_name)
        self._nominations.withdraw(plan.outranked)
        victims = _staying(plan)
        for victim in victims:
            self._evictor.evict(info, victim, plan.node_name)
        self._preempted(len(victims))
        names = ", ".join(victim.pod.key for victim in victims)
        _log.info("%s was refused by rules alone, and preempts %s on %s", info.pod.key, names, plan.node_name)


def _staying(plan: EvictionPlan) -> list[PodInfo]:
    return [victim for victim in plan.victims if not victim.pod.terminating]


def _rules_of(profile: Profile) -> frozenset[str]:
    rules = (each for each in profile.predicates if isinstance(each, CustomPredicate))
    return frozenset(rule.name for rule in rules if rule.code is Code.UNSCHEDULABLE)


def _may_be_preempted(fit: Fit, rules: Collection[str]) -> tuple[Rows, Rows]:
    """Returns the rows that evictions may help: those that the rules alone refused, and the others."""
    of_rules = [cause for cause, refusal in enumerate(fit.refusals) if refusal.plugin in rules]
    rows, by_rules = fit.with_code(Code.UNSCHEDULABLE), fit.rows[np.isin(fit.cause, of_rules)]
    return np.intersect1d(rows, by_rules), np.setdiff1d(rows, by_rules)
