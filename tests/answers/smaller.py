"""Searches for changes that are smaller than the suggested ones: there must be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

from msgspec import to_builtins
from msgspec.structs import replace

from extender.errors import MalformedCluster
from extender.model.meta import Object as Model
from extender.model.pod import Pod, ResourceRequirements, Toleration
from extender.model.quantity import ResourceList
from extender.model.requests import pod_requests
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.replicas import is_pinned
from extender.runtime.text import quantity
from tests.answers.case import Case, Faults

MOST_TRIED = 1500

SMALLER: list[Callable[[Case, dict[str, SuggestedChange]], Faults]] = []


def check_smaller(case: Case) -> Faults:
    """No change of the same kind that is smaller would do; and where one would, one is suggested."""
    explanation = case.explanation
    if case.cluster._state.engine.feasible(explanation.pod) or not explanation.decision.nodes:
        return
    changes = {change.kind: change for change in reversed(explanation.changes)}
    for smaller in SMALLER:
        yield from smaller(case, changes)


def _smaller(function: Callable[[Case, dict[str, SuggestedChange]], Faults]) -> None:
    SMALLER.append(function)


def _fits(case: Case, pod: Pod) -> bool:
    """Returns True if a scheduler would place the pod; an error of scoring also fails the attempt.

    With a LimitRange, the API server must accept the pod too; it fills in requests.
    """
    engine = case.cluster._state.engine
    if case.is_limited and pod is not case.explanation.pod:
        pod = _admitted(case, pod) or case.explanation.pod
    return bool(engine.feasible(pod) and engine.decide(pod).feasible)


def _admitted(case: Case, pod: Pod) -> Pod | None:
    """Returns the pod with the requests that the API server would store; None if it would refuse the pod."""
    metadata = {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels}
    try:
        spec = case.cluster._state.admit({"metadata": metadata, "spec": to_builtins(pod.spec)}).pod.spec
    except MalformedCluster:
        return None
    return pod.with_spec(containers=spec.containers, init_containers=spec.init_containers, resources=spec.resources)


def _single_pod_change(changes: dict[str, SuggestedChange]) -> bool:
    return any(change.pod is not None and "+" not in kind for kind, change in changes.items())


@_smaller
def _fewer_removals(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    state = case.cluster._state
    removable = [
        info
        for info in state.infos.values()
        if not is_pinned(info.pod)
        and info.pod.key != case.key
        and (info.pod.node_name or info.pod.status.nominated_node_name)
    ]
    change = changes.get("remove-pods")
    size = len(change.removed) if change else 3
    for count in range(1, size):
        if comb(len(removable), count) > MOST_TRIED:
            return
        for chosen in combinations(removable, count):
            with state.engine.suppose(remove=chosen):
                if _fits(case, case.explanation.pod):
                    keys = [info.pod.key for info in chosen]
                    yield f"{change and change.text}: removing {keys} would do"
                    return


@_smaller
def _less_given_up(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    """Each request that is lowered is needed, and one unit more would be too much."""
    pod, change = case.explanation.pod, changes.get("requests")
    if change is None or change.pod is None:
        if not _single_pod_change(changes):
            lowered = set(pod_requests(pod.with_spec(overhead=None)))
            if lowered and _fits(case, _asking(pod, dict.fromkeys(lowered, 0))):
                yield "no smaller request is suggested, but one would do"
        return
    before, after = (pod_requests(each.with_spec(overhead=None)) for each in (pod, change.pod))
    for name in before:
        if after.get(name, 0) == before[name]:
            continue
        if _fits(case, _asking(change.pod, {name: before[name]})):
            yield f"{change.text}: {name} need not be lowered"
        elif _fits(case, _asking(change.pod, {name: after.get(name, 0) + 1})):
            yield f"{change.text}: {quantity(name, after.get(name, 0) + 1)} of {name} would do"


def _asking(pod: Pod, targets: dict[str, int]) -> Pod:
    """Returns the pod asking for exactly these amounts, all of them in its first container."""
    requests = {**pod_requests(pod.with_spec(overhead=None)), **targets}
    texts: ResourceList = {name: quantity(name, amount) for name, amount in requests.items()}
    first, *others = [replace(each, resources=None) for each in pod.containers]
    asking = replace(first, resources=ResourceRequirements(requests=texts))
    init_containers = [replace(each, resources=None) for each in pod.init_containers]
    return pod.with_spec(resources=None, init_containers=init_containers, containers=[asking, *others])


@_smaller
def _fewer_demands(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    pod, change = case.explanation.pod, changes.get("node-selection")
    selector = dict(pod.spec.node_selector or {})
    if change is None and _single_pod_change(changes) is False and selector:
        limit = len(selector) + 1
    else:
        limit = round(change.size) if change else 0
    for count in range(1, limit):
        for dropped in combinations(selector, count):
            rest = {key: value for key, value in selector.items() if key not in dropped}
            if _fits(case, pod.with_spec(node_selector=rest or None)):
                yield f"{change and change.text}: dropping {dropped} would do"
                return


@_smaller
def _fewer_terms(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    pod, change = case.explanation.pod, changes.get("pod-affinity")
    if pod.spec.affinity is None:
        return
    places = [
        (field, position)
        for field in ("pod_affinity", "pod_anti_affinity")
        if (own := getattr(pod.spec.affinity, field))
        for position, _ in enumerate(own.required or ())
    ]
    limit = round(change.size) if change else 0 if _single_pod_change(changes) else len(places) + 1
    for count in range(1, limit):
        for dropped in combinations(places, count):
            affinity = pod.spec.affinity
            for field in ("pod_affinity", "pod_anti_affinity"):
                own = getattr(affinity, field)
                if own:
                    kept = [term for i, term in enumerate(own.required or ()) if (field, i) not in dropped]
                    affinity = replace(affinity, **{field: replace(own, required=kept or None)})
            if _fits(case, pod.with_spec(affinity=affinity)):
                yield f"{change and change.text}: dropping {dropped} would do"
                return


@_smaller
def _fewer_tolerations(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    pod, change = case.explanation.pod, changes.get("tolerations")
    taints = {taint for node in case.cluster._state.nodes() for taint in node.taints}
    useful = [taint for taint in taints if not taint.key.startswith("node.kubernetes.io/")][:10]
    limit = round(change.size) if change else 0 if _single_pod_change(changes) else 3
    for count in range(1, limit):
        for chosen in combinations(useful, count):
            added = [Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in chosen]
            if _fits(case, pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added])):
                yield f"{change and change.text}: tolerating {[taint.key for taint in chosen]} would do"
                return


@_smaller
def _one_node(case: Case, changes: dict[str, SuggestedChange]) -> Faults:
    """A cordoned node whose uncordoning would do is found, and so is a copy of a node."""
    state, pod = case.cluster._state, case.explanation.pod
    if "uncordon" not in changes:
        for node in state.nodes():
            taints = [taint for taint in node.taints if taint.key != "node.kubernetes.io/unschedulable"]
            opened = replace(node, spec=replace(node.spec, unschedulable=None, taints=taints or None))
            if opened != node and _fits_with(case, pod, [opened]):
                yield f"uncordoning {node.name} would do"
    if "label-node" not in changes and not any("kubernetes.io/" in key for key in pod.spec.node_selector or ()):
        for node in state.nodes():
            labels = {**node.labels, **(pod.spec.node_selector or {})}
            labelled = replace(node, metadata=replace(node.metadata, labels=labels))
            if labelled != node and _fits_with(case, pod, [labelled]):
                yield f"labelling {node.name} would do"


def _fits_with(case: Case, pod: Pod, nodes: Sequence[Model]) -> bool:
    with case.cluster._state.engine.suppose(objects=nodes):
        return _fits(case, pod)
