"""Describes a group and its members at the start of a scheduling cycle: a PodGroup, or a tree of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

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


def groups_of(tree: Tree) -> Iterator[PodGroup | CompositePodGroup]:
    """Yields the groups of the tree, each before the groups below it."""
    yield tree.group
    for child in () if isinstance(tree, Leaf) else tree.children:
        yield from groups_of(child)


def path_to(tree: Tree, key: str) -> list[PodGroup | CompositePodGroup]:
    """Returns the groups from the root of the tree to the PodGroup with this key; empty if it is not in the tree."""
    if isinstance(tree, Leaf):
        return [tree.group] if tree.group.key == key else []
    for child in tree.children:
        if below := path_to(child, key):
            return [tree.group, *below]
    return []


def with_leaves(tree: Tree, change: Callable[[Leaf], Leaf]) -> Tree:
    """Returns the tree with each PodGroup replaced by what `change` returns for it."""
    if isinstance(tree, Leaf):
        return change(tree)
    return replace(tree, children=[with_leaves(child, change) for child in tree.children])


def waiting_members(tree: Tree) -> list[PodInfo]:
    """Returns the members of the tree that have no node, in the order in which they are tried."""
    return [info for leaf in leaves(tree) for info in leaf.waiting]


def scheduled_members(tree: Tree) -> list[str]:
    """Returns the UIDs of all members of the tree that have a node."""
    return [uid for leaf in leaves(tree) for uid in leaf.scheduled]


def reaches_minimum(tree: Tree) -> bool:
    """Returns True if the group, and as many groups below it as each group needs, have enough scheduled members."""
    return _reaching(tree, lambda leaf: leaf.scheduled) is not None


def viable(tree: Tree, placed: Collection[str]) -> Collection[str]:
    """Returns the UIDs of the placed members that may be bound, because every group above them reaches its minimum."""
    waiting = {info.uid for info in waiting_members(tree) if info.uid in placed}

    def counted(leaf: Leaf) -> Collection[str]:
        return [*leaf.scheduled, *(info.uid for info in leaf.waiting if info.uid in waiting)]

    return [uid for uid in reaching(tree, counted) if uid in waiting]


def reaching(tree: Tree, counted: Callable[[Leaf], Collection[str]]) -> Collection[str]:
    """Returns the counted members of the tree for which every group above them reaches its minimum.

    Args:
        counted: returns the UIDs of the members of a PodGroup that count towards its minimum.
    """
    return _reaching(tree, counted) or ()


def _reaching(tree: Tree, counted: Callable[[Leaf], Collection[str]]) -> Collection[str] | None:
    """Returns the counted members below the group; None if the group does not reach its minimum."""
    if isinstance(tree, Leaf):
        own = counted(tree)
        return own if len(own) >= tree.group.min_count else None
    children = [uids for child in tree.children if (uids := _reaching(child, counted)) is not None]
    return [uid for uids in children for uid in uids] if len(children) >= tree.group.min_count else None


def shortfall(
    tree: Tree, key: str, counted: Callable[[Leaf], Collection[str]]
) -> tuple[PodGroup | CompositePodGroup, int]:
    """Returns the lowest group above a PodGroup, or itself, that does not reach its minimum, and how much it lacks.

    If each of them reaches its minimum, returns the root and a number that is not positive.

    Args:
        key: the key of a PodGroup in the tree.
        counted: see `reaching`.
    """
    if isinstance(tree, Leaf):
        return tree.group, tree.group.min_count - len(counted(tree))
    group, missing = shortfall(next(child for child in tree.children if path_to(child, key)), key, counted)
    if missing > 0:
        return group, missing
    reached = sum(_reaching(child, counted) is not None for child in tree.children)
    return tree.group, tree.group.min_count - reached
