"""Defines the decision about a group, and the messages for its pods and PodGroups.

Source: upstream podGroupAlgorithmResult, completePodGroupAlgorithmResult, completeCompositePodGroupAlgorithmResultMap,
submitPodGroupAlgorithmResult.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from extender.groups.group_tree import Leaf, Tree
from extender.groups.topology_placements import NO_PLACEMENTS
from extender.model.meta import Object
from extender.runtime.ports import Annotations

UNSCHEDULABLE_GROUP = "pod group is unschedulable"


class GroupStatus(Enum):
    """The outcome for one group of the tree."""

    SCHEDULED = "Scheduled"
    UNSCHEDULABLE = "Unschedulable"
    ERROR = "SchedulerError"


_OUTCOMES = {GroupStatus.UNSCHEDULABLE: "is unschedulable", GroupStatus.ERROR: "encountered an error"}


@dataclass(frozen=True, slots=True)
class MemberDecision:
    """The decision about one member. The members decided before it count as being on their nodes.

    Attributes:
        node_name: the node that takes the member; None if no node does.
        message: why no node takes the member, in kube-scheduler's words.
        is_error: True if the decision failed with an error. This ends the attempt of the whole group.
        reserved: the volumes and claims as they are once the member is on its node; later members see them.
        annotations: what users' Bind rules chose for the member; later members see it.
        detail: data of the caller.
        rules: the rules that refused the member.
    """

    node_name: str | None
    message: str = ""
    is_error: bool = False
    reserved: Sequence[Object] = ()
    annotations: Annotations = ()
    detail: object = None
    rules: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision about one group.

    Attributes:
        reasons: why the group is not scheduled; empty if it is scheduled.
        members: UID -> decision, in the order in which the members were tried. A member is missing if the attempt
            ended before the member's turn; `leaf_decisions` adds it.
        children: the decision about each child group that was tried, by `namespace/name`.
        placement: the topology domain that was chosen; "" if the group is not restricted to one domain.
        names_groups: True if a member, or a child group, that fails with this group gets the name of this group as the
            reason; False if it gets the reasons of this group.
    """

    tree: Tree
    status: GroupStatus
    reasons: tuple[str, ...] = ()
    members: Mapping[str, MemberDecision] = field(default_factory=dict)
    children: Mapping[str, GroupDecision] = field(default_factory=dict)
    placement: str = ""
    names_groups: bool = False

    @property
    def is_success(self) -> bool:
        return self.status is GroupStatus.SCHEDULED

    @property
    def text(self) -> str:
        """The message of the group's condition."""
        return ", ".join(self.reasons)

    @property
    def cause(self) -> str:
        """The words with which a parent group quotes the failure of this group (upstream Status.AsError).

        If the first reason is UNSCHEDULABLE_GROUP, only that reason is quoted, otherwise all reasons.
        """
        return UNSCHEDULABLE_GROUP if self.reasons[:1] == (UNSCHEDULABLE_GROUP,) else self.text

    @property
    def placed(self) -> dict[str, str]:
        """UID -> node name, for the placed members of this group and its child groups; empty if the group failed."""
        own = {uid: member.node_name for uid, member in self.members.items() if member.node_name is not None}
        below = [child.placed for child in self.children.values() if child.is_success]
        return {uid: node for nodes in (own, *below) for uid, node in nodes.items()} if self.is_success else {}

    @property
    def tried(self) -> dict[str, MemberDecision]:
        """UID -> decision, for every member of this group and its child groups that was tried."""
        below = [child.tried for child in self.children.values()]
        return {uid: member for members in (self.members, *below) for uid, member in members.items()}


def leaf_decisions(root: GroupDecision) -> list[GroupDecision]:
    """Returns the decision about each PodGroup of the tree; see `group_decisions`."""
    return [decision for decision in group_decisions(root) if isinstance(decision.tree, Leaf)]


def group_decisions(root: GroupDecision) -> Iterator[GroupDecision]:
    """Yields the decision about each group of the tree; those about PodGroups have an entry for every waiting member.

    If a group failed, the groups below it fail with it, unless they have reasons of their own. A member that was not
    tried fails with its group.
    """
    pending: list[tuple[GroupDecision, GroupDecision | None]] = [(root, None if root.is_success else root)]
    while pending:
        decision, failed = pending.pop()
        decision = replace(decision, names_groups=root.names_groups)
        if isinstance(decision.tree, Leaf):
            yield _with_all_members(decision.tree, decision)
            continue
        yield decision
        below = _named_child if root.names_groups else _effective_child
        pending.extend(below(decision, child, failed) for child in reversed(decision.tree.children))


def _effective_child(
    above: GroupDecision, child: Tree, _failed: GroupDecision | None
) -> tuple[GroupDecision, GroupDecision | None]:
    own = above.children.get(child.group.key)
    if own is None or (own.is_success and not above.is_success):
        own = GroupDecision(child, above.status, above.reasons, children=own.children if own is not None else {})
    return own, None


def _named_child(
    above: GroupDecision, child: Tree, failed: GroupDecision | None
) -> tuple[GroupDecision, GroupDecision | None]:
    """Returns the decision about a child group, and the lowest group from the child up that failed on its own."""
    own = above.children.get(child.group.key, GroupDecision(child, GroupStatus.SCHEDULED))
    is_less = failed is not None and failed.status is GroupStatus.ERROR and own.status is not GroupStatus.ERROR
    if failed is not None and (own.is_success or is_less):
        reason = f'ancestor composite pod group "{failed.tree.group.name}" {_OUTCOMES[failed.status]}'
        return replace(own, status=failed.status, reasons=(reason,)), failed
    return own, failed if own.is_success else own


def _with_all_members(leaf: Leaf, decision: GroupDecision) -> GroupDecision:
    # kube-scheduler does not name the group if there is no topology domain at all.
    message = decision.text if decision.reasons == (NO_PLACEMENTS,) else _with_group(decision)
    untried = MemberDecision(None, message, decision.status is GroupStatus.ERROR)
    return replace(decision, members={info.uid: decision.members.get(info.uid, untried) for info in leaf.waiting})


def _with_group(decision: GroupDecision) -> str:
    """Returns why a member fails with its group."""
    if not decision.names_groups or decision.is_success:
        return decision.text
    return f'parent pod group "{decision.tree.group.name}" {_OUTCOMES[decision.status]}'


def with_reason(decision: GroupDecision, reason: str) -> GroupDecision:
    """Returns a copy of the decision with one more reason for the group; the members' messages stay the same."""
    return replace(decision, reasons=(*decision.reasons, reason))


def member_failure(group: GroupDecision, member: MemberDecision, *, waits_for_victims: bool = False) -> str | None:
    """Returns why a member is not placed; None if it is placed.

    Args:
        member: the decision about the member.
        waits_for_victims: True if pods are being evicted for the group. The text then lacks the prefix
            UNSCHEDULABLE_GROUP, as in upstream.
    """
    if group.status is GroupStatus.ERROR:
        return member.message if member.is_error else _with_group(group)
    if member.node_name is None:
        return member.message
    if group.is_success:
        return None
    if group.names_groups:
        return _with_group(group)
    return group.text if waits_for_victims else ", ".join((UNSCHEDULABLE_GROUP, *group.reasons))
