"""Places a pod group in a simulated cluster, with the steps of the loop (scheduler.group_scheduling)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from extender.groups import GroupDecision, GroupRules, GroupStatus, Leaf, decide_group, member_failure
from extender.groups.decision import leaf_decisions
from extender.groups.preemption import GroupPreemption, preempt_for_group
from extender.model.scheduling.pod_groups import PodGroup
from extender.offline.groups.membership import MissingGroup, obstacle
from extender.offline.groups.verdict import goes_by_placements
from extender.offline.state import ClusterState
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.queue.queued_group import GroupOutcome
from extender.queue.queued_pod import Rejection
from extender.runtime.ports import NominatedNode, Nominating
from extender.scheduler.group_members import decides_members
from extender.scheduler.scheduling_cycle import Chosen, Failure, SchedulingCycle
from extender.table import PodInfo
from extender.table.trial import Trial

_RESULTS = {
    GroupStatus.SCHEDULED: GroupOutcome.SUCCESS,
    GroupStatus.UNSCHEDULABLE: GroupOutcome.REJECTED,
    GroupStatus.ERROR: GroupOutcome.ERROR,
}


@dataclass(slots=True)
class GroupPlacement:
    """The outcome for the waiting members of a group, by their UIDs.

    Attributes:
        victims: the pods to evict, so that the group fits once they have left.
    """

    result: GroupOutcome
    placed: dict[str, Chosen] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    victims: Sequence[PodInfo] = ()


class GroupMembers:
    """The waiting members of a group, in the order in which they are tried, and the group as the cluster has it.

    Attributes:
        obstacle: why no scheduler tries the group; None if one does.
    """

    def __init__(self, state: ClusterState, key: str, waiting: Sequence[PodInfo]) -> None:
        self._state = state
        group = state.objects.get(PodGroup, key)
        self._leaf: Leaf | None = None
        if group is None:
            self.obstacle: str | None = MissingGroup(PodGroup.__name__, key).obstacle.text
            return
        scheduled = [info.uid for info in state.infos.values() if info.pod.node_name and info.pod.group_key == key]
        self._leaf = Leaf(group, waiting, scheduled)
        reason = obstacle(self._leaf)
        self.obstacle = None if reason is None else reason.text
        if group.parent_key is not None:
            self.obstacle = f"it belongs to CompositePodGroup {group.parent_key}, and trees of groups are not simulated"

    def decide(self, cycle: SchedulingCycle, random: Random) -> GroupPlacement:
        """Returns what becomes of each member; changes nothing. Call it only if there is no obstacle."""
        leaf, table = self._leaf, self._state.table
        assert leaf is not None
        trial, rules = Trial(table), GroupRules(by_placements=goes_by_placements(leaf))

        def decide() -> GroupDecision:
            return decide_group(leaf, trial, decides_members(cycle, table), rules, random.choice)

        (decision,) = leaf_decisions(decide())
        preemption = GroupPreemption("")
        if decision.status is GroupStatus.UNSCHEDULABLE and cycle.profile.preemption is not None:
            preemption = preempt_for_group(leaf, trial, decide, cycle.profile)
        outcome = GroupPlacement(_RESULTS[decision.status], victims=preemption.victims)
        rejection = _rejection(decision)
        for info in leaf.waiting:
            member = decision.members[info.uid]
            if (text := member_failure(decision, member)) is not None:
                node: NominatedNode = preemption.nominated.get(info.uid, Nominating.KEEP)
                outcome.failures[info.uid] = Failure(text, rejection, nominated_node=node)
            elif isinstance(member.detail, Chosen):
                outcome.placed[info.uid] = member.detail
        return outcome


def _rejection(decision: GroupDecision) -> Rejection:
    """Returns the rules that refused any member, so that what may help one of them has the group tried again."""
    details = [member.detail for member in decision.members.values()]
    rejections = [detail.rejection for detail in details if isinstance(detail, Failure)]
    by_gang = frozenset((GANG_SCHEDULING,))
    return Rejection(unschedulable=by_gang.union(*(rejection.unschedulable for rejection in rejections)))
