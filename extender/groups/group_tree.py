"""Describes a group and its members at the start of a scheduling cycle: a PodGroup, or a tree of groups.

`mismatch` checks that the groups of a tree, and their pods, can be scheduled together. Source: upstream
validatePodGroup (until 1.37), validatePodGroupHierarchy (since 1.38).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup, SchedulingGroup
from extender.table import PodInfo
from extender.table.features import FeatureGates

T = TypeVar("T")


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


def too_deep(name: GroupName) -> str:
    """Returns why a tree is refused in which `name` is below the last allowed level, in kube-scheduler's words."""
    return f"exceeded maximum hierarchy depth at {name.kind} {name.key}: a tree has at most {MAX_TREE_DEPTH} levels"


def excess(tree: Tree) -> GroupName | None:
    """Returns the name of a group that is below the last allowed level of the tree; None if there is no such group."""
    return next((GroupName.of(below.group) for below, _, level in _walk(tree) if level > MAX_TREE_DEPTH), None)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yields the PodGroups of the tree from left to right."""
    return (below for below, _, _ in _walk(tree) if isinstance(below, Leaf))


def groups_of(tree: Tree) -> Iterator[PodGroup | CompositePodGroup]:
    """Yields the groups of the tree, each before the groups below it."""
    return (below.group for below, _, _ in _walk(tree))


def _walk(tree: Tree) -> Iterator[tuple[Tree, CompositePodGroup | None, int]]:
    """Yields each part of the tree before the parts below it, with the group above it, and its level from 1.

    Trees are walked without recursion, because a tenant decides how deep a tree is.
    """
    pending: list[tuple[Tree, CompositePodGroup | None, int]] = [(tree, None, 1)]
    while pending:
        below, _, level = place = pending.pop()
        yield place
        if isinstance(below, Composite):
            pending.extend((child, below.group, level + 1) for child in reversed(below.children))


def _folded(tree: Tree, of_leaf: Callable[[Leaf], T], of_composite: Callable[[Composite, Sequence[T]], T]) -> T:
    """Returns the value of the tree; `of_composite` takes the values of the children, from left to right."""
    values: list[T] = []
    pending: list[tuple[Tree, bool]] = [(tree, False)]
    while pending:
        below, has_values = pending.pop()
        if isinstance(below, Leaf):
            values.append(of_leaf(below))
        elif has_values:
            first = len(values) - len(below.children)
            values[first:] = [of_composite(below, values[first:])]
        else:
            pending.append((below, True))
            pending.extend((child, False) for child in reversed(below.children))
    return values[0]


def path_to(tree: Tree, key: str) -> list[PodGroup | CompositePodGroup]:
    """Returns the groups from the root of the tree to the PodGroup with this key; empty if it is not in the tree."""
    path: list[PodGroup | CompositePodGroup] = []
    for below, _, level in _walk(tree):
        path[level - 1 :] = [below.group]
        if isinstance(below, Leaf) and below.group.key == key:
            return path
    return []


def with_leaves(tree: Tree, change: Callable[[Leaf], Leaf]) -> Tree:
    """Returns the tree with each PodGroup replaced by what `change` returns for it."""

    def with_children(composite: Composite, children: Sequence[Tree]) -> Tree:
        return replace(composite, children=children)

    return _folded(tree, change, with_children)


def waiting_members(tree: Tree) -> list[PodInfo]:
    """Returns the members of the tree that have no node, in the order in which they are tried."""
    return [info for leaf in leaves(tree) for info in leaf.waiting]


def scheduled_members(tree: Tree) -> list[str]:
    """Returns the UIDs of all members of the tree that have a node."""
    return [uid for leaf in leaves(tree) for uid in leaf.scheduled]


def members_needed(tree: Tree) -> int:
    """Returns how many members without a node must get one, at least, so that the group reaches its minimum."""

    def of_composite(composite: Composite, below: Sequence[int]) -> int:
        return sum(sorted(below)[: composite.group.min_count])

    return _folded(tree, lambda leaf: max(leaf.group.min_count - len(leaf.scheduled), 0), of_composite)


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

    def of_leaf(leaf: Leaf) -> Collection[str] | None:
        own = counted(leaf)
        return own if len(own) >= leaf.group.min_count else None

    def of_composite(composite: Composite, below: Sequence[Collection[str] | None]) -> Collection[str] | None:
        children = [uids for uids in below if uids is not None]
        return [uid for uids in children for uid in uids] if len(children) >= composite.group.min_count else None

    return _folded(tree, of_leaf, of_composite)


def shortfall(
    tree: Tree, key: str, counted: Callable[[Leaf], Collection[str]]
) -> tuple[PodGroup | CompositePodGroup, int]:
    """Returns the lowest group above a PodGroup, or itself, that does not reach its minimum, and how much it lacks.

    If each of them reaches its minimum, returns the root and a number that is not positive.

    Args:
        key: the key of a PodGroup in the tree.
        counted: see `reaching`.
    """
    path = path_to(tree, key)
    below = next(leaf for leaf in leaves(tree) if leaf.group.key == key)
    missing = below.group.min_count - len(counted(below))
    for group in reversed(path[:-1]):
        if missing > 0:
            return path[path.index(group) + 1], missing
        composite = next(each for each, _, _ in _walk(tree) if each.group is group)
        assert isinstance(composite, Composite)
        reached = sum(_reaching(child, counted) is not None for child in composite.children)
        missing = group.min_count - reached
    return path[0], missing


PlacedMembers = Callable[[Leaf], Iterable[PodInfo]]
"""Returns the members of a PodGroup that have a node, the `scheduled` ones."""


def mismatch(tree: Tree, placed: PlacedMembers, features: FeatureGates) -> str | None:
    """Returns why the tree cannot be scheduled, in kube-scheduler's words; None if it can."""
    waiting = waiting_members(tree)
    if not waiting:
        return None
    if features.behaviours.whole_trees_are_validated:
        expected = tree.group.spec.preemption_policy or preemption_policy(waiting[0].pod.spec.preemption_policy)
        return next(_Validation(tree, waiting[0], expected, placed).faults(), None)
    scheduled = chain.from_iterable(map(placed, leaves(tree)))
    return _mismatch_of_pods(tree.group, [*waiting, *scheduled], features)


def preemption_policy(spec_policy: str | None) -> str:
    """Returns the preemption policy of a pod or a group; `spec_policy` is the field in its spec."""
    return spec_policy or "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class _Validation:
    """The validation of a tree in 1.38.

    Attributes:
        first: the first waiting member, whose scheduler all others must have.
        policy: the preemption policy that all groups and pods must have.
    """

    tree: Tree
    first: PodInfo
    policy: str
    placed: PlacedMembers

    def faults(self) -> Iterator[str]:
        """Yields the faults in upstream's order: each group before its child groups, its pods last."""
        for below, parent, level in _walk(self.tree):
            if isinstance(below, Composite) and level == MAX_TREE_DEPTH:
                key = GroupName.of(below.group).entity_key
                yield f'hierarchy depth exceeds maximum allowed depth {MAX_TREE_DEPTH} at "{key}"'
            if parent is not None:
                yield from self._of_child(below.group, parent)
            if isinstance(below, Leaf):
                for info in chain(below.waiting, self.placed(below)):
                    yield from self._of_pod(info)

    def _of_child(self, group: PodGroup | CompositePodGroup, parent: CompositePodGroup) -> Iterator[str]:
        root = self.tree.group
        key, root_key, parent_key = (GroupName.of(each).entity_key for each in (group, root, parent))
        workload, of_root = group.spec.workload_ref.workload_name, root.spec.workload_ref.workload_name
        if workload != of_root:
            yield (
                "pod group workload does not match root workload, got: "
                f'"{workload}" ("{key}") and "{of_root}" ("{root_key}")'
            )
        if group.priority != root.priority:
            yield (
                "all pod groups in a hierarchy should have the same priority as the root pod group's priority, got "
                f'{group.priority} ("{key}") and {root.priority} ("{root_key}")'
            )
        policy = group.spec.preemption_policy
        if policy and policy != self.policy:
            same = "all pod groups in a hierarchy should have the same preemption policy"
            yield f'{same}, got {policy} ("{key}") and {self.policy}'
        if parent.is_gang and group.spec.scheduling_policy.basic is not None:
            yield f'gang parent "{parent_key}" cannot have basic child "{key}"'
        if parent.is_disrupted_whole and group.is_disrupted_singly:
            of_parent = f'parent "{parent_key}" with All disruption mode'
            yield f'{of_parent} cannot have child "{key}" with Single disruption mode'

    def _of_pod(self, info: PodInfo) -> Iterator[str]:
        same = "all pods in a pod group hierarchy should have the same"
        pod, first, root = info.pod, self.first.pod, self.tree.group
        name, expected = pod.spec.scheduler_name, first.spec.scheduler_name
        if name != expected:
            yield f'{same} .spec.schedulerName set, got: "{name}" ("{pod.name}") and "{expected}" ("{first.name}")'
        if info.priority != root.priority:
            root_key = GroupName.of(root).entity_key
            yield (
                f"{same} priority as the root pod group's priority, got "
                f'{info.priority} ("{pod.name}") and {root.priority} ("{root_key}")'
            )
        policy = preemption_policy(pod.spec.preemption_policy)
        if policy != self.policy:
            yield f'{same} preemption policy, got {policy} ("{pod.name}") and {self.policy}'


def _mismatch_of_pods(group: SchedulingGroup, infos: Sequence[PodInfo], features: FeatureGates) -> str | None:
    for info in infos:
        name, first = info.pod.spec.scheduler_name, infos[0].pod.spec.scheduler_name
        if name != first:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, got: "
                f'"{name}" and "{first}"'
            )
        if info.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, got "
                f"{info.priority} and {group.priority}"
            )
        if (other := _other_policy(group, info, infos[0], features)) is not None:
            return other
    return None


def _other_policy(group: SchedulingGroup, info: PodInfo, first: PodInfo, features: FeatureGates) -> str | None:
    """Returns an error message if the preemption policies of a pod and its group differ, otherwise None.

    If the feature gate for policies of groups is off, the policy of the first member counts as the group's policy.
    """
    of_group = features.pod_group_preemption_policy
    expected = preemption_policy(group.spec.preemption_policy if of_group else first.pod.spec.preemption_policy)
    policy = preemption_policy(info.pod.spec.preemption_policy)
    if policy == expected:
        return None
    suffix = " as the pod group's preemption policy" if of_group else ""
    same = f"all pods in a single pod group should have the same preemption policy{suffix}"
    return f"{same}, got {policy} and {expected}"
