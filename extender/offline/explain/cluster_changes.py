"""Changes to the cluster that would let a pod run: a node to uncordon, to label or to add, pods to remove, claims.

Claims are changed together with the pod where neither does alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as replaced
from functools import partial
from itertools import combinations, islice

import numpy as np
from msgspec.structs import replace

from extender.framework.node_affinity import required_node_selector
from extender.model.devices.claims import ResourceClaim, ResourceClaimStatus
from extender.model.meta import Object
from extender.model.node import UNSCHEDULABLE_TAINT, Node
from extender.model.pod import Pod
from extender.offline.explain.changes import SuggestedChange, lifted, pod_changes
from extender.offline.explain.claim_changes import ClaimStep, device_claims, device_steps, volume_steps
from extender.offline.explain.details import requirement_text
from extender.offline.explain.new_nodes import like, shapes
from extender.offline.explain.pod_changes import POD_CHANGES
from extender.offline.explain.spec_changes import NodeSelection, missing_demands
from extender.offline.state import ClusterState, is_pinned
from extender.offline.text import listed
from extender.preemption import Candidate, preempt
from extender.table import PodInfo

_HIGHEST_PRIORITY = 2**31 - 1
_NEW_NODE_SIZE = 3
_MOST_VICTIMS_DIVIDED = 4
_MOST_STEPS, _MOST_STEPS_WITH_POD, _MOST_CLAIMS = 128, 8, 32

ClaimSteps = Callable[[ClusterState, PodInfo], Iterator[ClaimStep]]
Search = Callable[[ClusterState, Pod], SuggestedChange | None]
CLAIMS: Mapping[str, ClaimSteps] = {"volume-claim": volume_steps, "device-claim": device_steps}
_LABELS_OF_THE_PLATFORM = ("kubernetes.io", "k8s.io")


def cluster_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """One change of each kind that does, the smallest of its kind."""
    of_claims = [partial(_of_claims, steps, kind) for kind, steps in CLAIMS.items()]
    searches: list[Search] = [_uncordoned, _labelled, _emptied, _freed, _added, *of_claims]
    for search in searches:
        change = search(state, pod)
        if change is not None:
            yield change


def _of_claims(steps: ClaimSteps, kind: str, state: ClusterState, pod: Pod) -> SuggestedChange | None:
    for step in islice(steps(state, state.as_if_waiting(pod)), _MOST_STEPS):
        with state.supposing(step.objects):
            if names := state.feasible(pod):
                return SuggestedChange(kind, step.text, step.size, sorted(names), set_objects=step.objects)
    return None


def claim_and_pod_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """The smallest change to claims of each kind together with one to the pod, of one kind or of several."""
    bare = lifted(pod, POD_CHANGES)
    for kind, steps in CLAIMS.items():
        best: SuggestedChange | None = None
        tried = 0
        for step in islice(steps(state, state.as_if_waiting(pod)), _MOST_STEPS):
            if tried == _MOST_STEPS_WITH_POD or (best and best.size <= step.size):
                continue
            with state.supposing(step.objects):
                if not state.feasible(bare):
                    continue
                tried += 1
                smallest = min(pod_changes(state, pod), key=lambda change: change.size, default=None)
            if smallest and (best is None or step.size + smallest.size < best.size):
                best = replaced(
                    smallest,
                    kind=f"{kind}+{smallest.kind}",
                    text=f"{step.text}, and {smallest.text}",
                    size=step.size + smallest.size,
                    set_objects=step.objects,
                )
        if best:
            yield best


def _fits_after(state: ClusterState, pod: Pod, node: Node, *others: Object) -> bool:
    with state.supposing([node, *others]):
        return node.name in state.feasible(pod, state.rows_of([node.name]))


def _uncordoned(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    nodes = state.table.nodes
    cordoned = [nodes.node(row) for row in nodes.rows[nodes.unschedulable[nodes.rows]].tolist()]
    opened = [with_cordon(node) for node in cordoned]
    if not opened:
        return None
    with state.supposing(opened):
        names = sorted(state.feasible(pod, state.rows_of(node.name for node in opened)))
    fitting = [node for node in opened if node.name in names and _fits_after(state, pod, node)][:1]
    for node in fitting:
        others = f" (or another of {len(names)})" if len(names) > 1 else ""
        return SuggestedChange("uncordon", f"uncordon {node.name}{others}", 1, [node.name], set_objects=(node,))
    return None


def with_cordon(node: Node, *, unschedulable: bool = False) -> Node:
    """The node cordoned or not, with the taint that comes with it."""
    taints = [taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key]
    taints += [UNSCHEDULABLE_TAINT] if unschedulable else []
    return replace(node, spec=replace(node.spec, unschedulable=unschedulable or None, taints=taints or None))


def _labelled(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    lifted = NodeSelection().lifted(pod)
    rows = state.fit(lifted).feasible if lifted else np.zeros(0, np.intp)
    ranked = sorted(
        (len(labels), min(state.table.nodes.names_of(failing)), tuple(sorted(labels.items())))
        for missing, failing in missing_demands(pod, state, rows)
        for labels in (_labels_for(pod, each.demands, each.term) for each in missing)
        if labels
    )
    for size, name, labels in ranked[:3]:
        node = state.node(name)
        changed = replace(node, metadata=replace(node.metadata, labels={**node.labels, **dict(labels)}))
        if _fits_after(state, pod, changed):
            text = f"label node {name} " + " ".join(f"{key}={value}" for key, value in labels)
            return SuggestedChange("label-node", text, size, [name], set_objects=(changed,))
    return None


def _labels_for(pod: Pod, demands: frozenset[str], term: int) -> dict[str, str] | None:
    """The labels that satisfy all of the demands; None where no label does, or a platform sets it."""
    labels = {
        key: value for key, value in (pod.spec.node_selector or {}).items() if f"nodeSelector {key}={value}" in demands
    }
    met = len(labels)
    required = required_node_selector(pod)
    expressions = (required.node_selector_terms or ())[term].match_expressions if required and term >= 0 else ()
    for each in expressions or ():
        if f"affinity {requirement_text(each)}" in demands and each.operator in ("In", "Exists"):
            labels.setdefault(each.key, (each.values or [""])[0])
            met += 1
    own = not any(key.rpartition("/")[0].endswith(_LABELS_OF_THE_PLATFORM) for key in labels)
    return labels if labels and own and met == len(demands) else None


def _emptied(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """The fewest pods to remove from one node: as preemption would choose them, were priority no matter."""
    profile, info = state.profile(pod), state.as_if_waiting(pod)
    urgent = info.pod.with_spec(priority=_HIGHEST_PRIORITY, preemption_policy=None)
    with state.deciding(), state.table.hypothetically(removed=[info.uid]):
        found = preempt(profile, PodInfo(urgent), state.table, state.fit(urgent)).candidates
    candidates = sorted((found[name] for name in found), key=_removal_cost)
    for each in candidates[:3]:
        candidate = _sparing_pinned(state, PodInfo(urgent), each)
        gone = list(candidate.victims) if candidate else []
        if candidate is None or not gone:
            continue
        with state.supposing(gone=gone):
            fits = candidate.node in state.feasible(pod, state.rows_of([candidate.node]))
        if fits:
            fewest, nodes = _fewer_that_do(state, pod, gone) or (gone, [candidate.node])
            keys = tuple(info.pod.key for info in fewest)
            protected = " (a PodDisruptionBudget protects some)" if candidate.num_pdb_violations else ""
            text = f"remove {listed(keys)} from {candidate.node}{protected}"
            return SuggestedChange("remove-pods", text, 1 + len(fewest), nodes, removed=keys)
    return None


def _sparing_pinned(state: ClusterState, urgent: PodInfo, candidate: Candidate) -> Candidate | None:
    """The victims on the node if none may be one that comes straight back; None where nobody else does."""
    if not any(is_pinned(info.pod) for info in candidate.victims):
        return candidate
    spared = [info.pod for info in state.standing_on(candidate.node) if is_pinned(info.pod)]
    raised = [each.with_spec(priority=_HIGHEST_PRIORITY) for each in spared]
    profile, rows = state.profile(urgent.pod), state.rows_of([candidate.node])
    with state.supposing(raised), state.deciding(), state.table.hypothetically(removed=[urgent.uid]):
        found = preempt(profile, urgent, state.table, state.fit(urgent.pod), rows=rows).candidates
        return found[candidate.node] if candidate.node in list(found) else None


def _freed(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """The users of one claim to remove, whose devices are free then: preemption leaves devices alone."""
    info = state.as_if_waiting(pod)
    if not device_claims(state, info):
        return None
    by_uid = {each.uid: each for each in state.infos.values()}
    held = [each for each in state.table.objects.all(ResourceClaim).values() if each.status.reserved_for]
    for claim in sorted(held, key=lambda each: (len(each.status.reserved_for or ()), each.key))[:_MOST_CLAIMS]:
        users = [by_uid[each.uid] for each in claim.status.reserved_for or () if each.uid in by_uid]
        free = replace(claim, status=ResourceClaimStatus())
        with state.supposing([free], gone=users):
            names = state.feasible(pod) if users and not any(is_pinned(each.pod) for each in users) else []
        if names:
            keys = tuple(each.pod.key for each in users)
            text = f"remove {listed(keys)}, and with it ResourceClaim {claim.key}"
            return SuggestedChange(
                "free-devices", text, 1 + len(keys), sorted(names), removed=keys, set_objects=(free,)
            )
    return None


def _fewer_that_do(
    state: ClusterState, pod: Pod, victims: Sequence[PodInfo]
) -> tuple[Sequence[PodInfo], list[str]] | None:
    """Returns some of the victims whose removal opens nodes already, perhaps others than theirs, and these nodes."""
    if len(victims) > _MOST_VICTIMS_DIVIDED:
        return None
    for size in range(1, len(victims)):
        for some in combinations(victims, size):
            with state.supposing(gone=list(some)):
                if nodes := state.feasible(pod):
                    return some, nodes
    return None


def _removal_cost(candidate: Candidate) -> tuple[int, int, int, int, str]:
    """Few pods that come back by themselves, few budgets, few pods, low priorities."""
    daemons = sum(is_pinned(info.pod) for info in candidate.victims)
    priorities = sum(info.priority for info in candidate.victims)
    return daemons, candidate.num_pdb_violations, len(candidate.victims), priorities, candidate.node


def _added(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Another node like one that is there, empty but for what stands on every such node."""
    for template in shapes(state):
        node, others = like(state, template, f"{template.name}-copy")
        if not state.table.nodes.has(node.name) and _fits_after(state, pod, node, *others):
            text = f"add a node like {template.name}"
            made = [each for each in others if not isinstance(each, Pod)]  # the pods come by themselves
            return SuggestedChange("add-node", text, _NEW_NODE_SIZE, [node.name], set_objects=(node, *made))
    return None
