"""Suggests the smallest changes after which all waiting members of a group fit.

Each change is tried on a copy of the group, or of its tree of groups, before it is suggested. `group_obstacles` handles
groups that no scheduler tries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from extender.groups import Composite, GroupDecision, Leaf, Tree
from extender.groups.group_tree import groups_of, scheduled_members, waiting_members, with_leaves
from extender.groups.topology_placements import domains
from extender.model.pod import Pod, PodSpec
from extender.model.pod_groups import (
    CompositeGangPolicy,
    CompositePodGroup,
    CompositeSchedulingPolicy,
    GangPolicy,
    PodGroup,
    SchedulingPolicy,
)
from extender.model.quantity import amounts
from extender.offline.controllers.fresh_nodes import copies_of, shapes
from extender.offline.explain.node_labels import labelled_node
from extender.offline.explain.pod_terms import uncordoned_node
from extender.offline.explain.removed_pods import HIGHEST_PRIORITY, removed_pods
from extender.offline.explain.search import pod_changes
from extender.offline.explain.smaller_requests import Requests, lowered, own_requests
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.groups import MemberOutcome, admits_all, member_outcomes
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
    before, count = tree.group.min_count, child_groups_that_fit(state, tree)
    if not 0 < count < before:
        return None
    group = with_group_minimum(tree.group, count)
    decision = state.engine.decide_group(replace(tree, group=group))
    if not decision.is_success:
        return None
    text = f"lower minGroupCount from {before} to {count}; {counted(before - count, 'child group')} would keep waiting"
    return SuggestedChange("min-count", text, before - count, _nodes(decision), set_objects=(group,))


def child_groups_that_fit(state: ClusterState, tree: Composite) -> int:
    """Returns how many child groups would be scheduled if the group had no minimum of child groups."""
    return sum(decision.is_success for decision in decide_children(state, tree).children.values())


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
    if found is not None and not _placed_members(state, tree).isdisjoint(found.removed):
        return None
    if found is not None and found.pod is not None:
        changed = found.pod.with_spec(node_selector=_own_selector(found.pod, pod, wanted))
        if changed.spec == pod.spec:  # nothing changed except labels that `_asking` had added
            return None
        found = replace(found, pod=changed)
    return None if found is None else (found, pod)


def _placed_members(state: ClusterState, tree: Tree) -> set[str]:
    """Returns the keys of the members that have a node."""
    scheduled = set(scheduled_members(tree))
    return {key for key, info in state.infos.items() if info.uid in scheduled}


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
    changes = (change for change in pod_changes(state, pod) if Requests.kind not in change.kind.split("+"))
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
    return SuggestedChange(Requests.kind, text, 1 - target / amount, _nodes(found[0]), members=members)


# ----


def _best(state: ClusterState, tree: Tree) -> list[MemberOutcome]:
    """Places as many waiting members as fit, and returns the outcome of each."""
    return list(member_outcomes(state.engine.decide_group(tree, enforces_gangs=False)))


def _nodes(decision: GroupDecision) -> list[str]:
    return sorted(set(decision.placed.values()))
