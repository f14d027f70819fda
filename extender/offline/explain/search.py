"""Searches for changes that let a pod run: to the pod, to the cluster, or to the pod and its claims together.

There are several kinds of change to the pod, such as more tolerations or smaller requests. If no single kind is enough,
two and then three kinds are combined. The search then finds the smallest change of the first kind, assuming that the
other kinds remove everything they can from the pod, and goes on with the next kind.

For pods to remove, preemption finds pods on one node whose removal suffices. If there is no such node, nominated pods
and pods on several nodes are removed as well. After that, smaller sets of pods are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice

from extender.model.pod import Pod
from extender.model.selectors import compile_selector
from extender.offline.explain import claim_changes
from extender.offline.explain.node_labels import NODE_SELECTION, labelled_node
from extender.offline.explain.pod_terms import (
    HOST_PORTS,
    NODE_NAME,
    POD_AFFINITY,
    REQUESTS,
    SPREAD,
    TOLERATIONS,
    uncordoned_node,
)
from extender.offline.explain.suggestion import (
    Acceptance,
    ClaimStep,
    PodChange,
    PodStep,
    SuggestedChange,
    acceptance,
    is_accepted,
)
from extender.offline.fresh_nodes import copies_of, shapes
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.preemption.candidates import Candidate
from extender.runtime.text import listed
from extender.table import PodInfo

_MOST_KINDS = 3
_MOST_OF_A_KIND = 2
_MOST_STEPS = 128
_MOST_STEPS_WITH_POD = 8
_MOST_SHAPES = 64
_SIZE_OF_NODE = 3

ClusterSearch = Callable[[ClusterState, Pod], SuggestedChange | None]
ClaimSteps = Callable[[ClusterState, Pod], Iterator[ClaimStep]]

POD_CHANGES = (REQUESTS, TOLERATIONS, NODE_SELECTION, SPREAD, POD_AFFINITY, HOST_PORTS, NODE_NAME)
CLAIM_CHANGES: Mapping[str, ClaimSteps] = {
    "volume-claim": claim_changes.volume_steps,
    "device-claim": claim_changes.device_steps,
}
HIGHEST_PRIORITY = 2**31 - 1
_MOST_NODES_TRIED = 3
_MOST_PODS_COMBINED = 32
_MOST_PUT_BACK = 64
_MOST_TRIED = 3000
_MOST_WORK = 1_000_000  # the limit for the number of tried sets of pods times the number of nodes

Pods = Sequence[PodInfo]


def suggested_changes(state: ClusterState, pod: Pod) -> list[SuggestedChange]:
    """Returns the changes that would let the pod run, the smallest first."""
    to_pod = verified(state, pod, pod_changes(state, pod))
    to_cluster = verified(state, pod, cluster_changes(state, pod))
    changes = to_pod + to_cluster
    if not to_pod and not any(change.kind in CLAIM_CHANGES for change in to_cluster):
        changes += verified(state, pod, claim_and_pod_changes(state, pod))
    return sorted(changes, key=lambda change: change.size)


def verified(state: ClusterState, pod: Pod, changes: Iterable[SuggestedChange]) -> list[SuggestedChange]:
    """Returns the changes that the API server accepts and that let the pod fit; fills in their `nodes`.

    A search may have tried only the nodes that its change affects. Here all nodes are tried, because a plugin's error
    on any node fails the whole scheduling attempt.
    """
    holding = []
    was_accepted: bool | None = None
    for change in changes:
        if change.pod is not None:
            was_accepted = is_accepted(state, pod) if was_accepted is None else was_accepted
            if was_accepted and not is_accepted(state, change.pod):
                continue
        victims = [state.infos[key] for key in change.removed]
        with state.engine.suppose(objects=change.set_objects, remove=victims):
            nodes = state.engine.decide(change.pod or pod).feasible  # an error in scoring also makes the attempt fail
        if nodes:
            holding.append(replace(change, nodes=sorted(nodes)))
    return holding


def pod_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """Yields the smallest changes to the pod that let it run, combining as few kinds of change as possible."""
    kinds = [kind for kind in POD_CHANGES if kind.without(pod) is not None]
    accepts = acceptance(state, pod)
    for count in range(1, _MOST_KINDS + 1):
        changes = [change for chosen in combinations(kinds, count) for change in _of_kinds(state, pod, chosen, accepts)]
        if changes:
            yield from changes
            return


def cluster_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """Yields, for each kind of change to the cluster, the smallest change that lets the pod run."""
    searches: list[ClusterSearch] = [
        uncordoned_node,
        labelled_node,
        removed_pods,
        claim_changes.freed_devices,
        added_node,
    ]
    searches += [partial(_claim_change, steps, kind) for kind, steps in CLAIM_CHANGES.items()]
    for search in searches:
        if (change := search(state, pod)) is not None:
            yield change


def claim_and_pod_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """Yields, for each kind of claim, the smallest change of claims and pod together that lets the pod run."""
    bare = _without(pod, POD_CHANGES)
    for kind, steps in CLAIM_CHANGES.items():
        best: SuggestedChange | None = None
        tried = 0
        for step in islice(steps(state, pod), _MOST_STEPS):
            if tried == _MOST_STEPS_WITH_POD or (best and best.size <= step.size):
                continue
            with state.engine.suppose(objects=step.objects):
                if not state.engine.feasible(bare):
                    continue
                tried += 1
                smallest = min(pod_changes(state, pod), key=lambda change: change.size, default=None)
            if smallest and (best is None or step.size + smallest.size < best.size):
                best = replace(
                    smallest,
                    kind=f"{kind}+{smallest.kind}",
                    text=f"{step.text}, and {smallest.text}",
                    size=step.size + smallest.size,
                    set_objects=step.objects,
                )
        if best:
            yield best


def _claim_change(steps: ClaimSteps, kind: str, state: ClusterState, pod: Pod) -> SuggestedChange | None:
    for step in islice(steps(state, pod), _MOST_STEPS):
        with state.engine.suppose(objects=step.objects):
            if nodes := state.engine.feasible(pod):
                return SuggestedChange(kind, step.text, step.size, sorted(nodes), set_objects=step.objects)
    return None


def _of_kinds(
    state: ClusterState, pod: Pod, kinds: Sequence[PodChange], accepts: Acceptance
) -> Iterator[SuggestedChange]:
    """Yields changes made of one step of each kind; they differ only in the step of the last kind."""
    if len(kinds) > 1 and not state.engine.feasible(_without(pod, kinds), despite_errors=True):
        return
    taken: list[PodStep] = []
    for position, kind in enumerate(kinds[:-1]):
        bare = partial(_without, kinds=kinds[position + 1 :])
        step = next(_smallest(state, kind, pod, accepts, bare), None)
        if step is None:
            return
        taken.append(step)
        pod = step.apply(pod)
    for last in _smallest(state, kinds[-1], pod, accepts):
        steps = [*taken, last]
        changed = last.apply(pod)
        yield SuggestedChange(
            kind="+".join(kind.kind for kind in kinds),
            text=", and ".join(step.text for step in steps),
            size=sum(step.size for step in steps),
            nodes=state.engine.feasible(changed),
            pod=changed,
        )


def _smallest(
    state: ClusterState, kind: PodChange, pod: Pod, accepts: Acceptance, bare: Callable[[Pod], Pod] = lambda pod: pod
) -> Iterator[PodStep]:
    """Yields the smallest step of this kind after which the pod fits, or two steps that are equally small.

    Args:
        bare: removes from the pod everything that later kinds could change, so that only this kind decides.
    """
    enough: list[PodStep] = []
    for step in kind.steps(bare(pod), state):
        if enough and (step.size > enough[0].size or len(enough) == _MOST_OF_A_KIND):
            break
        if state.engine.feasible(step.apply(bare(pod))) and accepts(step.apply(pod)):
            enough.append(step)
            yield step


def _without(pod: Pod, kinds: Sequence[PodChange]) -> Pod:
    for kind in kinds:
        pod = kind.without(pod) or pod
    return pod


def added_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests adding a copy of an existing node; the copy runs only DaemonSet pods and has room for the pod."""
    for template in shapes(state, _MOST_SHAPES):
        name = f"{template.name}-copy"
        if state.has_node(name):
            continue
        (fresh,) = copies_of(state, template, [name]).nodes
        with state.engine.suppose(objects=list(fresh.all())):
            if state.engine.feasible(pod, [name]):
                text, set_objects = f"add a node like {template.name}", (fresh.node, *fresh.objects)
                # Pods are left out, because controllers create them.
                return SuggestedChange("add-node", text, _SIZE_OF_NODE, [name], set_objects=set_objects)
    return None


def removed_pods(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests the fewest pods whose removal lets the pod run; None if the search finds no such pods."""
    # A pinned pod, such as a DaemonSet's, would be recreated on its node.
    placed = (info for info in state.infos.values() if info.pod.node_name or info.pod.status.nominated_node_name)
    removable = [info for info in placed if info.uid != pod.uid and not is_pinned(info.pod)]
    enough = _enough(state, pod, removable)
    victims = _fewer(state, pod, removable, enough) or enough
    if not victims:
        return None
    with state.engine.suppose(remove=victims):
        nodes = state.engine.feasible(pod)
    keys = tuple(info.pod.key for info in victims)
    return SuggestedChange("remove-pods", _text(state, victims), 1 + len(keys), nodes, removed=keys)


def _text(state: ClusterState, victims: Pods) -> str:
    places: dict[str, list[str]] = {}
    for info in victims:
        node, nominated = info.pod.node_name, info.pod.status.nominated_node_name
        place = f"from {node}" if node else f"nominated to {nominated}"
        places.setdefault(place, []).append(info.pod.key)
    removals = " and ".join(f"{listed(keys)} {place}" for place, keys in places.items())
    protected = " (a PodDisruptionBudget protects some)" if violated_budgets(state, victims) else ""
    return f"remove {removals}{protected}"


def _by_preemption(state: ClusterState, pod: Pod) -> Pods | None:
    """Returns the pods that preemption would evict from one node if the pod had the highest priority."""
    urgent = pod.with_spec(priority=HIGHEST_PRIORITY, preemption_policy=None)
    candidates = sorted(state.engine.preempt(urgent).candidates.values(), key=_candidate_cost)
    for cheapest in candidates[:_MOST_NODES_TRIED]:
        candidate = _without_pinned(state, urgent, cheapest)
        if candidate and candidate.victims and _is_enough(state, pod, candidate.victims):
            return candidate.victims
    return None


def _without_pinned(state: ClusterState, urgent: Pod, candidate: Candidate) -> Candidate | None:
    """Returns a candidate for the same node that evicts no pinned pods; None if there is no such candidate.

    A pinned pod, such as a DaemonSet's, would be recreated on its node. If the candidate evicts one, preemption is
    tried again with all pinned pods at the highest priority, so that they cannot become victims.
    """
    if not any(is_pinned(info.pod) for info in candidate.victims):
        return candidate
    pinned = [info.pod for info in state.pods_on(candidate.node) if is_pinned(info.pod)]
    raised = [pod.with_spec(priority=HIGHEST_PRIORITY) for pod in pinned]
    with state.engine.suppose(objects=raised):
        return state.engine.preempt(urgent, [candidate.node]).candidates.get(candidate.node)


def _enough(state: ClusterState, pod: Pod, removable: Pods) -> Pods | None:
    """Returns pods whose removal lets the pod run; None if the search finds no such pods.

    The search tries to make room on one node first. If that fails, it also removes the pods in `_related`, which can
    affect every node.
    """
    victims = _by_preemption(state, pod)
    if victims is not None:
        return victims
    related = _related(PodInfo(pod), removable)
    with state.engine.suppose(remove=related):
        on_node = () if state.engine.feasible(pod) else _by_preemption(state, pod)
    return None if on_node is None else _needed(state, pod, [*related, *on_node])


def _needed(state: ClusterState, pod: Pod, victims: Pods) -> Pods:
    """Returns the victims without those that can stay, because the pod runs even beside them.

    The most important victims are tried first, at most _MOST_PUT_BACK of them.
    """
    needed = list(victims)
    for info in sorted(victims, key=lambda info: _cost(state, info), reverse=True)[:_MOST_PUT_BACK]:
        rest = [victim for victim in needed if victim is not info]
        if _is_enough(state, pod, rest):
            needed = rest
    return needed


def _related(info: PodInfo, others: Pods) -> list[PodInfo]:
    """Returns the pods that can make a node unsuitable for this pod although they run on another node.

    These are nominated pods, pods that share a claim with this pod, pods that its affinity or spread constraints
    select, and pods whose anti-affinity selects it.
    """
    terms = [term.selector for term in (*info.required_affinity, *info.required_anti_affinity)]
    constraints = info.pod.spec.topology_spread_constraints or ()
    selectors = [*terms, *(compile_selector(constraint.label_selector) for constraint in constraints)]
    claims = {use.key for use in info.claims}

    def is_related(other: PodInfo) -> bool:
        if not other.pod.node_name or any(use.key in claims for use in other.claims):
            return True
        refused = any(term.selector.matches(info.pod.labels) for term in other.required_anti_affinity)
        return refused or any(selector.matches(other.pod.labels) for selector in selectors)

    return [other for other in others if is_related(other)]


def _fewer(state: ClusterState, pod: Pod, removable: Pods, enough: Pods | None) -> Pods | None:
    """Returns the smallest set of pods whose removal lets the pod run; None if the search finds no such set.

    Small sets are tried first, beginning with pods of low priority that no budget protects. In a large cluster, only
    pods on the nodes of `enough` and the pods in `_related` are tried.

    Args:
        enough: pods whose removal lets the pod run; only smaller sets are tried. None if no such pods are known.
    """
    # Beside required affinity or spread constraints, the removal of few pods may help although that of more does not.
    if enough is None and not (PodInfo(pod).required_affinity or pod.spec.topology_spread_constraints):
        return None
    if len(removable) > _MOST_PODS_COMBINED:
        nodes = {info.pod.node_name for info in enough or () if info.pod.node_name}
        on_nodes = [info for info in removable if info.pod.node_name in nodes]
        removable = list(dict.fromkeys((*on_nodes, *_related(PodInfo(pod), removable))))[:_MOST_PODS_COMBINED]
    ordered = sorted(removable, key=lambda info: _cost(state, info))
    sizes = range(1, len(enough) if enough else len(ordered) + 1)
    tries = chain.from_iterable(combinations(ordered, size) for size in sizes)
    budget = min(_MOST_TRIED, _MOST_WORK // max(len(state.node_names()), 1))
    return next((victims for victims in islice(tries, budget) if _is_enough(state, pod, victims)), None)


def _is_enough(state: ClusterState, pod: Pod, victims: Pods) -> bool:
    with state.engine.suppose(remove=victims):
        return bool(state.engine.feasible(pod))


def violated_budgets(state: ClusterState, victims: Pods) -> list[str]:
    """Returns the keys of the PodDisruptionBudgets that do not allow all these evictions."""
    covering = [
        budget
        for info in victims
        for budget in state.budgets_of(info)
        if info.pod.name not in (budget.status.disrupted_pods or ())
    ]
    evicted = Counter(budget.key for budget in covering)
    allowed = {budget.key: budget.status.disruptions_allowed for budget in covering}
    return sorted(key for key, count in evicted.items() if count > allowed[key])


def _cost(state: ClusterState, info: PodInfo) -> tuple[bool, int, str]:
    return bool(violated_budgets(state, [info])), info.priority, info.pod.key


def _candidate_cost(candidate: Candidate) -> tuple[int, int, int, int, str]:
    """Returns a sort key that puts the cheapest candidate first.

    It compares the number of victims that are pinned to the node (such as a DaemonSet's pods), then the number of
    violated budgets, then the number of victims, then the sum of their priorities.
    """
    pinned = sum(is_pinned(info.pod) for info in candidate.victims)
    priorities = sum(info.priority for info in candidate.victims)
    return pinned, candidate.num_pdb_violations, len(candidate.victims), priorities, candidate.node
