"""Carries out preemption: evicts the victims, and nominates the preemptor's node.

In the loop, `PreemptionExecutor` lets workers evict the victims while the preemptor waits. Source: upstream
preemption.Executor (KEP-4832).

For the webhook, `RulePreemption` helps pods that only users' rules reject. kube-scheduler's own preemption considers
only in-tree plugins: if they accept a pod, it evicts no pods (kubernetes#139270). A pod that kube-scheduler's
preemption can help is left to it. A pod group preempts as a whole. Its victims are single pods, or groups that must be
disrupted together, as in kube-scheduler's own preemption for groups.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import numpy as np
from msgspec import structs

from extender.cache.cache import Cache
from extender.engine.decide import SchedulingCycle, eviction_plan
from extender.engine.decision import ANYWHERE, EvictionPlan
from extender.engine.group_members import MemberJudge
from extender.errors import ClusterError, ConfigurationError, DeadlineExceeded
from extender.framework.find_fit import Fit
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Code, Refusal, unresolvable
from extender.groups import GroupDecision, GroupRules, Leaf, decide_group
from extender.groups.group_preemption import Prefer, preempt_for_group
from extender.model.pod_groups import PodGroup, SchedulingGroup
from extender.plugins.registry import default_profile
from extender.plugins.users.predicate import CustomPredicate, without_users_predicates
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.scheduler.scheduler_ports import Events, Evictor, Preemptors, SchedulerTelemetry, Statuses, WaitingForBind
from extender.table import PodInfo, Trial
from extender.table.labels import Rows

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

        if not victims:
            return
        began_at, result = self.clock.monotonic(), "error"
        try:
            self.workers.run_all([partial(evict, victim) for victim in victims[:-1]])
            self.in_progress.begin_last(preemptor, victims[-1])
            evict(victims[-1])
            result = "success"
        finally:
            self.telemetry.evictions_ended(_kind(plan.group), result, self.clock.monotonic() - began_at)


def _kind(group: SchedulingGroup | None) -> str:
    return "pod" if group is None else type(group).__name__.lower()


def staying(plan: EvictionPlan) -> list[PodInfo]:
    """Returns the victims that are not terminating yet."""
    return [victim for victim in plan.victims if not victim.pod.terminating]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The evictions, and for each pod that they help, the node where it fits."""

    evictions: EvictionPlan
    nominated: Sequence[tuple[PodInfo, str]]


class RulePreemption:
    """Evicts pods to help pods that fit nowhere because of users' rules. One thread at a time calls `run`."""

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        statuses: Statuses,
        evictor: Callable[[], VictimEvictor],
        preempted: Callable[[int], object],
        limit: TimeLimit = NO_LIMIT,
    ) -> None:
        """
        Args:
            evictor: called at the start of each run; returns an evictor which refuses evictions in a later term.
            preempted: called with the number of victims evicted for a pod.
            limit: the time limit of the decision about one pod, or about one group.
        """
        self._cache = cache
        self._profiles = profiles
        self._statuses = statuses
        self._evictor_of_run = evictor
        self._evictor = evictor()
        self._preempted = preempted
        self._limit = limit
        self._nominations = Nominations(cache, statuses)
        self._judge = MemberJudge(Random())  # noqa: S311  ties between nodes
        self._victims: dict[str, Sequence[PodInfo]] = {}

    def rules(self) -> frozenset[str]:
        """Returns the names of the users' rules that may accept a pod after evictions."""
        return frozenset().union(*map(_rules_of, self._profiles.all))

    def run(self, pods: Iterable[tuple[str, str]]) -> list[str]:
        """Evicts victims for pods, given as (UID, namespace/name). Pods of the highest priority come first.

        Returns the UIDs of the pods for which an eviction failed. The caller has to try these pods again.
        """
        self._evictor = self._evictor_of_run()
        self._victims = {uid: leaving for uid, victims in self._victims.items() if (leaving := self._leaving(victims))}
        preemptors = [info for uid, key in pods if (info := self._cache.find_pod(uid, key)) is not None]
        failed = []
        tried: set[str] = set()  # the groups that this run has tried, as namespace/name
        for info in sorted(preemptors, key=lambda info: -info.priority):
            group = self._group_of(info)
            if not self._may_preempt(info) or (group is not None and group.key in tried):
                continue
            if group is not None:
                tried.add(group.key)
            try:
                plan = self._plan(info) if group is None else self._plan_for_group(info, group)
                if plan is not None:
                    self._carry_out(info, plan)
            except DeadlineExceeded as error:  # the next filter call for the pod tries again
                _log.warning("preemption failed pod=%s reason=%r", info.pod.key, str(error))
            except ClusterError as error:
                _log.warning("preemption failed pod=%s reason=%r", info.pod.key, str(error))
                failed.append(info.uid)
        return failed

    def _may_preempt(self, info: PodInfo) -> bool:
        """Returns False if the pod has a node or is terminating, or if its victims are still leaving."""
        return not (info.uid in self._victims or info.pod.terminating or self._cache.placement(info.uid))

    def _leaving(self, victims: Iterable[PodInfo]) -> list[PodInfo]:
        cached = [self._cache.find_pod(victim.uid, victim.pod.key) for victim in victims]
        return [victim for victim in cached if victim is not None and victim.pod.terminating]

    def _plan(self, info: PodInfo) -> _Plan | None:
        """Returns the evictions for the pod.

        Returns None if the pod fits, if kube-scheduler can preempt for it, or if no eviction helps.
        """
        profile = beside_scheduler(self._profiles.of(info.pod))
        cycle = SchedulingCycle(profile)
        with self._cache.snapshot("preemption", self._limit.begin()) as table:
            fit, _ = cycle.filter(info, table, table.nodes.rows)
            rows, other_rows = _may_be_preempted(fit, _rules_of(profile))
            limits = profile.preemption
            if limits is None or len(fit.feasible) or not len(rows):
                return None
            if len(other_rows) and cycle.preempt(info, table, fit, other_rows, limits).candidates:
                return None
            preemption = cycle.preempt(info, table, fit, rows, limits, self._being_bound())
            best = preemption.nominated_node
            if best is None:
                return None
            return _Plan(eviction_plan(profile, info, table, preemption.candidates[best]), [(info, best)])

    def _group_of(self, info: PodInfo) -> PodGroup | None:
        """Returns the pod's group if the group preempts as a whole; None if the pod preempts alone."""
        key = self._cache.groups.key_of(info.pod)
        group = self._cache.groups.find(key) if key is not None else None
        return group if group is not None and self._cache.groups.is_root(group) else None

    def _plan_for_group(self, info: PodInfo, group: PodGroup) -> _Plan | None:
        """Returns the evictions for the pod's group.

        Returns None if the group fits, if kube-scheduler can preempt for it, or if no eviction helps.

        Raises ClusterError if a victim is being bound, because its Binding may already be on its way to the API server.
        """
        profile = beside_scheduler(self._profiles.of(info.pod))
        by_scheduler = without_users_predicates(profile)
        if profile.preemption is None or by_scheduler is None:
            return None
        state = self._cache.groups.get(group.key)
        members = state.ready()
        group = _with_priority(group, members)
        rules = GroupRules.beside_scheduler(profile, by_placements=group.topology_key is not None)
        with self._cache.snapshot("preemption", self._limit.begin()) as table:
            trial = Trial(table)
            scheduled = {uid: info for uid, info in state.scheduled.items() if uid in table.pods.slot_of}
            leaf = Leaf(group, members, scheduled)
            if not decide_group(leaf, trial, self._judge(by_scheduler, table), rules).is_success:
                return None

            def decide(prefer: Prefer | None) -> GroupDecision:
                return decide_group(leaf, trial, self._judge(profile, table, prefer), rules)

            if decide(None).is_success:
                return None
            preemption = preempt_for_group(leaf, trial, decide, profile)
        being_bound = {uid for uids in self._being_bound().values() for uid in uids}
        if any(victim.uid in being_bound for victim in preemption.victims):
            raise ClusterError(f"a victim for PodGroup {group.key} is being bound")
        if not preemption.victims:
            return None
        nominated = [
            (member, preemption.nominated[member.uid]) for member in members if member.uid in preemption.nominated
        ]
        return _Plan(EvictionPlan(ANYWHERE, preemption.victims, group=group), nominated)

    def _being_bound(self) -> Mapping[str, Sequence[str]]:
        """Returns, by node name, the UIDs of the pods whose bind has begun but is not yet confirmed.

        These pods must not be victims, because their Binding may already be on its way to the API server. A pod that
        still waits at Permit is not included, because its bind can be cancelled.
        """
        waiting = frozenset(self._evictor.waiting.uids())
        unconfirmed = self._cache.unconfirmed()
        return {node: [uid for uid in uids if uid not in waiting] for node, uids in unconfirmed.items()}

    def _carry_out(self, preemptor: PodInfo, planned: _Plan) -> None:
        plan = planned.evictions
        for info, node_name in planned.nominated:
            self._victims[info.uid] = plan.victims
            self._nominations.nominate(info, node_name)
            self._statuses.nominate(info.pod, node_name)
        self._nominations.withdraw(plan.outranked)
        victims = [
            victim for victim in staying(plan) if self._evictor.evict(preemptor, victim, plan.node_name, plan.group)
        ]
        self._preempted(len(victims))
        names = ", ".join(victim.pod.key for victim in victims)
        _log.info(
            "pods evicted for a pod that users' rules refused pod=%s node=%s victims=%s podgroup=%s",
            preemptor.pod.key,
            plan.node_name,
            names,
            plan.group.key if plan.group else "none",
        )


def beside_scheduler(profile: Profile) -> Profile:
    """Returns the profile with kube-scheduler's default filters and preemption if only users' predicates filter in it.

    A policy for `extender serve` usually disables all in-tree plugins, because kube-scheduler runs them. Victims are
    nevertheless chosen with these plugins: without them, pods would be evicted from nodes that kube-scheduler refuses.
    """
    rules = [rule for rule in profile.predicates if isinstance(rule, CustomPredicate)]
    filters = {rule.name for rule in profile.predicates} - {rule.name for rule in rules}
    if not filters.issubset(profile.disabled_filters):
        return profile
    default = default_profile()
    predicates = [*default.predicates, *rules]
    limits = profile.preemption or default.preemption
    return replace(profile, predicates=predicates, filter_order=(), preemption=limits, disabled_filters=())


def check_preemption(profiles: Sequence[Profile]) -> str | None:
    """Returns why preemptForRules has no effect with these profiles; None if it has one.

    Raises ConfigurationError if the rules of a profile could never evict a pod, because its preemption is off.
    """
    off = [profile.name for profile in profiles if _rules_of(profile) and beside_scheduler(profile).preemption is None]
    if off:
        message = (
            "preemptForRules: no pod could be evicted, because the policy disables DefaultPreemption but keeps other "
            "in-tree filters; enable DefaultPreemption at postFilter, or disable all plugins at multiPoint"
        )
        raise ConfigurationError([f"{message} (profile {name})" for name in off])
    if any(map(_rules_of, profiles)):
        return None
    return "preemptForRules: no pod is evicted, because the policy has no rule with @predicate(sees_pods=True)"


def _with_priority(group: PodGroup, members: Sequence[PodInfo]) -> PodGroup:
    """Gives a PodGroup of the coscheduling plugin, which has no priority, the lowest priority of its members."""
    if group.spec.min_member is None or not members:
        return group
    lowest = min(member.priority for member in members)
    return structs.replace(group, spec=structs.replace(group.spec, priority=lowest))


def _rules_of(profile: Profile) -> frozenset[str]:
    rules = (rule for rule in profile.predicates if isinstance(rule, CustomPredicate))
    return frozenset(rule.name for rule in rules if rule.sees_pods)


def _may_be_preempted(fit: Fit, rules: Collection[str]) -> tuple[Rows, Rows]:
    """Returns the rows of nodes that evictions may help: first the rows that `rules` rejected, then all others."""
    of_rules = [cause for cause, refusal in enumerate(fit.refusals) if refusal.plugin in rules]
    rows = fit.with_code(Code.UNSCHEDULABLE)
    by_rules = fit.rows[np.isin(fit.cause, of_rules)]
    return np.intersect1d(rows, by_rules), np.setdiff1d(rows, by_rules)
