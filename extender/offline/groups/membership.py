"""Finds the groups of a cluster, their members, and the reason why a scheduler does not try a group.

Upstream reports few of these reasons: a gang with too few pods, or whose PodGroup is missing, gets no event and no
condition. Source: upstream GangScheduling.PreEnqueue, validatePodGroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.groups import Composite, Leaf, Tree
from extender.groups.group_tree import excess, leaves, too_deep, waiting_members
from extender.groups.mismatch import mismatch
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.offline.documents.codes import CauseCode
from extender.offline.state import ClusterState
from extender.runtime.text import counted
from extender.table import PodInfo
from extender.table.object_index import Objects


class Obstacle(NamedTuple):
    """The reason why schedulers do not try a group."""

    code: CauseCode
    text: str


class MissingGroup(NamedTuple):
    """A group that a pod or a child group belongs to, but that does not exist, is its own ancestor or is too high.

    Attributes:
        is_circular: True if the group is its own ancestor. `key` is then the alphabetically first key of the cycle.
        is_too_high: True if more groups are above the pod or group than a tree may have levels.
    """

    kind: str
    key: str
    is_circular: bool = False
    is_too_high: bool = False

    @property
    def can_be_created(self) -> bool:
        """True if only an object is missing; False if the group exists, but no scheduler would try its tree."""
        return not (self.is_circular or self.is_too_high)

    @property
    def obstacle(self) -> Obstacle:
        if self.is_too_high:
            text = f"{too_deep(GroupName(self.kind, self.key))}; its members are not tried, and no event reports this"
            return Obstacle(CauseCode.NO_GROUP, text)
        if self.is_circular:
            text = (
                f"{self.kind} {self.key} is its own ancestor: its members have no root group, and no event reports this"
            )
            return Obstacle(CauseCode.NO_GROUP, text)
        text = f"{self.kind} {self.key} does not exist: its members wait for it, and no event reports this"
        return Obstacle(CauseCode.NO_GROUP, text)


class Membership:
    """The groups of a cluster and their members, as they were when this object was created."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._members: dict[str, list[PodInfo]] = {}
        for info in state.infos.values():
            if (key := info.pod.group_key) is not None:
                self._members.setdefault(key, []).append(info)
        self._children: dict[str, list[PodGroup | CompositePodGroup]] = {}
        for group in self._groups():
            if group.parent_key is not None:
                self._children.setdefault(group.parent_key, []).append(group)

    def root_of(self, pod: Pod) -> PodGroup | CompositePodGroup | MissingGroup:
        """Returns the root group of a member; a MissingGroup if a group above the member is missing or circular."""
        assert pod.group_key is not None
        return _root_of(self._state.objects, pod.group_key)

    def root_named(self, kind: str, key: str) -> PodGroup | CompositePodGroup | MissingGroup | None:
        """Returns the root of this group; None if the group does not exist and nothing refers to it."""
        if kind == PodGroup.__name__:
            members = self._members.get(key)
            group = self._state.objects.get(PodGroup, key)
            return (
                _root_above(self._state.objects, group)
                if group is not None
                else MissingGroup(kind, key)
                if members
                else None
            )
        composite = self._state.objects.get(CompositePodGroup, key)
        if composite is not None:
            return _root_above(self._state.objects, composite)
        return MissingGroup(kind, key) if key in self._children else None

    def tree(self, group: PodGroup | CompositePodGroup) -> Tree:
        """Returns the group, the groups below it and their members, in the order in which a scheduler tries them."""
        levels: list[list[PodGroup | CompositePodGroup]] = [[group]]
        while levels[-1] and len(levels) <= MAX_TREE_DEPTH:  # one level too many, so that `obstacle` sees it
            levels.append([child for above in levels[-1] for child in self._children_of(above)])
        trees: dict[GroupName, Tree] = {}
        for level in reversed(levels):
            for each in level:
                if isinstance(each, PodGroup):
                    trees[GroupName.of(each)] = self._leaf(each)
                else:
                    names = map(GroupName.of, self._children_of(each))
                    trees[GroupName.of(each)] = Composite(each, [trees[name] for name in names if name in trees])
        return trees[GroupName.of(group)]

    def _children_of(self, group: PodGroup | CompositePodGroup) -> Sequence[PodGroup | CompositePodGroup]:
        return () if isinstance(group, PodGroup) else sorted(self._children.get(group.key, ()), key=_created)

    def _leaf(self, group: PodGroup) -> Leaf:
        infos = sorted(self._members.get(group.key, ()), key=lambda info: (-info.priority, *_created(info.pod)))
        waiting = [info for info in infos if not info.pod.node_name and not info.pod.terminating]
        return Leaf(group, waiting, [info.uid for info in infos if info.pod.node_name])

    def waiting_for(self, missing: MissingGroup) -> list[PodInfo]:
        """Returns the pods without a node that belong to the missing group, directly or through child groups."""
        waiting = (info for infos in self._members.values() for info in infos if not info.pod.node_name)
        return [info for info in waiting if self.root_of(info.pod) == missing]

    def _groups(self) -> Iterator[PodGroup | CompositePodGroup]:
        yield from self._state.objects.all(PodGroup).values()
        yield from self._state.objects.all(CompositePodGroup).values()


def _created(obj: Object) -> tuple[str, str]:
    return str(obj.metadata.creation_timestamp or ""), obj.name


def root_name(objects: Objects, key: str) -> GroupName:
    """Returns the name of the PodGroup's root group, or of the first missing group on the way to the root."""
    root = _root_of(objects, key)
    return GroupName(root.kind, root.key) if isinstance(root, MissingGroup) else GroupName.of(root)


def group_named(objects: Objects, name: GroupName) -> PodGroup | CompositePodGroup | MissingGroup:
    """Returns the root group above the group with this name, or this group if it has no parent.

    Returns a MissingGroup if the group or one of its ancestors does not exist, or if the parents form a cycle.
    """
    if name.kind == PodGroup.__name__:
        return _root_of(objects, name.key)
    group = objects.get(CompositePodGroup, name.key)
    return MissingGroup(name.kind, name.key) if group is None else _root_above(objects, group)


def _root_of(objects: Objects, key: str) -> PodGroup | CompositePodGroup | MissingGroup:
    group = objects.get(PodGroup, key)
    return MissingGroup(PodGroup.__name__, key) if group is None else _root_above(objects, group)


def _root_above(objects: Objects, group: PodGroup | CompositePodGroup) -> PodGroup | CompositePodGroup | MissingGroup:
    path = [GroupName.of(group)]
    while (key := group.parent_key) is not None:
        name = GroupName(CompositePodGroup.__name__, key)
        if name in path:
            return MissingGroup(*min(path[path.index(name) :]), is_circular=True)
        if len(path) == MAX_TREE_DEPTH:
            return MissingGroup(*name, is_too_high=True)
        path.append(name)
        parent = objects.get(CompositePodGroup, key)
        if parent is None:
            return MissingGroup(*name)
        group = parent
    return group


def obstacle(tree: Tree, state: ClusterState) -> Obstacle | None:
    """Returns the reason why schedulers do not try the group; None if there is no such reason."""
    if (deepest := excess(tree)) is not None:
        return Obstacle(CauseCode.NO_GROUP, f"{too_deep(deepest)}: the whole tree is not tried")
    infos = waiting_members(tree)
    for pod in (info.pod for info in infos):
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            text = f"member {pod.name} is gated by {gates}, which holds back the whole group"
            return Obstacle(CauseCode.GATED, text)
    enforces_gangs = not infos or state.profiles.of(infos[0].pod).enforces_gangs
    if enforces_gangs and (shortage := _shortage(tree)) is not None:
        return Obstacle(CauseCode.SHORT_OF_PODS, shortage)
    difference = mismatch(tree.group, infos, state.profiles.features)
    return None if difference is None else Obstacle(CauseCode.DIFFERENT_MEMBERS, difference)


def lacks_pods(leaf: Leaf) -> int:
    """Returns the number of pods that a gang lacks for its minimum count; 0 for groups that are not gangs."""
    return max(leaf.group.min_count - len(leaf.waiting) - len(leaf.scheduled), 0) if leaf.group.is_gang else 0


def ready_children(composite: Composite) -> int:
    """Returns the number of child groups with enough pods; a child without a gang policy needs one pod."""
    return sum(_shortage(child) is None and _has_pods(child) for child in composite.children)


def _shortage(tree: Tree) -> str | None:
    """Returns a message if the group has too few pods, or too few child groups with enough pods; else None."""
    needed = tree.group.min_count
    if isinstance(tree, Leaf):
        if not lacks_pods(tree):
            return None
        pods = len(tree.waiting) + len(tree.scheduled)
        exist = f"{pods} of {counted(needed, 'pod')} exist"
        return f"{exist}: a gang is not tried before it has enough pods, and no event reports this"
    if (ready := ready_children(tree)) >= needed:
        return None
    short = next((text for child in tree.children if (text := _shortage(child))), "")
    return f"{ready} of {counted(needed, 'child group')} have enough pods{f'; {short}' if short else ''}"


def _has_pods(tree: Tree) -> bool:
    return any(leaf.waiting or leaf.scheduled for leaf in leaves(tree))
