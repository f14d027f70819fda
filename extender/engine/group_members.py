"""Decides about the members of pod groups, and says what a decision about a group means for each member.

`groups.decide_group` tries the members of a tree one after the other. It gets the decision about each member from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from extender.devices.plan import pending_claim
from extender.devices.pod_claims import CLAIM_NAME
from extender.engine.decide import RandomNumbers, SchedulingCycle
from extender.engine.decision import Chosen, Failure
from extender.framework.profile import Profile
from extender.framework.status import Rejection
from extender.groups import DecideOne, GroupDecision, GroupRules, GroupStatus, Leaf, MemberDecision, Tree, decide_group
from extender.groups import member_failure as failure_message
from extender.groups.algorithm import UNOBSERVED, Choose, PlacementObserver
from extender.groups.decision import with_reason
from extender.groups.group_preemption import GroupPreemption, IdleClaims, Prefer, preempt_for_group
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.plugins.registry import DEFAULT_PREEMPTION
from extender.plugins.volume_binding import bound, selected
from extender.runtime.ports import NominatedNode, Nominating
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows

NOT_TRIED = GroupPreemption("")
BY_GANG = Rejection(unschedulable=frozenset((GANG_SCHEDULING,)))

DecideMember = Callable[[PodInfo, Table, Rows | None, Prefer | None], Chosen | Failure]
"""Decides about one member, without a search for victims. The rows are the nodes to consider; None means all nodes."""
DecidesMembers = Callable[[Prefer | None], DecideOne]
"""Returns a function that decides about one member, with this preference of nodes."""


def decides_members(decide: DecideMember, table: Table, prefer: Prefer | None = None) -> DecideOne:
    """Returns a function that decides about one member on `table`.

    The `detail` of each MemberDecision is the answer of `decide`: a Chosen or a Failure.
    """

    def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
        decided = decide(info, table, rows, prefer)
        if isinstance(decided, Chosen):
            objects, annotations = list(reserved(info.pod, decided)), decided.annotations
            return MemberDecision(decided.node_name, reserved=objects, annotations=annotations, detail=decided)
        rules = decided.rejection.rules
        return MemberDecision(None, decided.message, is_error=not rules, detail=decided, rules=rules)

    return decide_one


class MemberJudge:
    """Chooses nodes for members of pod groups, for callers without a scheduling loop.

    Each call may use another profile. One cycle is kept for each profile, because it reuses its rankings of nodes.
    Only one thread at a time may use the judge.

    Args:
        random: chooses between nodes with the same score.
    """

    def __init__(self, random: RandomNumbers) -> None:
        self._random = random
        self._cycles: dict[str, SchedulingCycle] = {}

    def __call__(self, profile: Profile, table: Table, prefer: Prefer | None = None) -> DecideOne:
        return decides_members(self.cycle(profile).decide_member, table, prefer)

    def cycle(self, profile: Profile) -> SchedulingCycle:
        cycle = self._cycles.get(profile.name)
        if cycle is None or cycle.profile is not profile:
            cycle = self._cycles[profile.name] = SchedulingCycle(profile, self._random)
        return cycle


@dataclass(frozen=True, slots=True)
class GroupSchedulingCycle:
    """Decides about one tree of groups on the table of `trial`.

    Attributes:
        decides: returns the function that decides about one member.
        choose, observer: see groups.decide_group.
    """

    tree: Tree
    trial: Trial
    decides: DecidesMembers
    profile: Profile
    rules: GroupRules
    choose: Choose
    observer: PlacementObserver = UNOBSERVED

    def decide(self, rows: Rows | None = None, prefer: Prefer | None = None) -> GroupDecision:
        """Decides about all members together. `rows` are the nodes to consider; None means all nodes."""
        decide_one = self.decides(prefer)
        return decide_group(self.tree, self.trial, decide_one, self.rules, self.choose, self.observer, rows)

    def preempt(self, decision: GroupDecision) -> GroupPreemption:
        """Returns the pods to evict for a refused group; NOT_TRIED if it was not refused or must not preempt."""
        if decision.status is not GroupStatus.UNSCHEDULABLE or self.profile.preemption is None:
            return NOT_TRIED
        return preempt_for_group(self.tree, self.trial, lambda prefer: self.decide(None, prefer), self.profile)


def reserved(pod: Pod, chosen: Chosen) -> Iterator[Object]:
    """Yields the volumes and claims that change when the pod is placed, as they are afterwards.

    If a volume is to be bound to a claim, only the volume is yielded, because a controller changes the claim later.
    """
    for claim, volume in chosen.volumes.bind:
        yield bound(volume, claim)
    for claim in chosen.volumes.provision:
        yield selected(claim, chosen.node_name)
    for device_claim, allocation in chosen.devices.allocate:
        if device_claim.name == CLAIM_NAME:
            yield pending_claim(device_claim, allocation)
            continue
        consumer = chosen.devices.consumer_of(device_claim, pod)
        status = structs.replace(device_claim.status, allocation=allocation, reserved_for=[consumer])
        yield structs.replace(device_claim, status=status)
    for device_claim in chosen.devices.reserve:
        consumer = chosen.devices.consumer_of(device_claim, pod)
        if not device_claim.is_reserved_for(consumer.uid):
            users = [*(device_claim.status.reserved_for or ()), consumer]
            yield structs.replace(device_claim, status=structs.replace(device_claim.status, reserved_for=users))


def with_reasons(decision: GroupDecision, preemption: GroupPreemption, idle: IdleClaims) -> GroupDecision:
    """Adds the outcomes of preemption and of the search for idle claims to the group's reasons."""
    if idle.text and not (preemption.helps or preemption.is_final):
        decision = with_reason(decision, idle.text)
    if not preemption.text:
        return decision
    reason = f"pod group preemption: {preemption.text}"
    if preemption.is_error:
        text = f'error in "{DEFAULT_PREEMPTION}" PodGroupPostFilter plugins: {reason}'
        return replace(decision, status=GroupStatus.ERROR, reasons=(text,))
    return with_reason(decision, reason)


def member_failures(decision: GroupDecision, preemption: GroupPreemption, rejection: Rejection) -> dict[str, Failure]:
    """Returns UID -> Failure for each member that is not placed. The Failure contains the member's nomination."""
    failures = {}
    for uid, member in decision.members.items():
        message = failure_message(decision, member, waits_for_victims=preemption.helps)
        if message is None:
            continue
        if decision.status is GroupStatus.ERROR:
            failures[uid] = Failure(message)
        elif decision.is_success and isinstance(member.detail, Failure):
            failures[uid] = member.detail
        else:
            node = _nomination(uid, member, preemption)
            failures[uid] = Failure(message, rejection, nominated_node=node)
    return failures


def _nomination(uid: str, member: MemberDecision, preemption: GroupPreemption) -> NominatedNode:
    if uid in preemption.nominated:
        return preemption.nominated[uid]
    return Nominating.CLEAR if member.node_name is not None and not preemption.helps else Nominating.KEEP


def common_rejection(decisions: Sequence[GroupDecision]) -> Rejection:
    """Returns the rules that rejected any member, because an event that helps one member may help the whole tree.

    GangScheduling is included only if members are missing, or if no rule rejected a member. If it were always included,
    each bind of a member would wake the others in vain. A rule counts as unresolvable if it was unresolvable for every
    member that it rejected.
    """
    members = [member.detail for decision in decisions for member in decision.members.values()]
    rejections = [detail.rejection for detail in members if isinstance(detail, Failure)]
    rules = frozenset[str]().union(*(rejection.rules for rejection in rejections))
    resolvable = frozenset[str]().union(*(rejection.rules - rejection.unresolvable for rejection in rejections))
    groups = [decision.tree for decision in decisions]
    lacks_members = any(len(leaf.scheduled) < leaf.group.min_count for leaf in groups if isinstance(leaf, Leaf))
    by_gang = BY_GANG.unschedulable if lacks_members or not rules else frozenset[str]()
    return Rejection(unschedulable=rules | by_gang, unresolvable=rules - resolvable)
