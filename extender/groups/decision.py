"""Holds the decision about a group, and the texts that its pods and its PodGroups get from it.

Source: upstream podGroupAlgorithmResult, completePodGroupAlgorithmResult, submitPodGroupAlgorithmResult.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from extender.groups.tree import Composite, Leaf, Tree
from extender.model.meta import Object

UNSCHEDULABLE_GROUP = "pod group is unschedulable"


class GroupStatus(Enum):
    """The outcome for one group of the tree."""

    SCHEDULED = "Scheduled"
    UNSCHEDULABLE = "Unschedulable"
    ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class MemberDecision:
    """The decision about one member, made with the members before it on their nodes.

    Attributes:
        node_name: the node that takes the member; None if none does.
        message: why no node takes it, in kube-scheduler's words.
        is_error: True if the attempt failed, which ends the attempt of the whole group.
        reserved: the volumes and claims as they are once the member is on its node; later members see them.
        detail: whatever else the caller decided; it is returned unchanged.
        rules: the rules that refused the member.
    """

    node_name: str | None
    message: str = ""
    is_error: bool = False
    reserved: Sequence[Object] = ()
    detail: object = None
    rules: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision about one group.

    Attributes:
        reasons: why it is not scheduled; empty if it is.
        members: the decisions by the UID of the member, in the order in which they were made. Members that were not
            tried, because the group could not succeed any more, are missing; `leaf_decisions` fills them in.
        children: the decisions about the child groups that were tried, by `namespace/name`.
        placement: the topology domain that was chosen; "" if the group is not restricted to one.
    """

    tree: Tree
    status: GroupStatus
    reasons: tuple[str, ...] = ()
    members: Mapping[str, MemberDecision] = field(default_factory=dict)
    children: Mapping[str, GroupDecision] = field(default_factory=dict)
    placement: str = ""

    @property
    def is_success(self) -> bool:
        return self.status is GroupStatus.SCHEDULED

    @property
    def text(self) -> str:
        """The message of the group's condition."""
        return ", ".join(self.reasons)

    @property
    def cause(self) -> str:
        """The text as an error (upstream Status.AsError): only the mark of an unschedulable group, if it has that."""
        return UNSCHEDULABLE_GROUP if self.reasons[:1] == (UNSCHEDULABLE_GROUP,) else self.text

    @property
    def placed(self) -> dict[str, str]:
        """UID -> node of the members that would be placed, in all groups below that succeeded."""
        own = {uid: member.node_name for uid, member in self.members.items() if member.node_name is not None}
        below = [child.placed for child in self.children.values() if child.is_success]
        return {uid: node for nodes in (own, *below) for uid, node in nodes.items()} if self.is_success else {}

    @property
    def tried(self) -> dict[str, MemberDecision]:
        """The decisions about all members below that were tried, by UID."""
        below = [child.tried for child in self.children.values()]
        return {uid: member for members in (self.members, *below) for uid, member in members.items()}


def leaf_decisions(root: GroupDecision) -> list[GroupDecision]:
    """Returns the decision about each PodGroup of the tree, with all its waiting members.

    A group below one that failed fails with that one's reasons, unless it failed for its own; so does a member that was
    not tried.
    """
    return [_with_all_members(decision) for decision in _effective(root)]


def _effective(decision: GroupDecision) -> Iterator[GroupDecision]:
    if not isinstance(decision.tree, Composite):
        yield decision
        return
    for child in decision.tree.children:
        own = decision.children.get(child.group.key)
        if own is None or (own.is_success and not decision.is_success):
            children = own.children if own is not None else {}
            own = GroupDecision(child, decision.status, decision.reasons, children=children)
        yield from _effective(own)


def _with_all_members(decision: GroupDecision) -> GroupDecision:
    assert isinstance(decision.tree, Leaf)
    untried = MemberDecision(None, decision.text, decision.status is GroupStatus.ERROR)
    members = {info.uid: decision.members.get(info.uid, untried) for info in decision.tree.waiting}
    return replace(decision, members=members)


def with_reason(decision: GroupDecision, reason: str) -> GroupDecision:
    """Returns the decision with a further reason; its members keep theirs."""
    return replace(decision, reasons=(*decision.reasons, reason))


def member_failure(group: GroupDecision, member: MemberDecision, *, waits_for_victims: bool = False) -> str | None:
    """Returns why a member is not placed although it was tried with its group; None if it is placed.

    `waits_for_victims`: pods are being evicted for the group. Then upstream adds nothing to the group's reasons.
    """
    if group.status is GroupStatus.ERROR:
        return member.message if member.is_error else group.text
    if member.node_name is None:
        return member.message
    if group.is_success:
        return None
    return group.text if waits_for_victims else ", ".join((UNSCHEDULABLE_GROUP, *group.reasons))
