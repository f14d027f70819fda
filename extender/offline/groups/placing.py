"""Places a root group in a simulated cluster as `scheduler.group_scheduling` does in a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from extender.groups import Composite, GroupDecision, GroupStatus, Tree, decide_group
from extender.groups.decision import leaf_decisions
from extender.groups.group_preemption import GroupPreemption, preempt_for_group
from extender.model.scheduling.pod_groups import GroupName
from extender.offline.groups.membership import Membership, MissingGroup, group_named, obstacle
from extender.offline.groups.verdict import rules_for
from extender.offline.state import ClusterState
from extender.queue.queued_group import GroupOutcome
from extender.scheduler.group_members import decides_members
from extender.scheduler.group_scheduling import common_rejection, member_failures
from extender.scheduler.scheduling_cycle import Chosen, Failure, SchedulingCycle
from extender.table import PodInfo, Trial

_RESULTS = {
    GroupStatus.SCHEDULED: GroupOutcome.SUCCESS,
    GroupStatus.UNSCHEDULABLE: GroupOutcome.REJECTED,
    GroupStatus.ERROR: GroupOutcome.ERROR,
}


@dataclass(slots=True)
class GroupPlacement:
    """The outcome for the waiting members of a group.

    Attributes:
        placed, failures: UID -> the chosen node, or the reason why the member is not placed.
        victims: the pods to evict; the group fits once the victims have left.
    """

    result: GroupOutcome
    placed: dict[str, Chosen] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    victims: Sequence[PodInfo] = ()


class GroupMembers:
    """The waiting members of a root group, in the order in which they are tried, and their tree of groups.

    Attributes:
        obstacle: the reason why schedulers do not try the group; None if there is no such reason.
    """

    def __init__(self, state: ClusterState, root: GroupName, waiting: Sequence[PodInfo]) -> None:
        self._state = state
        group = group_named(state.objects, root)
        self._tree: Tree | None = None
        if isinstance(group, MissingGroup):
            self.obstacle: str | None = group.obstacle.text
            return
        whole = Membership(state).tree(group)
        reason = obstacle(whole, state)
        self.obstacle = None if reason is None else reason.text
        self._tree = _in_order(whole, waiting)

    def decide(self, cycle: SchedulingCycle, random: Random) -> GroupPlacement:
        """Returns the outcome for each member without placing it. Call it only if `obstacle` is None."""
        tree, table = self._tree, self._state.table
        assert tree is not None
        trial, rules = Trial(table), rules_for(cycle.profile, tree)

        def decide() -> GroupDecision:
            return decide_group(tree, trial, decides_members(cycle, table), rules, random.choice)

        decision = decide()
        preemption = GroupPreemption("")
        if decision.status is GroupStatus.UNSCHEDULABLE and cycle.profile.preemption is not None:
            preemption = preempt_for_group(tree, trial, decide, cycle.profile)
        outcome = GroupPlacement(_RESULTS[decision.status], victims=preemption.victims)
        by_leaf = leaf_decisions(decision)
        rejection = common_rejection(by_leaf)
        for leaf in by_leaf:
            failures = member_failures(leaf, preemption, rejection)
            outcome.failures |= failures
            details = {uid: member.detail for uid, member in leaf.members.items() if uid not in failures}
            outcome.placed |= {uid: detail for uid, detail in details.items() if isinstance(detail, Chosen)}
        return outcome


def _in_order(tree: Tree, waiting: Sequence[PodInfo]) -> Tree:
    """Returns a copy of the tree in which only the members in `waiting` wait, in the same order."""
    if isinstance(tree, Composite):
        return replace(tree, children=[_in_order(child, waiting) for child in tree.children])
    own = {info.uid for info in tree.waiting}
    return replace(tree, waiting=[info for info in waiting if info.uid in own])
