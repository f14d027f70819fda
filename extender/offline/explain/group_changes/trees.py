"""Changes the groups and members of a tree of groups, and joins suggested changes, for `admitting` and `obstacles`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import structs

from extender.groups import Composite, Tree
from extender.groups.group_tree import waiting_members, with_leaves
from extender.model.pod import Pod
from extender.model.pod_groups import (
    CompositeGangPolicy,
    CompositePodGroup,
    CompositeSchedulingPolicy,
    GangPolicy,
    PodGroup,
    SchedulingPolicy,
)
from extender.offline.explain.changes.suggestion import SuggestedChange
from extender.table import PodInfo


def with_members(tree: Tree, change: Callable[[Pod], Pod]) -> Tree:
    """Returns the tree with `change` applied to each waiting member."""
    return with_leaves(tree, lambda leaf: replace(leaf, waiting=[_changed(info, change) for info in leaf.waiting]))


def _changed(info: PodInfo, change: Callable[[Pod], Pod]) -> PodInfo:
    pod = change(info.pod)
    return info if pod is info.pod else PodInfo(pod)


def without_topology(tree: Tree) -> Tree:
    """Returns the tree without the topology constraints of all its groups."""
    if isinstance(tree, Composite):
        tree = replace(tree, children=[without_topology(child) for child in tree.children])
    return without_own_topology(tree)


def without_own_topology(tree: Tree) -> Tree:
    """Returns the tree without the topology constraint of its root; the groups below keep theirs."""
    if isinstance(tree, Composite):
        composite = structs.replace(tree.group.spec, scheduling_constraints=None)
        return replace(tree, group=structs.replace(tree.group, spec=composite))
    spec = structs.replace(tree.group.spec, scheduling_constraints=None)
    return replace(tree, group=structs.replace(tree.group, spec=spec))


def changed_members(before: Tree, after: Tree) -> tuple[Pod, ...]:
    """Returns the waiting members whose spec has changed between the two trees."""
    specs = {info.uid: info.pod.spec for info in waiting_members(before)}
    return tuple(info.pod for info in waiting_members(after) if info.pod.spec != specs.get(info.uid, info.pod.spec))


def with_minimum(group: PodGroup, count: int) -> PodGroup:
    policy = SchedulingPolicy(gang=GangPolicy(min_count=count))
    return structs.replace(group, spec=structs.replace(group.spec, scheduling_policy=policy))


def with_group_minimum(group: CompositePodGroup, count: int) -> CompositePodGroup:
    policy = CompositeSchedulingPolicy(gang=CompositeGangPolicy(min_group_count=count))
    return structs.replace(group, spec=structs.replace(group.spec, scheduling_policy=policy))


def joined(changes: Sequence[SuggestedChange]) -> SuggestedChange:
    """Returns one change that makes all of `changes`; if two of them set the same object, the later change wins."""
    kinds = dict.fromkeys(kind for change in changes for kind in change.kind.split("+"))
    objects = {(type(obj), obj.key): obj for change in changes for obj in change.set_objects}
    members = {pod.key: pod for change in changes for pod in change.members}
    return SuggestedChange(
        kind="+".join(kinds),
        text=", and ".join(dict.fromkeys(change.text for change in changes)),
        size=sum(change.size for change in changes),
        nodes=changes[-1].nodes,
        set_objects=tuple(objects.values()),
        removed=tuple(dict.fromkeys(key for change in changes for key in change.removed)),
        members=tuple(members.values()),
    )
