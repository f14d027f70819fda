"""Suggests the smallest changes after which a group that no scheduler tries now is placed.

Each change is tried on a copy of the group first. If the group still does not fit, further changes are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import structs

from extender.groups import Composite, Leaf, Tree
from extender.groups.group_tree import leaves, waiting_members, with_leaves
from extender.groups.mismatch import preemption_policy
from extender.model.meta import Object, ObjectMeta
from extender.model.pod import Pod
from extender.model.pod_groups import (
    BasicPolicy,
    CompositePodGroup,
    CompositePodGroupSpec,
    CompositeSchedulingPolicy,
    PodGroup,
    PodGroupSpec,
    SchedulingPolicy,
)
from extender.offline.answers import CauseCode
from extender.offline.explain.group_admission import (
    changed_members,
    group_changes,
    joined,
    with_group_minimum,
    with_members,
    with_minimum,
)
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.groups import Membership, MissingGroup, Obstacle, lacks_pods, obstacle, ready_children, verdict_on
from extender.offline.state import ClusterState
from extender.runtime.text import counted
from extender.table import PodInfo

_MOST_OBSTACLES = 4
_MOST_NEW_PODS = 1000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Fix:
    """A change that removes one obstacle, and the group as it is after the change."""

    change: SuggestedChange
    tree: Tree


def created_group_changes(state: ClusterState, membership: Membership, missing: MissingGroup) -> list[SuggestedChange]:
    """Returns the changes that create a missing group and admit its members.

    A group is missing if pods name it, but it does not exist.
    """
    priority = max((info.priority for info in membership.waiting_for(missing)), default=0)
    group = _new_group(missing, priority)
    text = f"create {missing.kind} {missing.key} with the policy basic"
    change = SuggestedChange("create-group", text, 1, (), set_objects=(group,))
    return _completed(state, _Fix(change, membership.tree(group)), _MOST_OBSTACLES)


def _new_group(missing: MissingGroup, priority: int) -> PodGroup | CompositePodGroup:
    namespace, _, name = missing.key.partition("/")
    metadata = ObjectMeta(name=name, namespace=namespace)
    if missing.kind == PodGroup.__name__:
        policy = SchedulingPolicy(basic=BasicPolicy())
        return PodGroup(metadata=metadata, spec=PodGroupSpec(priority=priority, scheduling_policy=policy))
    composite = CompositeSchedulingPolicy(basic=BasicPolicy())
    return CompositePodGroup(
        metadata=metadata, spec=CompositePodGroupSpec(priority=priority, scheduling_policy=composite)
    )


def obstacle_changes(
    state: ClusterState, tree: Tree, reason: Obstacle, most_obstacles: int = _MOST_OBSTACLES
) -> list[SuggestedChange]:
    """Returns the changes that admit all waiting members of a group that no scheduler tries, the smallest first."""
    changes = [
        change for fix in _FIXES[reason.code](tree, state) for change in _completed(state, fix, most_obstacles - 1)
    ]
    return sorted(changes, key=lambda change: change.size)


def _completed(state: ClusterState, fix: _Fix, most_obstacles: int) -> list[SuggestedChange]:
    """Returns the fix alone if the group then fits, else the fix joined with each further change that it needs."""
    with state.engine.suppose(objects=[obj for obj in fix.change.set_objects if not isinstance(obj, Pod)]):
        verdict = verdict_on(state, fix.tree)
        if verdict.fits and verdict.decision is not None:
            return [replace(fix.change, nodes=sorted(set(verdict.decision.placed.values())))]
        further: list[SuggestedChange] = []
        if verdict.obstacle is None:
            further = group_changes(state, fix.tree)
        elif most_obstacles:
            further = obstacle_changes(state, fix.tree, verdict.obstacle, most_obstacles)
    return [joined([fix.change, change]) for change in further]


# ---- one function for each obstacle


def _without_gates(tree: Tree, _state: ClusterState) -> Iterator[_Fix]:
    gated = [info.pod for info in waiting_members(tree) if info.pod.spec.scheduling_gates]
    gates = sorted({gate.name for pod in gated for gate in pod.spec.scheduling_gates or ()})
    opened = with_members(tree, lambda pod: pod.with_spec(scheduling_gates=None) if pod.spec.scheduling_gates else pod)
    text = f"remove the scheduling gate {', '.join(gates)} from {counted(len(gated), 'member')}"
    yield _Fix(
        SuggestedChange("scheduling-gates", text, 1, (), members=changed_members(tree, opened)),
        opened,
    )


def _with_enough_pods(tree: Tree, state: ClusterState) -> Iterator[_Fix]:
    if isinstance(tree, Composite) and 0 < (ready := ready_children(tree)) < tree.group.min_count:
        lower_groups = with_group_minimum(tree.group, ready)
        text = f"lower minGroupCount from {tree.group.min_count} to {ready}"
        change = SuggestedChange("min-count", text, tree.group.min_count - ready, (), set_objects=(lower_groups,))
        yield _Fix(change, replace(tree, group=lower_groups))
    are_few = sum(map(lacks_pods, leaves(tree))) <= _MOST_NEW_PODS  # because each new pod is built and placed
    for repair in (_lower_minimum, _more_pods) if are_few else (_lower_minimum,):
        steps: list[SuggestedChange] = []
        repaired = with_leaves(tree, _repairing(repair, steps))
        if steps and obstacle(repaired, state) != obstacle(tree, state):
            yield _Fix(joined(steps), repaired)


def _repairing(
    repair: Callable[[Leaf], tuple[Leaf, SuggestedChange]], steps: list[SuggestedChange]
) -> Callable[[Leaf], Leaf]:
    """Returns a function that applies `repair` to a gang with too few pods, and adds the change to `steps`.

    The function returns all other groups unchanged, and also gangs without any pods.
    """

    def repaired(leaf: Leaf) -> Leaf:
        if not lacks_pods(leaf) or not (leaf.waiting or leaf.scheduled):
            return leaf
        changed, step = repair(leaf)
        steps.append(step)
        return changed

    return repaired


def _lower_minimum(leaf: Leaf) -> tuple[Leaf, SuggestedChange]:
    lacking = lacks_pods(leaf)
    group = with_minimum(leaf.group, leaf.group.min_count - lacking)
    text = f"lower minCount of {group.name} from {leaf.group.min_count} to {group.min_count}"
    return replace(leaf, group=group), SuggestedChange("min-count", text, lacking, (), set_objects=(group,))


def _more_pods(leaf: Leaf) -> tuple[Leaf, SuggestedChange]:
    if not leaf.waiting:
        return _lower_minimum(leaf)
    like = leaf.waiting[-1].pod
    names = [f"{like.name}-more-{number}" for number in range(1, lacks_pods(leaf) + 1)]
    more = [
        structs.replace(like, metadata=structs.replace(like.metadata, name=name, uid=f"{like.uid}/{name}"))
        for name in names
    ]
    text = f"create {counted(len(more), 'more pod')} like {like.name}"
    change = SuggestedChange("create-pods", text, len(more), (), set_objects=tuple[Object, ...](more))
    return replace(leaf, waiting=[*leaf.waiting, *map(PodInfo, more)]), change


def _with_equal_members(tree: Tree, state: ClusterState) -> Iterator[_Fix]:
    """Suggests recreating the members that differ from the rest of the group.

    All members get the group's priority, and the scheduler and preemption policy that most of them have. With the gate
    PodGroupPreemptionPolicy, they get the group's own preemption policy.
    """
    pods = [info.pod for info in waiting_members(tree)]
    wanted: dict[str, str | int] = {
        "schedulerName": _most_frequent(pod.spec.scheduler_name for pod in pods),
        "priority": tree.group.priority,
        "preemptionPolicy": preemption_policy(tree.group.spec.preemption_policy)
        if state.profiles.features.pod_group_preemption_policy
        else _most_frequent(map(_preemption_policy, pods)),
    }
    differing: set[str] = set()

    def equal(pod: Pod) -> Pod:
        own = (pod.spec.scheduler_name, pod.priority, _preemption_policy(pod))
        different = {name for (name, value), mine in zip(wanted.items(), own, strict=True) if value != mine}
        differing.update(different)
        return _with_fields(pod, tree.group, wanted) if different else pod

    changed = with_members(tree, equal)
    members = changed_members(tree, changed)
    fields = " and ".join(f"{name} {value}" for name, value in wanted.items() if name in differing)
    text = f"recreate {counted(len(members), 'member')} with {fields}"
    yield _Fix(SuggestedChange("member-fields", text, len(members), (), members=members), changed)


def _preemption_policy(pod: Pod) -> str:
    return preemption_policy(pod.spec.preemption_policy)


def _with_fields(pod: Pod, group: PodGroup | CompositePodGroup, fields: Mapping[str, str | int]) -> Pod:
    return pod.with_spec(
        scheduler_name=fields["schedulerName"],
        priority=fields["priority"],
        priority_class_name=group.spec.priority_class_name,
        preemption_policy=fields["preemptionPolicy"],
    )


def _most_frequent(values: Iterable[_T]) -> _T:
    return Counter(values).most_common(1)[0][0]


def _none(_tree: Tree, _state: ClusterState) -> Iterator[_Fix]:
    """Yields nothing: a tree with too many levels must be built differently."""
    return iter(())


_FIXES: Mapping[CauseCode, Callable[[Tree, ClusterState], Iterator[_Fix]]] = {
    CauseCode.NO_GROUP: _none,
    CauseCode.GATED: _without_gates,
    CauseCode.SHORT_OF_PODS: _with_enough_pods,
    CauseCode.DIFFERENT_MEMBERS: _with_equal_members,
}
