"""Takes one pod group through the loop, all its waiting members in one cycle.

Source: upstream schedule_one_podgroup.go.

    try_group
      1. look up the PodGroup; check that all its members can be scheduled together
      2. leave out members that are being deleted or have a node
      3. decide about the members in order, each with the ones before it on their nodes (groups.decide_group); if the
         group is refused, find pods to evict for all of them (groups.preemption)
      4. success: assume all chosen members at once, reserve what they need, and start their binding cycles
      5. members that are not placed: undo everything, say why, give them back to the queue
      6. write the condition of the PodGroup; end the attempt in the queue

A gang is bound only if at least `minCount` of its members have a node or can be bound now. This is stricter than
upstream, which binds the rest of a gang even if too few members could be assumed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from extender.cache.groups import GroupState
from extender.errors import BindingFailed, DeadlineExceeded
from extender.framework.permit import Permit
from extender.framework.profile import Profile
from extender.groups import DecideOne, GroupDecision, GroupRules, GroupStatus, Leaf, MemberDecision, decide_group
from extender.groups import member_failure as failure_message
from extender.groups.decision import leaf_decisions, with_reason
from extender.groups.preemption import GroupPreemption, preempt_for_group
from extender.model.scheduling.pod_groups import PodGroup
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.plugins.gang_scheduling import unsupported
from extender.queue.queued_group import GroupOutcome, QueuedGroup
from extender.queue.queued_pod import QueuedPod, Rejection
from extender.runtime.ports import NominatedNode, Nominating
from extender.scheduler.group_members import decides_members
from extender.scheduler.ports import GroupStatuses
from extender.scheduler.schedule_one import AssumedPod, PodScheduler
from extender.scheduler.scheduling_cycle import (
    ANYWHERE,
    DEVICES,
    POD_SCHEDULER_ERROR,
    POD_UNSCHEDULABLE,
    Chosen,
    EvictionPlan,
    Failure,
)
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.table.trial import Trial

QUORUM_SECONDS = 300.0
NOT_TRIED = GroupPreemption("")
NO_CLAIMS_FREED = "deallocation and deletion of ResourceClaims completed"
BY_GANG = Rejection(unschedulable=frozenset((GANG_SCHEDULING,)))
_OUTCOMES = {
    GroupStatus.SCHEDULED: GroupOutcome.SUCCESS,
    GroupStatus.UNSCHEDULABLE: GroupOutcome.REJECTED,
    GroupStatus.ERROR: GroupOutcome.ERROR,
}
_log = logging.getLogger(__name__)


class Quorum:
    """Holds the Bindings of a gang's members back until enough of them are allowed at Permit.

    Args:
        permits: the permits of all members that are about to be bound; None for a member that waits for no rule.
        at_least: how many of them must be allowed.
    """

    timeout_seconds = QUORUM_SECONDS

    def __init__(self, permits: Sequence[Permit | None], at_least: int) -> None:
        self._permits = permits
        self._at_least = at_least

    def ready(self) -> bool:
        allowed = 0
        rejected = 0
        for permit in self._permits:
            try:
                allowed += permit is None or permit.ready()
            except BindingFailed:
                rejected += 1
        if len(self._permits) - rejected < self._at_least:
            raise BindingFailed("too many members of the gang were rejected at Permit", GANG_SCHEDULING)
        return allowed >= self._at_least

    def overdue(self) -> BindingFailed:
        return BindingFailed(f"rejected due to timeout after waiting 5m0s at plugin {GANG_SCHEDULING}", GANG_SCHEDULING)


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision about a group, and the preemption that was tried because it was refused."""

    decision: GroupDecision
    preemption: GroupPreemption = NOT_TRIED


@dataclass(frozen=True, slots=True)
class GroupScheduler:
    """Schedules pod groups, with the parts that schedule single pods.

    Attributes:
        find_group: returns the PodGroup with this key; None if it does not exist.
        statuses: writes the conditions of PodGroups.
        random: chooses between topology domains that are equally good.
    """

    pods: PodScheduler
    find_group: Callable[[str], PodGroup | None]
    statuses: GroupStatuses
    random: Random
    rules: GroupRules = GroupRules()  # noqa: RUF009  frozen

    def try_group(self, queued: QueuedGroup) -> None:
        """Takes the group's waiting members through one scheduling cycle."""
        placing = self.pods.placing
        began_at = placing.clock.monotonic()
        outcome = self._cycle(queued, began_at)
        placing.telemetry.decided(placing.clock.monotonic() - began_at)
        placing.queue.finish_group(queued, outcome)

    def _cycle(self, queued: QueuedGroup, began_at: float) -> GroupOutcome:
        members = queued.in_order()
        group = self.find_group(queued.key)
        if group is None:  # the members wait until it exists again
            self._fail(members, Failure(f"PodGroup {queued.key} was deleted", BY_GANG), began_at)
            return GroupOutcome.REJECTED
        state = self.pods.placing.cache.groups.get(queued.key)
        if (reason := unsupported(group, by_placements=self.rules.by_placements)) is not None:
            self._fail(members, Failure(reason, BY_GANG), began_at)
            self.statuses.unscheduled(group, POD_UNSCHEDULABLE, reason)
            return GroupOutcome.REJECTED
        infos = [pod.info for pod in members]
        if (fault := mismatch(group, [*infos, *state.scheduled.values()], self.pods.placing.cycles)) is not None:
            self._fail(members, Failure(fault), began_at)
            self.statuses.unscheduled(group, POD_SCHEDULER_ERROR, fault)
            return GroupOutcome.ERROR
        waiting = self._without_skipped(members)
        if not waiting:
            return GroupOutcome.SUCCESS
        decision = self._decide(group, waiting, state)
        if isinstance(decision, Failure):
            self._fail(waiting, decision, began_at)
            self.statuses.unscheduled(group, POD_SCHEDULER_ERROR, decision.message)
            return GroupOutcome.ERROR
        return self._submit(group, decision, waiting, len(state.scheduled), began_at)

    def _without_skipped(self, members: Iterable[QueuedPod]) -> list[QueuedPod]:
        waiting = []
        for pod in members:
            if self.pods.skips(pod):
                self.pods.placing.queue.done(pod.uid)
            else:
                waiting.append(pod)
        return waiting

    def _decide(self, group: PodGroup, waiting: Sequence[QueuedPod], state: GroupState) -> Decided | Failure:
        """Returns the decision about the group, and whom to evict if it was refused; nothing has changed yet."""
        placing = self.pods.placing
        cycle = placing.cycles[waiting[0].info.pod.spec.scheduler_name]
        infos = [placing.with_nomination(pod.info) for pod in waiting]
        try:
            with placing.cache.snapshot("schedule") as table:
                scheduled = [uid for uid in state.scheduled if uid in table.pods.slot_of]
                leaf = Leaf(group, infos, scheduled)
                trial = Trial(table)
                decide_one = self._within_limit(decides_members(cycle, table), table)

                def decide() -> GroupDecision:
                    return decide_group(leaf, trial, decide_one, self.rules, self.random.choice)

                decision = decide()
                if decision.status is not GroupStatus.UNSCHEDULABLE or cycle.profile.preemption is None:
                    return Decided(leaf_decisions(decision)[0])
                preemption = preempt_for_group(leaf, trial, decide, cycle.profile)
                (refused,) = leaf_decisions(decision)
                return Decided(with_reasons(refused, preemption, cycle.profile), preemption)
        except DeadlineExceeded as error:
            return Failure(str(error))
        except Exception as error:  # nothing has changed yet, and one group must not hold up the others
            _log.exception("scheduling failed group=%s", group.key)
            return Failure(f"{type(error).__name__}: {error}")

    def _within_limit(self, decide: DecideOne, table: Table) -> DecideOne:
        """Returns `decide` with the time limit of a decision about a single pod for each member."""

        def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
            with table.until(self.pods.limit.begin()):
                return decide(info, rows)

        return decide_one

    # ---- what follows from the decision

    def _submit(
        self, group: PodGroup, decided: Decided, waiting: Sequence[QueuedPod], scheduled: int, began_at: float
    ) -> GroupOutcome:
        """Binds the members that are placed, fails the others, and writes the condition of the group."""
        decision = decided.decision
        if decision.is_success:
            needed = max(group.min_count - scheduled, 1) if self.rules.enforces_gangs else 1
            error = self._bind(group, decision, waiting, needed, began_at)
            if error is not None:
                self._fail(waiting, Failure(error), began_at)
                self.statuses.unscheduled(group, POD_SCHEDULER_ERROR, error)
                return GroupOutcome.ERROR
            self.statuses.scheduled(group)
        elif decision.status is GroupStatus.UNSCHEDULABLE:
            self.statuses.unscheduled(group, POD_UNSCHEDULABLE, decision.text)
        else:
            self.statuses.unscheduled(group, POD_SCHEDULER_ERROR, decision.text)
        self._fail_unplaced(group, decided, waiting, began_at)
        return _OUTCOMES[decision.status]

    def _bind(
        self, group: PodGroup, decision: GroupDecision, waiting: Sequence[QueuedPod], needed: int, began_at: float
    ) -> str | None:
        """Assumes the placed members, reserves what they need, and starts their binding cycles.

        Returns why nothing of that is done: fewer than `needed` members could be assumed or reserved. A member that
        alone cannot be is given back to the queue.
        """
        placing = self.pods.placing
        chosen = {pod.uid: (pod, detail) for pod in waiting if (detail := _chosen(decision, pod)) is not None}
        errors = placing.cache.assume_all([(pod.info, detail.node_name) for pod, detail in chosen.values()], needed)
        failures = {uid: Failure(f"assume: {error}") for uid, error in errors.items()}
        assumed: list[AssumedPod] = []
        if len(chosen) - len(errors) >= needed:
            for pod, detail in (each for uid, each in chosen.items() if uid not in errors):
                outcome = placing.reserve(pod, detail, began_at)
                if isinstance(outcome, Failure):
                    failures[pod.uid] = outcome
                else:
                    assumed.append(outcome)
        if len(assumed) < needed:
            for each in assumed:
                placing.undo(each.pod, each.reservations)
            return f"pod group {group.key}: {next(iter(failures.values())).message}"
        for each in self._held_back(assumed, needed):
            self.pods.submit(each)
        for uid, failure in failures.items():
            self.pods.failures.handle(chosen[uid][0], failure, began_at)
        return None

    def _held_back(self, assumed: Sequence[AssumedPod], needed: int) -> Sequence[AssumedPod]:
        """Makes the pods wait for each other before they are bound, if a rule of Permit may still reject one of them.

        They share a `Quorum`: no bind begins until `needed` of the pods have passed Permit.
        """
        permits = [each.permit for each in assumed]
        if needed < 2 or not any(permits):
            return assumed
        quorum = Quorum(permits, needed)
        return [replace(each, quorum=quorum) for each in assumed]

    def _fail_unplaced(self, group: PodGroup, decided: Decided, waiting: Sequence[QueuedPod], began_at: float) -> None:
        """Gives the members back that are not bound, with the reasons and nominations of upstream."""
        failures = [(pod, failure) for pod in waiting if (failure := member_failure(decided, pod)) is not None]
        preemption = decided.preemption
        if preemption.victims:  # one member has the pods evicted, after all are back in the queue
            preemptor = max(range(len(failures)), key=lambda index: failures[index][0].uid in preemption.nominated)
            pod, failure = failures.pop(preemptor)
            plan = EvictionPlan(ANYWHERE, preemption.victims, group=group)
            failures.append((pod, replace(failure, preemption=plan)))
        for pod, failure in failures:
            self.pods.failures.handle(pod, failure, began_at)

    def _fail(self, pods: Iterable[QueuedPod], failure: Failure, began_at: float) -> None:
        for pod in pods:
            self.pods.failures.handle(pod, failure, began_at)


def with_reasons(decision: GroupDecision, preemption: GroupPreemption, profile: Profile) -> GroupDecision:
    """Returns the decision with the outcome of PodGroupPostFilter, as upstream words it."""
    if DEVICES in profile.reserving and not (preemption.helps or preemption.is_final):
        decision = with_reason(decision, NO_CLAIMS_FREED)
    return with_reason(decision, f"pod group preemption: {preemption.text}")


def member_failure(decided: Decided, pod: QueuedPod) -> Failure | None:
    """Returns why the member is not bound, and the node to nominate it to; None if it is placed."""
    decision = decided.decision
    member = decision.members[pod.uid]
    message = failure_message(decision, member)
    if message is None:
        return None
    if decision.status is GroupStatus.ERROR:
        return Failure(message)
    if decision.is_success and isinstance(member.detail, Failure):
        return member.detail
    nominated: NominatedNode = Nominating.KEEP
    if pod.uid in decided.preemption.nominated:
        nominated = decided.preemption.nominated[pod.uid]
    elif member.node_name is not None and not decided.preemption.helps:
        nominated = Nominating.CLEAR
    return Failure(message, common_rejection(decision), nominated_node=nominated)


def mismatch(group: PodGroup, infos: Sequence[PodInfo], profiles: Mapping[str, object]) -> str | None:
    """Returns why these members cannot be scheduled as one group; None if they can. Upstream's messages."""
    first = infos[0].pod.spec
    for info in infos:
        spec = info.pod.spec
        if spec.scheduler_name != first.scheduler_name:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, got: "
                f'"{spec.scheduler_name}" and "{first.scheduler_name}"'
            )
        if info.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, got "
                f"{info.priority} and {group.priority}"
            )
        if _policy(spec.preemption_policy) != _policy(first.preemption_policy):
            return (
                "all pods in a single pod group should have the same preemption policy, got "
                f"{_policy(spec.preemption_policy)} and {_policy(first.preemption_policy)}"
            )
    if first.scheduler_name not in profiles:
        return f'profile not found for scheduler name "{first.scheduler_name}"'
    return None


def _policy(preemption_policy: str | None) -> str:
    return preemption_policy or "PreemptLowerPriority"


def _chosen(decision: GroupDecision, pod: QueuedPod) -> Chosen | None:
    detail = decision.members[pod.uid].detail
    return detail if isinstance(detail, Chosen) else None


def common_rejection(decision: GroupDecision) -> Rejection:
    """Returns the rules that rejected any member: what helps one member may help the whole group.

    GangScheduling is one of them while members are missing. Otherwise each bind of a member would wake the others in
    vain. A rule is unresolvable only if it is so for each member that it rejected.
    """
    rejections = [member.detail.rejection for member in decision.members.values() if isinstance(member.detail, Failure)]
    rules = frozenset[str]().union(*(rejection.rules for rejection in rejections))
    resolvable = frozenset[str]().union(*(rejection.rules - rejection.unresolvable for rejection in rejections))
    leaf = decision.tree
    lacks_members = isinstance(leaf, Leaf) and len(leaf.scheduled) < leaf.group.min_count
    by_gang = BY_GANG.unschedulable if lacks_members or not rules else frozenset[str]()
    return Rejection(unschedulable=rules | by_gang, unresolvable=rules - resolvable)
