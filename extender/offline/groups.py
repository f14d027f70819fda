"""Finds the groups of a cluster and their members, and decides about each group as a whole.

`obstacle` says why a scheduler does not try a group. Upstream reports few of these reasons: a gang with too few pods,
or whose PodGroup is missing, gets no event and no condition. `group_placement` decides about a group in a simulated
cluster as `scheduler.group_scheduling` does in a real one.

Source: upstream GangScheduling.PreEnqueue, validatePodGroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import msgspec

from extender.engine import Engine
from extender.engine.decision import Chosen, Failure
from extender.engine.group_members import BY_GANG, common_rejection, member_failures
from extender.errors import DeadlineExceeded
from extender.groups import Composite, GroupDecision, GroupStatus, Leaf, Tree, member_failure
from extender.groups.decision import leaf_decisions
from extender.groups.group_tree import excess, leaves, mismatch, too_deep, waiting_members
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.offline.answers import CauseCode
from extender.offline.state import ClusterState
from extender.queue.entries import GroupOutcome
from extender.runtime.ports import Nominating
from extender.runtime.text import counted
from extender.table import PodInfo
from extender.table.object_index import Objects

AnyGroup = PodGroup | CompositePodGroup
_RESULTS = {
    GroupStatus.SCHEDULED: GroupOutcome.SUCCESS,
    GroupStatus.UNSCHEDULABLE: GroupOutcome.REJECTED,
    GroupStatus.ERROR: GroupOutcome.ERROR,
}

GroupKind = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["PodGroup", "CompositePodGroup"]})]


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
    def obstacle(self) -> Obstacle:
        if self.is_too_high:
            text = f"{too_deep(GroupName(self.kind, self.key))}; its members are not tried"
        elif self.is_circular:
            text = f"{self.kind} {self.key} is its own ancestor: its members have no root group"
        else:
            text = f"{self.kind} {self.key} does not exist: its members wait for it"
        return Obstacle(CauseCode.NO_GROUP, f"{text}, and no event reports this")


Root = AnyGroup | MissingGroup
"""The root group of a pod or group, or the first group that is missing on the way to it."""


class Membership:
    """The groups of a cluster and their members, as they were when this object was created."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._tries_deep_trees = state.profiles.features.behaviours.whole_trees_are_validated
        self._members: dict[str, list[PodInfo]] = {}
        for info in state.infos.values():
            if (key := info.pod.group_key) is not None:
                self._members.setdefault(key, []).append(info)
        self._children: dict[str, list[AnyGroup]] = {}
        objects = state.objects
        groups: list[AnyGroup] = [*objects.all(PodGroup).values(), *objects.all(CompositePodGroup).values()]
        for group in groups:
            if group.parent_key is not None:
                self._children.setdefault(group.parent_key, []).append(group)

    def root_of(self, pod: Pod) -> Root:
        """Returns the root group of a member; a MissingGroup if a group above the member is missing or circular."""
        assert pod.group_key is not None
        return self._root_above(GroupName(PodGroup.__name__, pod.group_key))

    def root_named(self, kind: str, key: str) -> Root | None:
        """Returns the root of this group; None if the group does not exist and nothing refers to it."""
        root = self._root_above(GroupName(kind, key))
        is_known = key in (self._members if kind == PodGroup.__name__ else self._children)
        return None if root == MissingGroup(kind, key) and not is_known else root

    def _root_above(self, name: GroupName) -> Root:
        return root_above(self._state.objects, name, tries_deep_trees=self._tries_deep_trees)

    def tree(self, group: AnyGroup) -> Tree:
        """Returns the group, the groups below it and their members, in the order in which a scheduler tries them."""
        levels: list[list[AnyGroup]] = [[group]]
        # One level too many, so that `obstacle` sees it; all of them if the condition of a pod says why its tree fails.
        while levels[-1] and (len(levels) <= MAX_TREE_DEPTH or self._tries_deep_trees):
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

    def _children_of(self, group: AnyGroup) -> Sequence[AnyGroup]:
        return () if isinstance(group, PodGroup) else sorted(self._children.get(group.key, ()), key=_created)

    def _leaf(self, group: PodGroup) -> Leaf:
        infos = sorted(self._members.get(group.key, ()), key=lambda info: (-info.priority, *_created(info.pod)))
        waiting = [info for info in infos if not info.pod.node_name and not info.pod.terminating]
        return Leaf(group, waiting, [info.uid for info in infos if info.pod.node_name])

    def waiting_for(self, missing: MissingGroup) -> list[PodInfo]:
        """Returns the pods without a node that belong to the missing group, directly or through child groups."""
        waiting = (info for infos in self._members.values() for info in infos if not info.pod.node_name)
        return [info for info in waiting if self.root_of(info.pod) == missing]


def _created(obj: Object) -> tuple[str, str]:
    return str(obj.metadata.creation_timestamp or ""), obj.name


def root_name(objects: Objects, key: str) -> GroupName:
    """Returns the name of the PodGroup's root group, or of the first missing group on the way to the root."""
    return _name_of(root_above(objects, GroupName(PodGroup.__name__, key)))


def _name_of(root: Root) -> GroupName:
    return GroupName(root.kind, root.key) if isinstance(root, MissingGroup) else GroupName.of(root)


def root_above(objects: Objects, name: GroupName, *, tries_deep_trees: bool = False) -> Root:
    """Returns the root group above the group with this name, or this group if it has no parent.

    Returns a MissingGroup if the group or one of its ancestors does not exist, if the parents form a cycle, or if there
    are too many of them; with `tries_deep_trees`, their number does not matter.
    """
    path: list[GroupName] = []
    while name not in path:
        if len(path) == MAX_TREE_DEPTH and not tries_deep_trees:
            return MissingGroup(*name, is_too_high=True)
        group: AnyGroup | None
        is_leaf = name.kind == PodGroup.__name__
        group = objects.get(PodGroup, name.key) if is_leaf else objects.get(CompositePodGroup, name.key)
        if group is None:
            return MissingGroup(*name)
        if group.parent_key is None:
            return group
        path.append(name)
        name = GroupName(CompositePodGroup.__name__, group.parent_key)
    return MissingGroup(*min(path[path.index(name) :]), is_circular=True)


def obstacle(tree: Tree, state: ClusterState) -> Obstacle | None:
    """Returns the reason why schedulers do not try the group; None if there is no such reason."""
    if (deepest := excess(tree)) is not None:
        is_tried = state.profiles.features.behaviours.whole_trees_are_validated
        fault = _mismatch(tree, state) if is_tried else None
        return Obstacle(CauseCode.NO_GROUP, fault or f"{too_deep(deepest)}: the whole tree is not tried")
    infos = waiting_members(tree)
    for pod in (info.pod for info in infos):
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            text = f"member {pod.name} is gated by {gates}, which holds back the whole group"
            return Obstacle(CauseCode.GATED, text)
    enforces_gangs = not infos or state.profiles.of(infos[0].pod).enforces_gangs
    if enforces_gangs and (shortage := _shortage(tree)) is not None:
        return Obstacle(CauseCode.SHORT_OF_PODS, shortage)
    fault = _mismatch(tree, state)
    return None if fault is None else Obstacle(CauseCode.DIFFERENT_MEMBERS, fault)


def _mismatch(tree: Tree, state: ClusterState) -> str | None:
    pods = state.table.pods

    def placed(leaf: Leaf) -> Iterator[PodInfo]:
        return map(pods.info, sorted(pods.slot_of[uid] for uid in leaf.scheduled if uid in pods.slot_of))

    return mismatch(tree, placed, state.profiles.features)


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
    """Decides about each group of a cluster once, at the first request for it; the cluster must not change.

    A group that took too long is not tried again for its other members.
    """

    def __init__(self, state: ClusterState) -> None:
        self.membership = Membership(state)
        self._state = state
        self._verdicts: dict[GroupName, GroupVerdict | DeadlineExceeded] = {}

    def of(self, pod: Pod) -> GroupVerdict:
        """Returns the verdict on the root group of a member. Raises DeadlineExceeded."""
        return self.of_root(self.membership.root_of(pod))

    def of_root(self, root: Root) -> GroupVerdict:
        """Returns the verdict on a root group; `root` may name a group that does not exist. Raises DeadlineExceeded."""
        name = _name_of(root)
        if name not in self._verdicts:
            try:
                self._verdicts[name] = self._decided(root)
            except DeadlineExceeded as error:
                self._verdicts[name] = error
        verdict = self._verdicts[name]
        if isinstance(verdict, DeadlineExceeded):
            raise verdict
        return verdict

    def _decided(self, root: Root) -> GroupVerdict:
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


def group_placement(state: ClusterState, root: GroupName, waiting: Sequence[PodInfo], engine: Engine) -> GroupPlacement:
    """Returns the outcome for each waiting member of a root group without placing it.

    Args:
        waiting: the members in the order in which they are tried.
    """
    group = root_above(state.objects, root)
    if isinstance(group, MissingGroup):
        return _untried(waiting, group.obstacle)
    tree = Membership(state).tree(group)
    if (reason := obstacle(tree, state)) is not None:
        return _untried(waiting, reason)
    decision = engine.decide_group(_in_order(tree, waiting))
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


def _untried(waiting: Sequence[PodInfo], reason: Obstacle) -> GroupPlacement:
    failure = Failure(reason.text, BY_GANG, nominated_node=Nominating.KEEP)
    return GroupPlacement(GroupOutcome.REJECTED, failures={info.uid: failure for info in waiting})


def _in_order(tree: Tree, waiting: Sequence[PodInfo]) -> Tree:
    """Returns a copy of the tree in which only the members in `waiting` wait, in the same order."""
    if isinstance(tree, Composite):
        return replace(tree, children=[_in_order(child, waiting) for child in tree.children])
    own = {info.uid for info in tree.waiting}
    return replace(tree, waiting=[info for info in waiting if info.uid in own])


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """The outcome for one waiting member.

    Attributes:
        info: the member, with the annotations that users' Bind rules chose.
        node_name: the node that takes the member; None if the member fits on no node or is not tried.
        message: why the member gets no node.
        reserved: the member's volumes and claims, as they will be once the member is on the node.
        domains: topology key -> the domain in which the decision tried the member.
    """

    info: PodInfo
    node_name: str | None
    message: str = ""
    reserved: Sequence[Object] = ()
    domains: Mapping[str, str] = field(default_factory=dict)


def member_outcomes(decision: GroupDecision, domains: Mapping[str, str] | None = None) -> Iterator[MemberOutcome]:
    """Yields the outcome of each waiting member; `domains` has the topology domains chosen for parents of the group."""
    tree, domains = decision.tree, domains or {}
    if tree.group.topology_key is not None and decision.placement:
        domains = {**domains, tree.group.topology_key: decision.placement}
    if isinstance(tree, Composite):
        for child in tree.children:
            untried = GroupDecision(child, GroupStatus.UNSCHEDULABLE, decision.reasons)
            yield from member_outcomes(decision.children.get(child.group.key, untried), domains)
        return
    for info in tree.waiting:
        member = decision.members.get(info.uid)
        if member is None:
            yield MemberOutcome(info, None, decision.text, domains=domains)
        else:
            placed = info.annotated(member.annotations)
            yield MemberOutcome(placed, member.node_name, member.message, member.reserved, domains)


def admits_all(decision: GroupDecision) -> bool:
    """Returns True if every waiting member finds a node."""
    return decision.is_success and all(outcome.node_name is not None for outcome in member_outcomes(decision))


@contextmanager
def fitting_placed(state: ClusterState, decision: GroupDecision) -> Iterator[MemberOutcome | None]:
    """Places the members for which the decision has a node, until the `with` block ends.

    Yields the first member without a node; None if every member has a node.
    """
    outcomes = list(member_outcomes(decision))
    placed = [(outcome.info, outcome.node_name) for outcome in outcomes if outcome.node_name is not None]
    reserved = [obj for outcome in outcomes for obj in outcome.reserved]
    with state.engine.suppose(objects=reserved, place=placed):
        yield next((outcome for outcome in outcomes if outcome.node_name is None), None)


def nodes_in(state: ClusterState, domains: Mapping[str, str]) -> list[str] | None:
    """Returns the nodes that are in all of `domains`; None, which means all nodes, if `domains` is empty."""
    if not domains:
        return None
    return [node.name for node in state.nodes() if all(node.labels.get(key) == value for key, value in domains.items())]
