"""Places a root group in a simulated cluster as `scheduler.group_scheduling` does in a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from extender.engine import Engine
from extender.engine.decision import Chosen, Failure
from extender.engine.group_members import common_rejection, member_failures
from extender.groups import Composite, GroupStatus, Tree
from extender.groups.decision import leaf_decisions
from extender.model.pod_groups import GroupName
from extender.offline.groups.membership import Membership, MissingGroup, group_named, obstacle
from extender.offline.state import ClusterState
from extender.queue.entries import GroupOutcome
from extender.table import PodInfo

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

    def decide(self, engine: Engine) -> GroupPlacement:
        """Returns the outcome for each member without placing it. Call it only if `obstacle` is None."""
        assert self._tree is not None
        decision = engine.decide_group(self._tree)
        preemption = engine.preempt_for_group(decision)
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
