"""Tracks the members of each pod group, whether they have a node, and the trees that groups form.

    a member's PodState in the cache     its MemberState
    --------------------------------     ----------------------
    INITIAL                              UNSCHEDULED
    ASSUMED, FINISHED                    ASSUMED
    ADDED                                ASSIGNED
    (the pod is gone or has ended)       not in the group

The cache calls `update` for each change of a pod and `set_object` for each change of a group, while it holds its lock,
so groups and placements always agree. Source: upstream backend/cache/podgroupstate.go, compositepodgroupstate.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum

from extender.cache.pod_states import PodState
from extender.groups import Composite, Leaf, Tree
from extender.groups.group_tree import too_deep
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup, coscheduling_key
from extender.table import PodInfo

Viable = Callable[[Collection[str]], Collection[str]]
"""Takes UIDs of pods, and returns the UIDs of those that may be bound together; see `groups.group_tree.viable`."""


class MemberState(Enum):
    UNSCHEDULED = "unscheduled"
    ASSUMED = "assumed"
    ASSIGNED = "assigned"


MEMBER_STATES: Mapping[PodState, MemberState] = {
    PodState.INITIAL: MemberState.UNSCHEDULED,
    PodState.ASSUMED: MemberState.ASSUMED,
    PodState.FINISHED: MemberState.ASSUMED,
    PodState.ADDED: MemberState.ASSIGNED,
}


@dataclass(frozen=True, slots=True)
class GroupState:
    """The members of one group by UID, grouped by whether they have a node. Terminating members are included."""

    unscheduled: Mapping[str, PodInfo] = field(default_factory=dict)
    assumed: Mapping[str, PodInfo] = field(default_factory=dict)
    assigned: Mapping[str, PodInfo] = field(default_factory=dict)

    @property
    def scheduled(self) -> Mapping[str, PodInfo]:
        """The members that have a node, assumed or bound."""
        return {**self.assumed, **self.assigned}

    def ready(self) -> list[PodInfo]:
        """Returns the members without a node that a scheduler may try now, in the order in which they are tried."""
        return ready(self.unscheduled.values())


def ready(infos: Iterable[PodInfo]) -> list[PodInfo]:
    """Returns the members of a group that a scheduler may try now, in the order in which they are tried."""
    return sorted((info for info in infos if not (info.pod.terminating or info.pod.spec.scheduling_gates)), key=_turn)


class GroupStates:
    """All groups, and the members of each PodGroup by its `namespace/name`. Thread-safe.

    Args:
        locked: returns a context that holds the cache's lock; the argument names the caller in metrics.
        composites: True if the feature gate of CompositePodGroups is on, so that groups may have parents.
        tries_deep_trees: True if a tree with too many levels is tried, and fails; False if it waits.
    """

    def __init__(
        self,
        locked: Callable[[str], AbstractContextManager[None]],
        *,
        composites: bool = False,
        tries_deep_trees: bool = False,
    ) -> None:
        self._locked = locked
        self._by_label = False
        self._composites = composites
        self._tries_deep_trees = tries_deep_trees
        self._groups: dict[str, dict[str, tuple[MemberState, PodInfo]]] = {}
        self._group_of: dict[str, str] = {}
        self._objects: dict[GroupName, PodGroup | CompositePodGroup] = {}
        self._children: dict[GroupName, set[GroupName]] = {}
        # The child groups that have their pods, by parent. To count them for each pod takes seconds in a wide tree.
        self._complete: dict[GroupName, set[GroupName]] = {}
        # The last answers of `_groups_below`, until a group changes: all members of a tree ask for the same one.
        self._trees: dict[GroupName, Sequence[PodGroup | CompositePodGroup] | str] = {}

    def use_coscheduling_label(self) -> None:
        """Takes a pod's group from the label of the coscheduling plugin. Must be called before pods are stored."""
        self._by_label = True

    def key_of(self, pod: Pod) -> str | None:
        """Returns the `namespace/name` of the PodGroup that the pod belongs to; None if it belongs to no group."""
        return coscheduling_key(pod) if self._by_label else pod.group_key

    def use(self, *, tries_deep_trees: bool) -> None:
        """Makes later answers follow another version of Kubernetes."""
        with self._locked("group_version"):
            self._tries_deep_trees = tries_deep_trees
            self._trees.clear()

    # ---- changes; the cache reports them while it holds the lock

    def update(self, uid: str, info: PodInfo | None, state: PodState) -> None:
        """Records a pod's current version (None if the pod is gone) and state. The caller holds the lock."""
        key = self.key_of(info.pod) if info is not None else None
        before = self._group_of.get(uid)
        if before is not None and before != key:
            self._remove(uid, before)
        if info is not None and key is not None:
            self._group_of[uid] = key
            self._groups.setdefault(key, {})[uid] = MEMBER_STATES[state], info
            if before != key:
                self._count(GroupName(PodGroup.__name__, key))

    def set_object(self, kind: str, key: str, obj: Object | None) -> None:
        """Records a group (None if it was deleted), and ignores other kinds. The caller holds the lock."""
        name = GroupName(kind, key)
        before = self._objects.pop(name, None)
        if before is None and not isinstance(obj, (PodGroup, CompositePodGroup)):
            return
        self._trees.clear()
        if before is not None and (parent := self._parent_of(before)) is not None:
            _discard(self._children, parent, name)
            if _discard(self._complete, parent, name):
                self._count(parent)
        if isinstance(obj, (PodGroup, CompositePodGroup)):
            self._objects[name] = obj
            if (parent := self._parent_of(obj)) is not None:
                self._children.setdefault(parent, set()).add(name)
            self._count(name)

    def _count(self, name: GroupName) -> None:
        """Records with its parent whether the group has its pods or child groups, and so on upwards if that changed."""
        while (group := self._objects.get(name)) is not None and (parent := self._parent_of(group)) is not None:
            is_complete = self._number(name) >= group.min_count
            if is_complete == (name in self._complete.get(parent, ())):
                return
            if is_complete:
                self._complete.setdefault(parent, set()).add(name)
            else:
                _discard(self._complete, parent, name)
            name = parent

    def _number(self, name: GroupName) -> int:
        """Returns the number of a PodGroup's pods, or of a parent's child groups that have their pods."""
        return len(self._groups.get(name.key, ()) if name.kind == PodGroup.__name__ else self._complete.get(name, ()))

    # ---- answers about groups and their members

    def find(self, key: str) -> PodGroup | None:
        """Returns the PodGroup with this `namespace/name`; None if the watch has not shown it."""
        with self._locked("group_find"):
            group = self._objects.get(GroupName(PodGroup.__name__, key))
        return group if isinstance(group, PodGroup) else None

    def count(self, key: str) -> int:
        """Returns the number of the group's members in the cache, with and without a node."""
        with self._locked("group_count"):
            return len(self._groups.get(key, ()))

    def is_waiting(self, key: str, uid: str) -> bool:
        """Returns True if the cache has the pod as a member of the group, and the pod has no node."""
        with self._locked("group_waiting"):
            member = self._groups.get(key, {}).get(uid)
            return member is not None and member[0] is MemberState.UNSCHEDULED

    def get(self, key: str) -> GroupState:
        """Returns a copy of the current state of a PodGroup's members."""
        by_state: dict[MemberState, dict[str, PodInfo]] = {state: {} for state in MemberState}
        with self._locked("group"):
            for uid, (state, info) in self._groups.get(key, {}).items():
                by_state[state][uid] = info
        return GroupState(*(by_state[state] for state in MemberState))

    def root_of(self, key: str) -> GroupName:
        """Returns the name of the root of the PodGroup's tree, even if no group of this name exists yet.

        Groups in a cycle have no root; the first of their names is returned.
        """
        with self._locked("group_root"):
            return self._root(key)

    def root_above(self, group: PodGroup | CompositePodGroup) -> GroupName:
        """Like `root_of`, but for the given version of a group, which may be deleted or outdated."""
        with self._locked("group_root"):
            return self._root_of(GroupName.of(group), group)

    def is_root(self, group: PodGroup | CompositePodGroup) -> bool:
        """Returns True if the group has no parent, or if the feature gate of parents is off."""
        return self._parent_of(group) is None

    def path(self, key: str) -> Sequence[PodGroup | CompositePodGroup]:
        """Returns the PodGroup and the groups above it, the root last.

        Empty if one of them does not exist, or if they are more than a tree may have levels.
        """
        with self._locked("group_path"):
            group = self._objects.get(GroupName(PodGroup.__name__, key))
            path: list[PodGroup | CompositePodGroup] = []
            while group is not None and len(path) < MAX_TREE_DEPTH:  # groups in a cycle are too deep as well
                path.append(group)
                if (parent := self._parent_of(group)) is None:
                    return path
                group = self._objects.get(parent)
            return ()

    def family(self, key: str, member: str | None = None) -> tuple[PodGroup | CompositePodGroup, ...]:
        """Returns all groups of the PodGroup's tree, the root first; empty if the tree has no root, or is too deep.

        If `member` is given, the result is also empty unless the cache has the pod with this UID as a member of the
        PodGroup, and all pods that the tree needs.
        """
        with self._locked("group_family"):
            name = self._root(key)
            groups = self._groups_below(name)
            if isinstance(groups, str):
                return ()
            if member is not None and (member not in self._groups.get(key, ()) or self._shortage(groups[0])):
                return ()
            return tuple(groups)

    def tree(self, root: GroupName, waiting: Mapping[str, Sequence[PodInfo]] | None = None) -> Tree | None:
        """Returns the tree below a root, with its scheduled members.

        None if `root` does not exist or has a parent, or if the tree is too deep.

        Args:
            waiting: PodGroup's key -> the members to place, in the order in which they are tried. None means all
                members without a node, in any order.
        """
        with self._locked("group_tree"):
            groups = self._groups_below(root)
            return None if isinstance(groups, str) else self._tree(groups, waiting)

    def shortage(self, key: str, *, enforces_gangs: bool = True) -> str | None:
        """Returns why the PodGroup's tree cannot be tried yet; None if it can be tried.

        A tree that is too deep or has no root cannot be tried. If `enforces_gangs` is True, all required pods must
        exist, too.
        """
        with self._locked("group_shortage"):
            groups = self._groups_below(self._root(key))
            if isinstance(groups, str):
                return groups
            return self._shortage(groups[0]) if enforces_gangs else None

    # ---- helpers, called with the lock held

    def _parent_of(self, group: PodGroup | CompositePodGroup) -> GroupName | None:
        key = group.parent_key if self._composites else None
        return None if key is None else GroupName(CompositePodGroup.__name__, key)

    def _root(self, key: str) -> GroupName:
        name = GroupName(PodGroup.__name__, key)
        return self._root_of(name, self._objects.get(name))

    def _root_of(self, name: GroupName, group: PodGroup | CompositePodGroup | None) -> GroupName:
        path = {name: None}  # a dictionary, because a tenant may create a chain of thousands of groups
        while group is not None and (parent := self._parent_of(group)) is not None:
            if parent in path:  # a cycle has no root, so its groups share the first of their names
                names = list(path)
                return min(names[names.index(parent) :])
            path[parent] = None
            name, group = parent, self._objects.get(parent)
        return name

    def _groups_below(self, root: GroupName) -> Sequence[PodGroup | CompositePodGroup] | str:
        """Returns the groups of the tree, each before its child groups; or why there is no such tree.

        Child groups are in the order in which they are tried.
        """
        if root not in self._trees:
            self._trees[root] = self._walk(root)
        return self._trees[root]

    def _walk(self, root: GroupName) -> Sequence[PodGroup | CompositePodGroup] | str:
        group = self._objects.get(root)
        if group is None:
            return f"waiting for {root.kind} {root.key} to appear"
        if self._parent_of(group) is not None:  # groups in a cycle have no root
            return f"waiting for {root.kind} {root.key}: cycle detected in composite pod group hierarchy"
        groups: list[PodGroup | CompositePodGroup] = []
        pending = [(group, 1)]
        while pending:
            group, level = pending.pop()
            if level > MAX_TREE_DEPTH and not self._tries_deep_trees:
                return f"waiting for {root.kind} {root.key}: {too_deep(GroupName.of(group))}"
            groups.append(group)
            pending.extend((child, level + 1) for child in reversed(self._children_of(group)))
        return groups

    def _tree(
        self,
        groups: Sequence[PodGroup | CompositePodGroup],
        waiting: Mapping[str, Sequence[PodInfo]] | None,
    ) -> Tree:
        """Returns the tree of these groups, as `_groups_below` lists them."""
        trees: dict[GroupName, Tree] = {}
        for group in reversed(groups):
            if isinstance(group, PodGroup):
                trees[GroupName.of(group)] = self._leaf(group, waiting)
            else:
                children = [trees[GroupName.of(child)] for child in self._children_of(group)]
                trees[GroupName.of(group)] = Composite(group, children)
        return trees[GroupName.of(groups[0])]

    def _leaf(self, group: PodGroup, waiting: Mapping[str, Sequence[PodInfo]] | None) -> Leaf:
        members = self._groups.get(group.key, {})
        scheduled = {uid: info for uid, (state, info) in members.items() if state is not MemberState.UNSCHEDULED}
        if waiting is None:
            return Leaf(group, [info for uid, (_, info) in members.items() if uid not in scheduled], scheduled)
        return Leaf(group, waiting.get(group.key, ()), scheduled)

    def _children_of(self, group: PodGroup | CompositePodGroup) -> list[PodGroup | CompositePodGroup]:
        """Returns the child groups in the order in which they are tried."""
        children = () if isinstance(group, PodGroup) else self._children.get(GroupName.of(group), ())
        return sorted((self._objects[child] for child in children), key=_age)

    def _shortage(self, root: PodGroup | CompositePodGroup) -> str | None:
        """Returns which pods the tree below the root lacks."""
        number = self._number(GroupName.of(root))
        if number >= root.min_count:  # a group with the basic policy needs only the pod that is asked about
            return None
        if isinstance(root, PodGroup):
            return f"waiting for pods of PodGroup {root.key}: {number} of {root.min_count} exist"
        return f"waiting for CompositePodGroup {root.key}: {number} of {root.min_count} child groups have their pods"

    def _remove(self, uid: str, key: str) -> None:
        del self._group_of[uid]
        members = self._groups[key]
        del members[uid]
        if not members:
            del self._groups[key]
        self._count(GroupName(PodGroup.__name__, key))


def _discard(sets: dict[GroupName, set[GroupName]], key: GroupName, name: GroupName) -> bool:
    """Removes the name from the set at the key, and an empty set; returns False if the name was not in it."""
    if name not in sets.get(key, ()):
        return False
    sets[key].remove(name)
    if not sets[key]:
        del sets[key]
    return True


def _age(group: PodGroup | CompositePodGroup) -> tuple[bool, object, str]:
    created = group.metadata.creation_timestamp
    return created is not None, created, group.name


def _turn(info: PodInfo) -> tuple[object, ...]:
    metadata = info.pod.metadata
    return -info.priority, metadata.created_seconds, metadata.name
