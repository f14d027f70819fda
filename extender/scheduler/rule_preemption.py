"""Evicts pods for the webhook, to help pods that only users' rules reject.

kube-scheduler's own preemption considers only in-tree plugins: if they accept a pod, it evicts no pods
(kubernetes#139270). This module leaves a pod to kube-scheduler if kube-scheduler's preemption can help it.

A pod group preempts as a whole. Its victims are single pods, or groups that must be disrupted together, as in
kube-scheduler's own preemption for groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from extender.framework.status import Code
from extender.groups import GroupDecision, GroupRules, Leaf, decide_group
from extender.groups.group_preemption import Prefer, preempt_for_group
from extender.model.pod_groups import PodGroup
from extender.plugins.registry import default_profile
from extender.plugins.users.predicate import CustomPredicate, without_users_predicates
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.scheduler.preemption import Nominations, VictimEvictor, staying
from extender.scheduler.scheduler_ports import Statuses
from extender.table import PodInfo, Trial
from extender.table.labels import Rows

_log = logging.getLogger(__name__)


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
