"""Suggests the smallest changes after which all waiting members of a group find a node; each is decided again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from msgspec import structs

from extender.groups import Composite, GroupDecision, Leaf, Tree
from extender.groups.decision import leaf_decisions
from extender.groups.tree import waiting_members
from extender.model.meta import Object
from extender.model.pod import Pod, PodSpec
from extender.model.requests import pod_requests
from extender.model.scheduling.pod_groups import GangPolicy, SchedulingPolicy
from extender.offline.explain.changes.new_nodes import like, shapes
from extender.offline.explain.changes.node_labels import labelled_node
from extender.offline.explain.changes.removed_pods import HIGHEST_PRIORITY, removed_pods
from extender.offline.explain.changes.search import pod_changes
from extender.offline.explain.changes.smaller_requests import Requests, lowered
from extender.offline.explain.changes.suggestion import SuggestedChange
from extender.offline.explain.changes.taints import uncordoned_node
from extender.offline.groups.verdict import decide
from extender.offline.state import ClusterState
from extender.runtime.text import counted, quantity
from extender.table import PodInfo

_MOST_STEPS = 32
_MOST_SHAPES = 8
_NEW_NODE_SIZE = 3

Search = Callable[[ClusterState, Pod], SuggestedChange | None]


@dataclass(slots=True)
class _Plan:
    """The changes so far.

    Attributes:
        specs: the spec of a member -> what it is changed to.
    """

    texts: list[str] = field(default_factory=list)
    size: float = 0
    objects: list[Object] = field(default_factory=list)
    removed: list[PodInfo] = field(default_factory=list)
    specs: list[tuple[PodSpec, PodSpec]] = field(default_factory=list)
    kind: str = ""

    def changed(self, tree: Tree) -> Tree:
        """Returns the tree with the changed members."""
        if isinstance(tree, Composite):
            return replace(tree, children=[self.changed(child) for child in tree.children])
        return replace(tree, waiting=[self._changed(info) for info in tree.waiting])

    def _changed(self, info: PodInfo) -> PodInfo:
        spec = info.pod.spec
        for before, after in self.specs:
            spec = after if spec == before else spec
        return info if spec is info.pod.spec else PodInfo(structs.replace(info.pod, spec=spec))


def group_changes(state: ClusterState, tree: Tree, placed: int) -> list[SuggestedChange]:
    """Returns the changes that admit all waiting members, the smallest first; for a gang also a lower minCount.

    `placed` is the number of waiting members that find a node without a change.
    """
    searches: list[Search] = [_smallest_pod_change, uncordoned_node, removed_pods, labelled_node]
    found = [_lower_minimum(state, tree, placed), _more_nodes(state, tree, len(waiting_members(tree)) - placed)]
    found.append(_smaller_requests(state, tree))
    found += [_step_by_step(state, tree, search) for search in searches]
    return sorted((change for change in found if change is not None), key=lambda change: change.size)


def _lower_minimum(state: ClusterState, tree: Tree, placed: int) -> SuggestedChange | None:
    """Suggests the largest minCount with which the gang is scheduled; some members then keep waiting."""
    if not isinstance(tree, Leaf) or not tree.group.is_gang:
        return None
    count = placed + len(tree.scheduled)
    if not placed or count >= tree.group.min_count:
        return None
    policy = SchedulingPolicy(gang=GangPolicy(min_count=count))
    group = structs.replace(tree.group, spec=structs.replace(tree.group.spec, scheduling_policy=policy))
    decision = decide(state, replace(tree, group=group))
    if not decision.is_success:
        return None
    given_up = tree.group.min_count - count
    rest = counted(given_up, "member")
    text = f"lower minCount from {tree.group.min_count} to {count}; {rest} would keep waiting"
    return SuggestedChange("min-count", text, given_up, sorted(set(decision.placed.values())), set_objects=(group,))


def _more_nodes(state: ClusterState, tree: Tree, missing: int) -> SuggestedChange | None:
    """Suggests the fewest copies of one node that admit all members."""
    best: SuggestedChange | None = None
    for template in shapes(state)[:_MOST_SHAPES]:
        least, most = 1, min(missing, _MOST_STEPS)
        if best is not None:
            most = min(most, int(best.size / _NEW_NODE_SIZE) - 1)
        if most < least or _with_copies(state, tree, template.name, most) is None:
            continue
        while least < most:
            middle = (least + most) // 2
            if _with_copies(state, tree, template.name, middle) is None:
                least = middle + 1
            else:
                most = middle
        best = _with_copies(state, tree, template.name, most)
    return best


def _with_copies(state: ClusterState, tree: Tree, template: str, count: int) -> SuggestedChange | None:
    names = [f"{template}-copy-{number}" for number in range(1, count + 1)]
    if any(state.has_node(name) for name in names):
        return None
    copies = [like(state, state.node(template), name) for name in names]
    objects = [obj for node, companions in copies for obj in (node, *companions)]
    with state.engine.suppose(objects=objects):
        decision = decide(state, tree)
    if not _admits_all(decision):
        return None
    kept = tuple(obj for obj in objects if not isinstance(obj, Pod))  # controllers create the pods
    text = f"add {counted(count, 'node')} like {template}"
    nodes = sorted(set(decision.placed.values()))
    return SuggestedChange("add-node", text, _NEW_NODE_SIZE * count, nodes, set_objects=kept)


def _step_by_step(state: ClusterState, tree: Tree, search: Search) -> SuggestedChange | None:
    """Changes something for the first member that finds no node, and goes on until all find one."""
    plan = _Plan()
    for _ in range(_MOST_STEPS):
        with state.engine.suppose(objects=plan.objects, remove=plan.removed):
            changed = plan.changed(tree)
            decision = decide(state, changed)
            if _admits_all(decision):
                return _change(plan, decision)
            step = _next_step(state, changed, search)
        if step is None:
            return None
        _extend(plan, state, *step)
    return None


def _next_step(state: ClusterState, tree: Tree, search: Search) -> tuple[Pod, SuggestedChange] | None:
    """Returns the first member that finds no node, and what `search` suggests with those before it in place."""
    best = decide(state, tree, enforces_gangs=False)
    before: list[tuple[PodInfo, str]] = []
    refused: PodInfo | None = None
    for info, node in _outcomes(best):
        if node is not None:
            # The highest priority keeps `removed_pods` from suggesting to remove a sibling.
            before.append((PodInfo(info.pod.with_spec(priority=HIGHEST_PRIORITY)), node))
        elif refused is None:
            refused = info
    if refused is None:
        return None
    with state.engine.suppose(place=before):
        suggestion = search(state, refused.pod)
    return None if suggestion is None else (refused.pod, suggestion)


def _extend(plan: _Plan, state: ClusterState, pod: Pod, step: SuggestedChange) -> None:
    plan.kind = step.kind
    if step.pod is not None:
        plan.specs.append((pod.spec, step.pod.spec))
    plan.objects += step.set_objects
    plan.removed += [state.infos[key] for key in step.removed]
    plan.texts.append(step.text)
    plan.size += step.size


def _change(plan: _Plan, decision: GroupDecision) -> SuggestedChange:
    members = " in each member that is alike" if plan.specs else ""
    removed = tuple(info.pod.key for info in plan.removed)
    nodes = sorted(set(decision.placed.values()))
    text = f"{', and '.join(dict.fromkeys(plan.texts))}{members}"
    return SuggestedChange(plan.kind, text, plan.size, nodes, set_objects=tuple(plan.objects), removed=removed)


def _admits_all(decision: GroupDecision) -> bool:
    return decision.is_success and all(node is not None for _, node in _outcomes(decision))


def _outcomes(decision: GroupDecision) -> Iterator[tuple[PodInfo, str | None]]:
    for leaf in leaf_decisions(decision):
        for info in waiting_members(leaf.tree):
            yield info, leaf.members[info.uid].node_name


def _smallest_pod_change(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests a change to the pod; requests are lowered for all members together, see `_smaller_requests`."""
    changes = (change for change in pod_changes(state, pod) if Requests.kind not in change.kind.split("+"))
    return min(changes, key=lambda change: change.size, default=None)


def _smaller_requests(state: ClusterState, tree: Tree) -> SuggestedChange | None:
    """Suggests the largest request of one resource with which members like the refused one all find a node."""
    best = decide(state, tree, enforces_gangs=False)
    pod = next((info.pod for info, node in _outcomes(best) if node is None), None)
    if pod is None:
        return None
    changes = [_with_less(state, tree, pod, name, amount) for name, amount in pod_requests(pod).items() if amount]
    return min((change for change in changes if change is not None), key=lambda change: change.size, default=None)


def _with_less(state: ClusterState, tree: Tree, pod: Pod, resource: str, amount: int) -> SuggestedChange | None:
    free = state.engine.free_for(pod, resource, state.node_names())
    shares = {int(each) // count for each in free if each > 0 for count in range(1, len(waiting_members(tree)) + 1)}
    candidates = sorted(share for share in shares if 0 < share < amount)
    least, most = 0, len(candidates)  # the candidates below `least` admit all members, those from `most` do not
    found: GroupDecision | None = None
    while least < most:
        middle = (least + most) // 2
        smaller = _Plan(specs=[(pod.spec, lowered(pod, {resource: candidates[middle]}).spec)])
        decision = decide(state, smaller.changed(tree))
        if _admits_all(decision):
            found, least = decision, middle + 1
        else:
            most = middle
    if found is None:
        return None
    target = candidates[least - 1]
    after, before = quantity(resource, target), quantity(resource, amount)
    text = f"request {after} {resource} instead of {before} in each member like {pod.name}"
    changed = lowered(pod, {resource: target})
    return SuggestedChange(Requests.kind, text, 1 - target / amount, sorted(set(found.placed.values())), pod=changed)
