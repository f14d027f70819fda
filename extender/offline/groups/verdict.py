"""Decides about a whole group, and keeps the outcome for each member."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.groups import GroupDecision, Tree, member_failure
from extender.groups.decision import leaf_decisions
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.offline.groups.membership import Membership, MissingGroup, Obstacle, obstacle
from extender.offline.state import ClusterState


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The decision about a root group in its current state.

    Attributes:
        kind, key: identify the group.
        tree: the group with its members; None if the group does not exist.
        obstacle: the reason why schedulers do not try the group; None if there is no such reason.
        decision: the decision about all members together; None if there is an obstacle.
        failures: UID -> why the member is not placed.
    """

    kind: str
    key: str
    tree: Tree | None
    obstacle: Obstacle | None
    decision: GroupDecision | None
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """True if all waiting members would be placed now."""
        return self.decision is not None and self.decision.is_success and not self.failures

    @property
    def text(self) -> str:
        """The text of the obstacle; without an obstacle, kube-scheduler's message about the attempt."""
        if self.obstacle is not None:
            return self.obstacle.text
        return self.decision.text if self.decision is not None else ""


class GroupVerdicts:
    """Decides about each group of a cluster once, at the first request for it; the cluster must not change."""

    def __init__(self, state: ClusterState) -> None:
        self.membership = Membership(state)
        self._state = state
        self._verdicts: dict[tuple[str, str], GroupVerdict] = {}

    def of(self, pod: Pod) -> GroupVerdict:
        """Returns the verdict on the root group of a member."""
        return self.of_root(self.membership.root_of(pod))

    def of_root(self, root: PodGroup | CompositePodGroup | MissingGroup) -> GroupVerdict:
        """Returns the verdict on a root group; `root` may name a group that does not exist."""
        identity = root.kind if isinstance(root, MissingGroup) else type(root).__name__, root.key
        if identity not in self._verdicts:
            self._verdicts[identity] = self._decided(root)
        return self._verdicts[identity]

    def _decided(self, root: PodGroup | CompositePodGroup | MissingGroup) -> GroupVerdict:
        if not isinstance(root, MissingGroup):
            return verdict_on(self._state, self.membership.tree(root))
        failures = {info.uid: root.obstacle.text for info in self.membership.waiting_for(root)}
        return GroupVerdict(root.kind, root.key, None, root.obstacle, None, failures)


def verdict_on(state: ClusterState, tree: Tree) -> GroupVerdict:
    """Returns the verdict on the group; decides about it only if there is no obstacle."""
    kind, key = type(tree.group).__name__, tree.group.key
    if (reason := obstacle(tree, state)) is not None:
        return GroupVerdict(kind, key, tree, reason, None, {info.uid: reason.text for info in waiting_members(tree)})
    decision = state.engine.decide_group(tree)
    failures = {}
    for leaf in leaf_decisions(decision):
        for uid, member in leaf.members.items():
            if (text := member_failure(leaf, member)) is not None:
                failures[uid] = text
    return GroupVerdict(kind, key, tree, None, decision, failures)
