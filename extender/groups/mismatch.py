"""Checks that the groups of a tree, and their pods, can be scheduled together.

Source: upstream validatePodGroup (until 1.37), validatePodGroupHierarchy (since 1.38).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from extender.groups.group_tree import Composite, Leaf, Tree, leaves, waiting_members
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup, SchedulingGroup
from extender.table import PodInfo
from extender.table.features import FeatureGates

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
        pending: list[tuple[Tree, CompositePodGroup | None, int]] = [(self.tree, None, 1)]
        while pending:  # not by recursion, because a tenant decides how deep a tree is
            below, parent, level = pending.pop()
            if isinstance(below, Composite) and level == MAX_TREE_DEPTH:
                key = GroupName.of(below.group).entity_key
                yield f'hierarchy depth exceeds maximum allowed depth {MAX_TREE_DEPTH} at "{key}"'
            if parent is not None:
                yield from self._of_child(below.group, parent)
            if isinstance(below, Composite):
                pending.extend((child, below.group, level + 1) for child in reversed(below.children))
            else:
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
