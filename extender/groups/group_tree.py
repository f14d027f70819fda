"""Describes a group and its members at the start of a scheduling cycle: a PodGroup, or a tree of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from extender.model.scheduling.pod_groups import CompositePodGroup, PodGroup
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class Leaf:
    """A PodGroup with its members.

    Attributes:
        waiting: the members without a node, in the order in which they are tried.
        scheduled: the UIDs of the members that have a node, assumed or bound.
    """

    group: PodGroup
    waiting: Sequence[PodInfo]
    scheduled: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Composite:
    """A CompositePodGroup with its child groups, in the order in which they are tried."""

    group: CompositePodGroup
    children: Sequence[Tree]


Tree = Leaf | Composite


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yields the PodGroups of the tree from left to right."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for child in tree.children:
            yield from leaves(child)


def waiting_members(tree: Tree) -> list[PodInfo]:
    """Returns the members of the tree that have no node, in the order in which they are tried."""
    return [info for leaf in leaves(tree) for info in leaf.waiting]


def scheduled_members(tree: Tree) -> list[str]:
    """Returns the UIDs of all members of the tree that have a node."""
    return [uid for leaf in leaves(tree) for uid in leaf.scheduled]


def viable(tree: Tree, placed: Collection[str]) -> Collection[str]:
    """Returns the UIDs of the placed members that may be bound, because every group above them reaches its minimum."""
    return _viable(tree, placed) or ()


def _viable(tree: Tree, placed: Collection[str]) -> list[str] | None:
    """Returns the UIDs of the members that may be bound; None if the group does not reach its minimum."""
    if isinstance(tree, Leaf):
        own = [info.uid for info in tree.waiting if info.uid in placed]
        return own if len(tree.scheduled) + len(own) >= tree.group.min_count else None
    children = [uids for child in tree.children if (uids := _viable(child, placed)) is not None]
    return [uid for uids in children for uid in uids] if len(children) >= tree.group.min_count else None
