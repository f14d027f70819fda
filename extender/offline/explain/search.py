"""Searches for changes that let a pod run: to the pod, to the cluster, or to the pod and its claims together.

There are several kinds of change to the pod, such as more tolerations or smaller requests. If no single kind is enough,
two and then three kinds are combined. The search then finds the smallest change of the first kind, assuming that the
other kinds remove everything they can from the pod, and goes on with the next kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice

from extender.model.pod import Pod
from extender.offline.explain import claim_changes
from extender.offline.explain.node_labels import NodeSelection, labelled_node
from extender.offline.explain.pod_terms import (
    HostPorts,
    NodeNameChange,
    PodAffinityChange,
    Requests,
    Spread,
    Tolerations,
    uncordoned_node,
)
from extender.offline.explain.removed_pods import removed_pods
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
from extender.offline.state import ClusterState

_MOST_KINDS = 3
_MOST_OF_A_KIND = 2
_MOST_STEPS = 128
_MOST_STEPS_WITH_POD = 8

ClusterSearch = Callable[[ClusterState, Pod], SuggestedChange | None]
ClaimSteps = Callable[[ClusterState, Pod], Iterator[ClaimStep]]

POD_CHANGES: Sequence[PodChange] = (
    Requests(),
    Tolerations(),
    NodeSelection(),
    Spread(),
    PodAffinityChange(),
    HostPorts(),
    NodeNameChange(),
)
CLAIM_CHANGES: Mapping[str, ClaimSteps] = {
    "volume-claim": claim_changes.volume_steps,
    "device-claim": claim_changes.device_steps,
}


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
    claims = [partial(_claim_change, steps, kind) for kind, steps in CLAIM_CHANGES.items()]
    searches: list[ClusterSearch] = [
        uncordoned_node,
        labelled_node,
        removed_pods,
        claim_changes.freed_devices,
        added_node,
        *claims,
    ]
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


_MOST_SHAPES = 64
_SIZE = 3


def added_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests adding a copy of an existing node; the copy runs only DaemonSet pods and has room for the pod."""
    for template in shapes(state, _MOST_SHAPES):
        name = f"{template.name}-copy"
        if state.has_node(name):
            continue
        (fresh,) = copies_of(state, template, [name]).nodes
        with state.engine.suppose(objects=list(fresh.all())):
            fits = state.engine.feasible(pod, [name])
        if fits:
            # Pods are left out, because controllers create them.
            text = f"add a node like {template.name}"
            return SuggestedChange("add-node", text, _SIZE, [name], set_objects=(fresh.node, *fresh.objects))
    return None
