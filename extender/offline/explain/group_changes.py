"""Suggests the smallest changes after which all waiting members of a group are placed.

Each change is tried on a copy of the group, or of its tree of groups, before it is suggested. `group_changes` is for a
group that does not fit; `obstacle_changes` and `created_group_changes` are for a group that no scheduler tries now. If
such a group still does not fit, further changes are added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from msgspec import structs

from extender.groups import Composite, GroupDecision, Leaf, Tree
from extender.groups.group_tree import (
    groups_of,
    leaves,
    preemption_policy,
    scheduled_members,
    waiting_members,
    with_leaves,
)
from extender.groups.topology_placements import domains
from extender.model.meta import Object, ObjectMeta
from extender.model.pod import Pod, PodSpec
from extender.model.pod_groups import (
    BasicPolicy,
    CompositeGangPolicy,
    CompositePodGroup,
    CompositePodGroupSpec,
    CompositeSchedulingPolicy,
    GangPolicy,
    PodGroup,
    PodGroupSpec,
    SchedulingPolicy,
)
from extender.model.quantity import amounts
from extender.offline.answers import CauseCode
from extender.offline.explain.node_labels import labelled_node
from extender.offline.explain.pod_terms import REQUESTS, lowered, own_requests, uncordoned_node
from extender.offline.explain.search import HIGHEST_PRIORITY, pod_changes, removed_pods
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.fresh_nodes import copies_of, shapes
from extender.offline.groups import (
    MemberOutcome,
    Membership,
    MissingGroup,
    Obstacle,
    admits_all,
    lacks_pods,
    member_outcomes,
    obstacle,
    ready_children,
    verdict_on,
)
from extender.offline.state import ClusterState
from extender.runtime.text import counted, quantity
from extender.table import PodInfo

_MOST_STEPS = 32
_MOST_SHAPES = 8
_MOST_NEW_NODES = 256
_MOST_DOMAINS_ASKED = 16
_MOST_DOMAINS_CHANGED = 3
_NEW_NODE_SIZE = 3
_NO_TOPOLOGY_SIZE = 2

Search = Callable[[ClusterState, Pod], SuggestedChange | None]


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


def group_changes(state: ClusterState, tree: Tree) -> list[SuggestedChange]:
    """Returns the changes after which all waiting members fit, the smallest first.

    For a gang, one of these changes may be a lower minCount or minGroupCount. The gang is then scheduled, but the
    members that do not fit keep waiting.
    """
    searches: list[Search] = [_smallest_pod_change, uncordoned_node, removed_pods, labelled_node]
    found = [
        _lower_minimum(state, tree),
        _lower_group_minimum(state, tree),
        _more_nodes(state, tree),
        _smaller_requests(state, tree),
        _without_topology(state, tree),
        *(_step_by_step(state, tree, search) for search in searches),
    ]
    return sorted((change for change in found if change is not None), key=lambda change: change.size)


# ---- changes to the groups


def _lower_minimum(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests the largest minCount of each gang with which the whole tree is scheduled."""
    placed = {outcome.info.uid for outcome in _best(state, tree) if outcome.node_name is not None}
    steps: list[SuggestedChange] = []

    def lower(leaf: Leaf) -> Leaf:
        before = leaf.group.min_count
        count = len(leaf.scheduled) + sum(info.uid in placed for info in leaf.waiting)
        if not leaf.group.is_gang or not 0 < count < before:
            return leaf
        group, given_up = with_minimum(leaf.group, count), before - count
        name = "minCount" if isinstance(tree, Leaf) else f"minCount of {group.name}"
        text = f"lower {name} from {before} to {count}; {counted(given_up, 'member')} would keep waiting"
        steps.append(SuggestedChange("min-count", text, given_up, (), set_objects=(group,)))
        return replace(leaf, group=group)

    decision = state.engine.decide_group(with_leaves(tree, lower))
    if not steps or not decision.is_success or not decision.placed:
        return None
    return replace(joined(steps), nodes=_nodes(decision))


def _lower_group_minimum(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests the largest minGroupCount with which a group of groups is scheduled."""
    if not isinstance(tree, Composite) or not tree.group.is_gang:
        return None
    fitting = [decision for decision in decide_children(state, tree).children.values() if decision.is_success]
    before, count = tree.group.min_count, len(fitting)
    if not 0 < count < before:
        return None
    group = with_group_minimum(tree.group, count)
    decision = state.engine.decide_group(replace(tree, group=group))
    if not decision.is_success:
        return None
    text = f"lower minGroupCount from {before} to {count}; {counted(before - count, 'child group')} would keep waiting"
    return SuggestedChange("min-count", text, before - count, _nodes(decision), set_objects=(group,))


def decide_children(state: ClusterState, tree: Composite) -> GroupDecision:
    """Returns the decision about the group as if it had no minimum of child groups, so that each child is tried."""
    spec = structs.replace(tree.group.spec, scheduling_policy=CompositeSchedulingPolicy())
    return state.engine.decide_group(replace(tree, group=structs.replace(tree.group, spec=spec)))


def _without_topology(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests recreating the groups without their topology constraints."""
    groups = tuple(group for group in groups_of(tree) if group.topology_key is not None)
    if not groups:
        return None
    free = without_topology(tree)
    decision = state.engine.decide_group(free)
    if not admits_all(decision):
        return None
    keys = {group.key for group in groups}
    names = " and ".join(f"{type(group).__name__} {group.name}" for group in groups)
    return SuggestedChange(
        "topology",
        f"recreate {names} without the topology constraint",
        _NO_TOPOLOGY_SIZE * len(groups),
        _nodes(decision),
        set_objects=tuple(group for group in groups_of(free) if group.key in keys),
    )


# ---- changes to the cluster


def _more_nodes(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests the fewest copies of one node with which all members fit."""
    best: SuggestedChange | None = None
    for template in shapes(state, _MOST_SHAPES):
        most = min(len(waiting_members(tree)), _MOST_NEW_NODES)
        if best is not None:
            most = min(most, int(best.size / _NEW_NODE_SIZE) - 1)
        best = _with_fewest_copies(state, tree, template.name, most) or best
    return best


def _with_fewest_copies(state: ClusterState, tree: Tree, template: str, most: int) -> SuggestedChange | None:
    """Suggests the fewest copies of the node with which all members fit; None if `most` copies are too few."""
    if most < 1 or _with_copies(state, tree, template, most) is None:
        return None
    fewer = range(1, most)
    count = 1 + bisect_left(fewer, True, key=lambda number: _with_copies(state, tree, template, number) is not None)
    return _with_copies(state, tree, template, count)


def _with_copies(state: ClusterState, tree: Tree, template: str, count: int) -> SuggestedChange | None:
    names = [f"{template}-copy-{number}" for number in range(1, count + 1)]
    if any(state.has_node(name) for name in names):
        return None
    copies = copies_of(state, state.node(template), names).nodes
    objects = [obj for fresh in copies for obj in fresh.all()]
    with state.engine.suppose(objects=objects):
        decision = state.engine.decide_group(tree)
    if not admits_all(decision):
        return None
    # Pods are left out, because controllers create them.
    kept = tuple(obj for obj in objects if not isinstance(obj, Pod))
    text = f"add {counted(count, 'node')} like {template}"
    return SuggestedChange("add-node", text, _NEW_NODE_SIZE * count, _nodes(decision), set_objects=kept)


# ---- changes that are found for one member after another


@dataclass(slots=True)
class _Plan:
    """The changes that a search has chosen so far.

    Attributes:
        specs: the original spec of a member -> its changed spec.
    """

    steps: list[SuggestedChange] = field(default_factory=list)
    specs: list[tuple[PodSpec, PodSpec]] = field(default_factory=list)

    def changed(self, pod: Pod) -> Pod:
        spec = pod.spec
        for before, after in self.specs:
            spec = after if spec == before else spec
        return pod if spec is pod.spec else structs.replace(pod, spec=spec)

    def add(self, step: SuggestedChange, pod: Pod) -> None:
        if step.pod is not None:
            self.specs.append((pod.spec, step.pod.spec))
            step = replace(step, text=f"{step.text} in {pod.name} and every member with the same spec")
        self.steps.append(step)


def _step_by_step(state: ClusterState, tree: Tree, search: Search) -> SuggestedChange | None:
    """Searches a change for the first member that does not fit, then for the next, until all members fit.

    If the group has a topology constraint, a few domains are searched one by one. Returns the smallest change found.
    """
    changes = [_steps_within(state, tree, search, within) for within in _promising_domains(state, tree)]
    return min((change for change in changes if change is not None), key=lambda change: change.size, default=None)


def _promising_domains(state: ClusterState, tree: Tree) -> list[Mapping[str, str]]:
    """Returns the topology domains that take the most members, as labels; [{}] if there is no constraint."""
    key = tree.group.topology_key
    if key is None:
        return [{}]
    placements = domains(tree, state.table, None)
    if isinstance(placements, str):
        return []
    largest = sorted(placements, key=lambda each: -len(each.rows) if each.rows is not None else 0)[:_MOST_DOMAINS_ASKED]
    placed = {
        each.name: sum(outcome.node_name is not None for outcome in _best(state, _pinned(tree, {key: each.name})))
        for each in largest
    }
    return [{key: name} for name in sorted(placed, key=lambda name: -placed[name])[:_MOST_DOMAINS_CHANGED]]


def _pinned(tree: Tree, labels: Mapping[str, str]) -> Tree:
    """Returns the tree with these labels added to the nodeSelector of each waiting member."""
    return with_members(tree, lambda pod: _asking(pod, labels)) if labels else tree


def _asking(pod: Pod, labels: Mapping[str, str]) -> Pod:
    return pod.with_spec(node_selector={**(pod.spec.node_selector or {}), **labels}) if labels else pod


def _steps_within(state: ClusterState, tree: Tree, search: Search, labels: Mapping[str, str]) -> SuggestedChange | None:
    """Returns a change of one or more steps after which all members fit on nodes with these labels.

    None if the search finds no such change.
    """
    plan = _Plan()
    for _ in range(_MOST_STEPS):
        changed = with_members(tree, plan.changed)
        objects = [obj for step in plan.steps for obj in step.set_objects]
        removed = [state.infos[key] for step in plan.steps for key in step.removed]
        with state.engine.suppose(objects=objects, remove=removed):
            decision = state.engine.decide_group(_pinned(changed, labels))
            if admits_all(decision):
                break
            step = _next_step(state, changed, search, labels)
        if step is None:
            return None
        plan.add(*step)
    else:
        return None
    if not plan.steps:
        return None
    return replace(joined(plan.steps), nodes=_nodes(decision), members=changed_members(tree, changed))


def _next_step(
    state: ClusterState, tree: Tree, search: Search, labels: Mapping[str, str]
) -> tuple[SuggestedChange, Pod] | None:
    """Returns (change, member): a change that `search` suggests for the first member that does not fit.

    The search runs with the other members on their nodes. They get the highest priority, so that `removed_pods` does
    not suggest removing them.
    """
    outcomes = _best(state, _pinned(tree, labels))
    refused = next((outcome for outcome in outcomes if outcome.node_name is None), None)
    if refused is None:
        return None
    before = [
        (PodInfo(outcome.info.pod.with_spec(priority=HIGHEST_PRIORITY)), outcome.node_name)
        for outcome in outcomes
        if outcome.node_name is not None
    ]
    reserved = [obj for outcome in outcomes for obj in outcome.reserved]
    pod = next(info.pod for info in waiting_members(tree) if info.uid == refused.info.uid)
    wanted = {**labels, **refused.domains}
    with state.engine.suppose(objects=reserved, place=before):
        found = search(state, _asking(pod, wanted))
    # The search may also suggest removing a member that exists only in this supposition.
    scheduled = set(scheduled_members(tree))
    infos = state.infos
    if found is None or any(key not in infos or infos[key].uid in scheduled for key in found.removed):
        return None
    if found.pod is not None:
        changed = found.pod.with_spec(node_selector=_own_selector(found.pod, pod, wanted))
        if changed.spec == pod.spec:  # nothing changed except labels that `_asking` had added
            return None
        found = replace(found, pod=changed)
    return found, pod


def _own_selector(changed: Pod, pod: Pod, labels: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the nodeSelector of `changed` without the `labels` that the search added.

    A label stays if the original `pod` asks for it too.
    """
    own = pod.spec.node_selector or {}
    selector = changed.spec.node_selector or {}
    return {key: value for key, value in selector.items() if key not in labels or key in own} or None


def _smallest_pod_change(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests the smallest change to the pod that does not lower its requests.

    `_smaller_requests` lowers the requests of all members together.
    """
    changes = (change for change in pod_changes(state, pod) if REQUESTS.kind not in change.kind.split("+"))
    return min(changes, key=lambda change: change.size, default=None)


def _smaller_requests(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests the smallest reduction of one request after which all members fit.

    All members that have the same spec as the first refused member get the lower request.
    """
    pod = next((outcome.info.pod for outcome in _best(state, tree) if outcome.node_name is None), None)
    if pod is None:
        return None
    changes = [_with_less(state, tree, pod, name, amount) for name, amount in own_requests(pod).items()]
    return min((change for change in changes if change is not None), key=lambda change: change.size, default=None)


def _with_less(state: ClusterState, tree: Tree, pod: Pod, resource: str, amount: int) -> SuggestedChange | None:
    free = state.engine.free_for(pod, resource, state.node_names())
    most_beside, overhead = len(waiting_members(tree)), amounts(pod.spec.overhead).get(resource, 0)
    shares = {int(each) // count - overhead for each in free if each > 0 for count in range(1, most_beside + 1)}
    candidates = sorted(share for share in shares if 0 < share < amount)
    # All members fit with the requests in candidates[:least], and not with those in candidates[most:].
    least, most = 0, len(candidates)
    found: tuple[GroupDecision, Tree] | None = None
    while least < most:
        middle = (least + most) // 2
        plan = _Plan(specs=[(pod.spec, lowered(pod, {resource: candidates[middle]}).spec)])
        changed = with_members(tree, plan.changed)
        decision = state.engine.decide_group(changed)
        if admits_all(decision):
            found, least = (decision, changed), middle + 1
        else:
            most = middle
    if found is None:
        return None
    target = candidates[least - 1]
    after, before = quantity(resource, target), quantity(resource, amount)
    text = f"request {after} {resource} instead of {before} in {pod.name} and every member with the same spec"
    members = changed_members(tree, found[1])
    return SuggestedChange(REQUESTS.kind, text, 1 - target / amount, _nodes(found[0]), members=members)


# ----


def _best(state: ClusterState, tree: Tree) -> list[MemberOutcome]:
    """Places as many waiting members as fit, and returns the outcome of each."""
    return list(member_outcomes(state.engine.decide_group(tree, enforces_gangs=False)))


def _nodes(decision: GroupDecision) -> list[str]:
    return sorted(set(decision.placed.values()))


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
        change for fix in _fixes(reason.code, tree, state) for change in _completed(state, fix, most_obstacles - 1)
    ]
    return sorted(changes, key=lambda change: change.size)


def _completed(state: ClusterState, fix: _Fix, most_obstacles: int) -> list[SuggestedChange]:
    """Returns the fix alone if the group then fits, else the fix joined with each further change that it needs."""
    with state.engine.suppose(objects=[obj for obj in fix.change.set_objects if not isinstance(obj, Pod)]):
        verdict = verdict_on(state, fix.tree)
        if verdict.fits and verdict.decision is not None:
            return [replace(fix.change, nodes=_nodes(verdict.decision))]
        further: list[SuggestedChange] = []
        if verdict.obstacle is None:
            further = group_changes(state, fix.tree)
        elif most_obstacles:
            further = obstacle_changes(state, fix.tree, verdict.obstacle, most_obstacles)
    return [joined([fix.change, change]) for change in further]


# ---- one function for each obstacle


def _fixes(code: CauseCode, tree: Tree, state: ClusterState) -> Iterator[_Fix]:
    """Yields changes that remove an obstacle; none for a tree with too many levels, which must be built differently."""
    match code:
        case CauseCode.GATED:
            yield _without_gates(tree)
        case CauseCode.SHORT_OF_PODS:
            yield from _with_enough_pods(tree, state)
        case CauseCode.DIFFERENT_MEMBERS:
            yield _with_equal_members(tree, state)


def _without_gates(tree: Tree) -> _Fix:
    gated = [info.pod for info in waiting_members(tree) if info.pod.spec.scheduling_gates]
    gates = sorted({gate.name for pod in gated for gate in pod.spec.scheduling_gates or ()})
    opened = with_members(tree, lambda pod: pod.with_spec(scheduling_gates=None) if pod.spec.scheduling_gates else pod)
    text = f"remove the scheduling gate {', '.join(gates)} from {counted(len(gated), 'member')}"
    return _Fix(SuggestedChange("scheduling-gates", text, 1, (), members=changed_members(tree, opened)), opened)


def _with_enough_pods(tree: Tree, state: ClusterState) -> Iterator[_Fix]:
    if isinstance(tree, Composite) and 0 < (ready := ready_children(tree)) < tree.group.min_count:
        lower_groups = with_group_minimum(tree.group, ready)
        text = f"lower minGroupCount from {tree.group.min_count} to {ready}"
        change = SuggestedChange("min-count", text, tree.group.min_count - ready, (), set_objects=(lower_groups,))
        yield _Fix(change, replace(tree, group=lower_groups))
    are_few = sum(map(lacks_pods, leaves(tree))) <= _MOST_NEW_PODS  # because each new pod is built and placed
    for repair in (_minimum_as_created, _more_pods) if are_few else (_minimum_as_created,):
        steps: list[SuggestedChange] = []
        repaired = with_leaves(tree, partial(_repaired, repair, steps))
        if steps and obstacle(repaired, state) != obstacle(tree, state):
            yield _Fix(joined(steps), repaired)


def _repaired(repair: Callable[[Leaf], tuple[Leaf, SuggestedChange]], steps: list[SuggestedChange], leaf: Leaf) -> Leaf:
    """Applies `repair` to a gang with too few pods, and adds the change to `steps`.

    Returns all other groups unchanged, and also gangs without any pods.
    """
    if not lacks_pods(leaf) or not (leaf.waiting or leaf.scheduled):
        return leaf
    changed, step = repair(leaf)
    steps.append(step)
    return changed


def _minimum_as_created(leaf: Leaf) -> tuple[Leaf, SuggestedChange]:
    lacking = lacks_pods(leaf)
    group = with_minimum(leaf.group, leaf.group.min_count - lacking)
    text = f"lower minCount of {group.name} from {leaf.group.min_count} to {group.min_count}"
    return replace(leaf, group=group), SuggestedChange("min-count", text, lacking, (), set_objects=(group,))


def _more_pods(leaf: Leaf) -> tuple[Leaf, SuggestedChange]:
    if not leaf.waiting:
        return _minimum_as_created(leaf)
    like = leaf.waiting[-1].pod
    names = [f"{like.name}-more-{number}" for number in range(1, lacks_pods(leaf) + 1)]
    more = [
        structs.replace(like, metadata=structs.replace(like.metadata, name=name, uid=f"{like.uid}/{name}"))
        for name in names
    ]
    text = f"create {counted(len(more), 'more pod')} like {like.name}"
    change = SuggestedChange("create-pods", text, len(more), (), set_objects=tuple[Object, ...](more))
    return replace(leaf, waiting=[*leaf.waiting, *map(PodInfo, more)]), change


def _with_equal_members(tree: Tree, state: ClusterState) -> _Fix:
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
    fields = {
        "scheduler_name": wanted["schedulerName"],
        "priority": wanted["priority"],
        "priority_class_name": tree.group.spec.priority_class_name,
        "preemption_policy": wanted["preemptionPolicy"],
    }
    differing: set[str] = set()

    def equal(pod: Pod) -> Pod:
        own = (pod.spec.scheduler_name, pod.priority, _preemption_policy(pod))
        different = {name for (name, value), mine in zip(wanted.items(), own, strict=True) if value != mine}
        differing.update(different)
        return pod.with_spec(**fields) if different else pod

    changed = with_members(tree, equal)
    members = changed_members(tree, changed)
    values = " and ".join(f"{name} {value}" for name, value in wanted.items() if name in differing)
    text = f"recreate {counted(len(members), 'member')} with {values}"
    return _Fix(SuggestedChange("member-fields", text, len(members), (), members=members), changed)


def _preemption_policy(pod: Pod) -> str:
    return preemption_policy(pod.spec.preemption_policy)


def _most_frequent(values: Iterable[_T]) -> _T:
    return Counter(values).most_common(1)[0][0]
