"""Takes one root group through the loop, all its waiting members in one cycle.

Source: upstream schedule_one_podgroup.go.

    try_group
      1. look up the tree of groups; check that all its members can be scheduled together
      2. leave out members that are being deleted or have a node
      3. decide about the members in order, each while the members before it are on their nodes (groups.decide_group);
         if the group is refused, find pods to evict for all of them (groups.group_preemption)
      4. if the group succeeds: assume all chosen members at once, reserve what they need, start their binding cycles
      5. for members that are not placed: undo everything, write the reason, put them back into the queue
      6. write the condition of each group; end the attempt in the queue

A gang is bound only if at least `minCount` of its members have a node or can be bound now, and a tree only if enough of
its groups can be bound. This is stricter than upstream, which binds the rest of a gang even if too few could be
assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from extender.cache.groups import Viable
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import ANYWHERE, Chosen, EvictionPlan, Failure
from extender.engine.group_members import (
    BY_GANG,
    NOT_TRIED,
    GroupSchedulingCycle,
    common_rejection,
    decides_members,
    member_failures,
    with_reasons,
)
from extender.errors import BindingFailed, DeadlineExceeded, GaveWay
from extender.framework.permit import Permit
from extender.framework.profile import Profile
from extender.groups import DecideOne, GroupDecision, GroupRules, GroupStatus, Leaf, MemberDecision, Tree
from extender.groups.algorithm import PlacementObserver
from extender.groups.decision import group_decisions
from extender.groups.group_preemption import LEFT_ALONE, GroupPreemption, IdleClaims, Prefer, idle_claims
from extender.groups.group_tree import groups_of, mismatch, viable, waiting_members
from extender.model.devices import ResourceClaim
from extender.model.pod_groups import GroupName, PodGroup, SchedulingGroup
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.queue.entries import GroupOutcome, QueuedGroup, QueuedPod
from extender.runtime.clock import Clock
from extender.scheduler.schedule_one import AssumedPod, PodScheduler
from extender.scheduler.scheduler_ports import GroupResult, GroupStatuses, SchedulerTelemetry
from extender.scheduler.timing import RANK_NODES, PointStatus
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows

QUORUM_SECONDS = 300.0
_OUTCOMES = {
    GroupStatus.SCHEDULED: GroupOutcome.SUCCESS,
    GroupStatus.UNSCHEDULABLE: GroupOutcome.REJECTED,
    GroupStatus.ERROR: GroupOutcome.ERROR,
}
_RESULTS = {
    (GroupOutcome.SUCCESS, False): GroupResult.SCHEDULED,
    (GroupOutcome.REJECTED, False): GroupResult.UNSCHEDULABLE,
    (GroupOutcome.REJECTED, True): GroupResult.WAITING_ON_PREEMPTION,
    (GroupOutcome.ERROR, False): GroupResult.ERROR,
}
"""(the outcome, True if preemption helps) -> the result in metrics"""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Makes a member wait until Permit has allowed enough members of its gang and of its tree of groups.

    Attributes:
        uid: the UID of the member.
        permits: UID -> permit, for all members that are about to be bound; None for a member that waits for no rule.
        may_bind: takes UIDs of members. Returns the UIDs of those whose groups reach their minimum with these members.
    """

    timeout_seconds = QUORUM_SECONDS

    uid: str
    permits: Mapping[str, Permit | None]
    may_bind: Viable

    def ready(self) -> bool:
        allowed: set[str] = set()
        rejected: set[str] = set()
        for uid, permit in self.permits.items():
            try:
                if permit is None or permit.ready():
                    allowed.add(uid)
            except BindingFailed:
                rejected.add(uid)
        if self.uid not in self.may_bind(self.permits.keys() - rejected):
            raise BindingFailed("too many members of the gang were rejected at Permit", GANG_SCHEDULING)
        return self.uid in self.may_bind(allowed)

    def overdue(self) -> BindingFailed:
        return BindingFailed(f"rejected due to timeout after waiting 5m0s at plugin {GANG_SCHEDULING}", GANG_SCHEDULING)


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision about a root group. If it was refused, also the result of PodGroupPostFilter.

    Attributes:
        groups: the decisions about all groups of the tree.
        idle: the claims that the group should release.
    """

    root: GroupDecision
    groups: Sequence[GroupDecision]
    preemption: GroupPreemption = NOT_TRIED
    idle: IdleClaims = LEFT_ALONE

    @property
    def leaves(self) -> Sequence[GroupDecision]:
        """The decisions about the PodGroups of the tree."""
        return [decision for decision in self.groups if isinstance(decision.tree, Leaf)]


@dataclass(frozen=True, slots=True)
class _Placements(PlacementObserver):
    profile: str
    clock: Clock
    telemetry: SchedulerTelemetry

    def generated(self, tree: Tree, count: int) -> None:
        self.telemetry.placements_generated(self.profile, GroupName.of(tree.group).entity, count)

    def evaluate(self, tree: Tree, decide: Callable[[], GroupDecision]) -> GroupDecision:
        began_at = self.clock.monotonic()
        decision = decide()
        if decision.status is not GroupStatus.ERROR:
            result, entity = "feasible" if decision.is_success else "infeasible", GroupName.of(tree.group).entity
            self.telemetry.placement_evaluated(result, self.profile, entity, self.clock.monotonic() - began_at)
        return decision


@dataclass(frozen=True, slots=True)
class GroupScheduler:
    """Schedules pod groups. Uses the scheduler of single pods (`pods`) to assume, reserve and bind the members.

    Attributes:
        statuses: writes the conditions of groups.
        random: chooses between topology domains that are equally good.
        unreserve: removes the reservation of the PodGroup with this UID from a claim.
    """

    pods: PodScheduler
    statuses: GroupStatuses
    random: Random
    unreserve: Callable[[ResourceClaim, str], object] = lambda _claim, _uid: None

    def try_group(self, queued: QueuedGroup) -> None:
        """Takes the group's waiting members through one scheduling cycle."""
        placing = self.pods.placing
        began_at = placing.clock.monotonic()
        outcome = self._cycle(queued, began_at)
        placing.queue.finish_group(queued, outcome)

    def _cycle(self, queued: QueuedGroup, began_at: float) -> GroupOutcome:
        placing = self.pods.placing
        members = queued.in_order()
        tree = self._tree(queued.root, members)
        if isinstance(tree, Failure):
            self._fail(members, tree, began_at)
            return GroupOutcome.REJECTED
        groups, features = placing.cache.groups, placing.cache.features
        if (fault := mismatch(tree, lambda leaf: groups.get(leaf.group.key).scheduled.values(), features)) is not None:
            is_invalid = features.behaviours.whole_trees_are_validated
            return self._refuse(tree, members, Failure(fault), began_at, is_invalid=is_invalid)
        name = members[0].info.pod.spec.scheduler_name
        if name not in placing.cycles:
            return self._refuse(tree, members, Failure(f'profile not found for scheduler name "{name}"'), began_at)
        waiting = self._without_skipped(members)
        if not waiting:
            return GroupOutcome.SUCCESS
        decided = self._decide(queued, waiting, began_at)
        gave_way = isinstance(decided, Failure) and decided.gave_way
        self.pods.spent(queued, placing.clock.monotonic() - began_at, gave_way=gave_way)
        if isinstance(decided, Failure):
            self._attempted(queued, waiting, GroupResult.ERROR, began_at)
            return self._refuse(tree, waiting, decided, began_at)
        outcome = self._submit(decided, waiting, began_at)
        self._attempted(queued, waiting, _RESULTS[outcome, decided.preemption.helps], began_at)
        return outcome

    def _attempted(
        self, queued: QueuedGroup, waiting: Sequence[QueuedPod], result: GroupResult, began_at: float
    ) -> None:
        placing = self.pods.placing
        profile, seconds = waiting[0].info.pod.spec.scheduler_name, placing.clock.monotonic() - began_at
        placing.telemetry.group_attempted(result, profile, queued.root.entity, seconds)

    def _tree(self, root: GroupName, waiting: Sequence[QueuedPod]) -> Tree | Failure:
        """Returns the tree with these waiting members; a Failure if the tree lacks the group of a member."""
        placing = self.pods.placing
        by_group: dict[str, list[PodInfo]] = {}
        for pod in waiting:
            by_group.setdefault(pod.info.pod.group_key or "", []).append(placing.with_nomination(pod.info))
        tree = placing.cache.groups.tree(root, by_group)
        if tree is None or len(waiting_members(tree)) < len(waiting):  # the members wait until all groups exist again
            fault = placing.cache.groups.shortage(next(iter(by_group)), enforces_gangs=False)
            return Failure(fault or f"{root.kind} {root.key} was deleted", BY_GANG)
        return tree

    def _without_skipped(self, members: Iterable[QueuedPod]) -> list[QueuedPod]:
        waiting = []
        for pod in members:
            if self.pods.skips(pod):
                self.pods.placing.queue.done(pod.uid)
            else:
                waiting.append(pod)
        return waiting

    def _decide(self, queued: QueuedGroup, waiting: Sequence[QueuedPod], began_at: float) -> Decided | Failure:
        """Decides about the tree, and finds pods to evict if it was refused. Changes nothing outside the table."""
        placing = self.pods.placing
        cycle = placing.cycles[waiting[0].info.pod.spec.scheduler_name]
        try:
            with placing.cache.snapshot("schedule", self.pods.begin(queued)) as table:
                tree = self._tree(queued.root, waiting)
                if isinstance(tree, Failure):  # a group was deleted or moved after the cycle began
                    return tree
                try:
                    return self._decide_tree(tree, table, cycle, began_at)
                except Exception as error:
                    for observer in cycle.observers:
                        observer.group_failed(table, tree, _text_of(error))
                    raise
        except DeadlineExceeded as error:
            return Failure(str(error), gave_way=isinstance(error, GaveWay))
        except Exception as error:  # one group's error must not stop the others, and nothing has changed yet
            placing.telemetry.set_aside("scheduling", queued.root.key, error)
            return Failure(_text_of(error))

    def _decide_tree(self, tree: Tree, table: Table, cycle: SchedulingCycle, began_at: float) -> Decided:
        placing, profile = self.pods.placing, cycle.profile

        def decides(prefer: Prefer | None) -> DecideOne:
            ranked = None if prefer is None else self._timed_ranking(prefer, profile.name)
            return self._timed(decides_members(cycle.decide_member, table, ranked))

        rules = GroupRules.of(profile, by_placements=table.features.topology_aware_workload_scheduling)
        observer = _Placements(profile.name, placing.clock, placing.telemetry)
        group = GroupSchedulingCycle(tree, Trial(table), decides, profile, rules, self.random.choice, observer)
        decision = group.decide()
        entity = GroupName.of(tree.group).entity
        placing.telemetry.group_decided(profile.name, entity, placing.clock.monotonic() - began_at)
        decided = self._post_filter(group, decision)
        for each in cycle.observers:
            each.group_attempted(table, decision, decided.preemption)
        return decided

    def _post_filter(self, group: GroupSchedulingCycle, decision: GroupDecision) -> Decided:
        """Finds what may help a refused group: claims to release, and pods to evict (upstream PodGroupPostFilter)."""
        groups = list(group_decisions(decision))
        if decision.status is not GroupStatus.UNSCHEDULABLE:
            return Decided(decision, groups)
        idle = idle_claims(decision, group.profile, group.trial.table)
        placing = self.pods.placing
        began_at = placing.clock.monotonic()
        preemption = group.preempt(decision)
        if preemption is not NOT_TRIED:
            seconds = placing.clock.monotonic() - began_at if preemption.has_searched else None
            entity = GroupName.of(decision.tree.group).entity
            placing.telemetry.group_preemption_tried(entity, preemption.code, seconds)
        return Decided(decision, [with_reasons(each, preemption, idle) for each in groups], preemption, idle)

    def _timed(self, decide: DecideOne) -> DecideOne:
        """Returns `decide`, and observes how long each decision takes (upstream SchedulingAlgorithmLatency)."""
        clock, telemetry = self.pods.placing.clock, self.pods.placing.telemetry

        def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
            began_at = clock.monotonic()
            try:
                return decide(info, rows)
            finally:
                telemetry.decided(clock.monotonic() - began_at)

        return decide_one

    def _timed_ranking(self, prefer: Prefer, profile_name: str) -> Prefer:
        """Returns `prefer`, and observes how long each call takes as the extension point RankNodes."""
        clock, telemetry = self.pods.placing.clock, self.pods.placing.telemetry

        def rank(rows: Rows) -> Rows:
            began_at = clock.monotonic()
            preferred = prefer(rows)
            telemetry.extension_point(RANK_NODES, PointStatus.SUCCESS, profile_name, clock.monotonic() - began_at)
            return preferred

        return rank

    # ---- actions after the decision

    def _submit(self, decided: Decided, waiting: Sequence[QueuedPod], began_at: float) -> GroupOutcome:
        """Binds the placed members, fails the others, and writes the conditions of the groups."""
        bound: Collection[str] = ()
        error = ""
        if decided.root.is_success:
            bound, error = self._bind(decided, waiting, began_at)
        for decision in decided.groups:
            if self._has_condition(decision.tree.group):
                self._report(decision, bound, error)
        self._fail_unplaced(decided, waiting, began_at)
        self._give_back(decided)
        return GroupOutcome.ERROR if error and not bound else _OUTCOMES[decided.root.status]

    def _report(self, decision: GroupDecision, bound: Collection[str], error: str) -> None:
        """Writes the condition of a group that says if it has been scheduled.

        The condition is False if the group was refused. It is also False if no placed member could be bound, unless
        enough members had a node before this cycle.
        """
        group = decision.tree.group
        if not decision.is_success:
            self.statuses.unscheduled(group, decision.status.value, decision.text)
        elif error and decision.placed and decision.placed.keys().isdisjoint(bound) and not _runs(decision):
            self.statuses.unscheduled(group, Failure(error).reason, error)
        else:
            self.statuses.scheduled(group)

    def _give_back(self, decided: Decided) -> None:
        failures, unreserved = self.pods.failures, decided.idle.unreserve
        for claim in decided.idle.deallocate:
            failures.give_back(claim)
        if unreserved is not None:
            uid = decided.root.tree.group.uid
            failures.workers.submit(lambda: self.unreserve(unreserved, uid))

    def _bind(self, decided: Decided, waiting: Sequence[QueuedPod], began_at: float) -> tuple[Collection[str], str]:
        """Assumes the placed members, reserves what they need, and starts their binding cycles.

        Returns the UIDs of the members that are being bound, and the message of the first failure ("" if no member
        failed). The other placed members go back to the queue.
        """
        placing = self.pods.placing
        profile = placing.cycles[waiting[0].info.pod.spec.scheduler_name].profile
        may_bind = viability(decided.root.tree, profile)
        details = {uid: member.detail for decision in decided.leaves for uid, member in decision.members.items()}
        placed = decided.root.placed
        chosen = {
            pod.uid: (pod, detail)
            for pod in waiting
            if pod.uid in placed and isinstance(detail := details[pod.uid], Chosen)
        }
        places = [(pod.info, detail.node_name, detail.annotations) for pod, detail in chosen.values()]
        errors = placing.cache.assume_all(places, may_bind)
        failures = {uid: Failure(f"assume: {error}") for uid, error in errors.items()}
        assumed: dict[str, AssumedPod] = {}
        for uid in may_bind(chosen.keys() - errors.keys()):
            outcome = placing.reserve(*chosen[uid], began_at)
            if isinstance(outcome, Failure):
                failures[uid] = outcome
            else:
                assumed[uid] = outcome
        kept = may_bind(assumed.keys())
        for uid in assumed.keys() - kept:
            placing.undo(assumed[uid].pod, assumed[uid].reservations)
        reason = f"pod group {decided.root.tree.group.key}: {next(iter(failures.values())).message}" if failures else ""
        for each in self._held_back([assumed[uid] for uid in chosen if uid in kept], decided.root.tree, may_bind):
            self.pods.submit(each)
        for uid in chosen.keys() - kept:
            self.pods.failures.handle(chosen[uid][0], failures.get(uid, Failure(reason)), began_at)
        return kept, reason

    def _held_back(self, assumed: Sequence[AssumedPod], tree: Tree, may_bind: Viable) -> Sequence[AssumedPod]:
        """Makes the pods wait for each other before their bind, if a Permit rule may still reject one of them."""
        permits = {each.pod.uid: each.permit for each in assumed}
        if not any(permits.values()) or (isinstance(tree, Leaf) and not tree.group.is_gang):
            return assumed
        return [replace(each, quorum=Quorum(each.pod.uid, permits, may_bind)) for each in assumed]

    def _fail_unplaced(self, decided: Decided, waiting: Sequence[QueuedPod], began_at: float) -> None:
        """Puts the members that are not bound back into the queue, with upstream's reasons and nominations."""
        reasons: dict[str, Failure] = {}
        rejection = common_rejection(decided.leaves)
        for decision in decided.leaves:
            reasons |= member_failures(decision, decided.preemption, rejection)
        failures = [(pod, failure) for pod in waiting if (failure := reasons.get(pod.uid)) is not None]
        preemption = decided.preemption
        # The member that is handled last starts the evictions, when all members are back in the queue.
        if preemption.victims:
            preemptor = max(range(len(failures)), key=lambda index: failures[index][0].uid in preemption.nominated)
            pod, failure = failures.pop(preemptor)
            plan = EvictionPlan(
                ANYWHERE,
                preemption.victims,
                group=decided.root.tree.group,
                pdb_violations=preemption.pdb_violations,
                disruptions=preemption.disruptions,
            )
            failures.append((pod, replace(failure, preemption=plan)))
        for pod, failure in failures:
            self.pods.failures.handle(pod, failure, began_at)

    def _refuse(
        self, tree: Tree, pods: Iterable[QueuedPod], failure: Failure, began_at: float, *, is_invalid: bool = False
    ) -> GroupOutcome:
        """Fails all members and groups of the tree for the same reason.

        If `is_invalid`, the groups have the reason PodGroupError, because a user has to change one of them.
        """
        self._fail(pods, failure, began_at)
        for group in filter(self._has_condition, groups_of(tree)):
            reason = f"{type(group).__name__}Error" if is_invalid else failure.reason
            self.statuses.unscheduled(group, reason, failure.message)
        return GroupOutcome.REJECTED if failure.rejection.rules else GroupOutcome.ERROR

    def _has_condition(self, group: SchedulingGroup) -> bool:
        return isinstance(group, PodGroup) or self.pods.placing.cache.features.behaviours.composites_have_conditions

    def _fail(self, pods: Iterable[QueuedPod], failure: Failure, began_at: float) -> None:
        for pod in pods:
            self.pods.failures.handle(pod, failure, began_at)


def viability(tree: Tree, profile: Profile) -> Viable:
    """Returns a function that takes UIDs of placed members, and returns the UIDs of those that may be bound.

    If the profile does not enforce gangs, all of them may be bound.
    """
    if profile.enforces_gangs:
        return lambda placed: viable(tree, placed)
    return lambda placed: placed


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, DeadlineExceeded) else f"{type(error).__name__}: {error}"


def _runs(decision: GroupDecision) -> bool:
    """Returns True if at least `minCount` members of the PodGroup had a node before this cycle."""
    leaf = decision.tree
    return isinstance(leaf, Leaf) and len(leaf.scheduled) >= leaf.group.min_count
