"""Defines a suggested change, and the steps that the search tries and combines into changes.

A change is suggested only if the API server would create the changed pod; for example, a LimitRange may refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Annotated, Any, NamedTuple

import msgspec

from extender.errors import MalformedCluster
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.workloads import LimitRange
from extender.offline.answers import Documented
from extender.offline.manifests import admission
from extender.offline.state import ClusterState

_MOST_ELEMENTS = 6
_MOST_CLAIMS_CHANGED = 2
_KINDS = (
    "requests|tolerations|node-selection|spread|pod-affinity|host-ports|node-name|volume-claim|device-claim|uncordon|"
    "label-node|remove-pods|free-devices|add-node|min-count|topology|scheduling-gates|create-pods|create-group|"
    "member-fields"
)
ChangeKind = Annotated[str, msgspec.Meta(pattern=rf"^({_KINDS})(\+({_KINDS}))*$")]
Acceptance = Callable[[Pod], bool]


class ChangedMembers(Documented, frozen=True):
    """Members of a group that a change gives the same spec."""

    pods: Sequence[str]
    spec: dict[str, Any]


class ChangeDocument(Documented, frozen=True, omit_defaults=True):
    """A change as JSON; it has only the keys that this kind of change needs.

    Attributes:
        spec: the spec of the changed pod.
        removed: the pods to remove, by `namespace/name`.
        objects: the nodes, claims and other objects to create or update, as they are after the change.
        members: the changed members of a pod group.
    """

    kind: ChangeKind
    text: str
    size: float
    nodes: Sequence[str]
    spec: dict[str, Any] | None = None
    removed: Sequence[str] | None = None
    objects: Sequence[dict[str, Any]] | None = None
    members: Sequence[ChangedMembers] | None = None


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A change after which the pod fits, or after which all waiting members of a group fit.

    Attributes:
        kind: for a change to the pod, "requests", "tolerations", "node-selection", "spread", "pod-affinity",
            "host-ports" or "node-name", or several of these joined by "+". For a change to the cluster, "uncordon",
            "label-node", "remove-pods", "free-devices" or "add-node". For a change to claims, "volume-claim" or
            "device-claim", which may be joined by "+" with a change to the pod. A change for a group may also be
            "min-count", "topology", "scheduling-gates", "create-pods", "create-group" or "member-fields".
        text: what to do, in words.
        size: the cost of the change: 1 for each term, label, node or device that is given up; 1 for each removed pod,
            and 1 more if any pod is removed; 3 for a new node; 2 for lost data; the fraction by which a request is
            lowered.
        nodes: the nodes that could take the pod after the change.
        pod: the changed pod; None if the change is not to the pod.
        set_objects: the nodes, claims and other objects to create or update, as they are after the change.
        removed: the pods to remove, by `namespace/name`.
        members: the changed members of a group.
    """

    kind: str
    text: str
    size: float
    nodes: Sequence[str]
    pod: Pod | None = None
    set_objects: tuple[Object, ...] = ()
    removed: tuple[str, ...] = ()
    members: tuple[Pod, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the change, ready for JSON: it has only the keys that this kind of change needs."""
        return change_document(self).to_dict()


def change_document(change: SuggestedChange) -> ChangeDocument:
    by_spec: dict[bytes, list[str]] = {}
    for pod in change.members:
        by_spec.setdefault(msgspec.json.encode(pod.spec), []).append(pod.key)
    return ChangeDocument(
        change.kind,
        change.text,
        round(change.size, 4),
        change.nodes,
        spec=msgspec.to_builtins(change.pod.spec) if change.pod is not None else None,
        removed=change.removed or None,
        objects=[{"kind": type(each).__name__, **msgspec.to_builtins(each)} for each in change.set_objects] or None,
        members=[ChangedMembers(keys, msgspec.json.decode(spec)) for spec, keys in by_spec.items()] or None,
    )


class PodStep(NamedTuple):
    """A change to the pod's spec, made by `apply`.

    `size` is the number of changed terms. For requests, it is the fraction by which they are lowered.
    """

    text: str
    size: float
    apply: Callable[[Pod], Pod]


class PodChange(NamedTuple):
    """A kind of change to the pod's spec, such as smaller requests.

    `without` makes the largest change of this kind. If the pod still does not fit, no smaller step of this kind can
    help. Otherwise `steps` are tried in order.

    Attributes:
        without: returns the pod after the largest possible change of this kind; None if there is nothing to change.
        steps: yields the changes of this kind that may help the pod, the smallest first.
    """

    kind: str
    without: Callable[[Pod], Pod | None]
    steps: Callable[[Pod, ClusterState], Iterator[PodStep]]


class ClaimStep(NamedTuple):
    """A change to claims, and to objects that the claims name.

    `size` counts 1 for each changed name, each dropped selector and each device that is no longer requested, and 2 for
    lost data.
    """

    text: str
    size: float
    objects: tuple[Object, ...]


def subsets(elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yields all non-empty subsets, small ones first.

    If there are more than six elements, yields only each element alone, and then all elements together.
    """
    if len(elements) > _MOST_ELEMENTS:
        yield from ([element] for element in elements)
        yield elements
        return
    for size in range(1, len(elements) + 1):
        yield from (list(chosen) for chosen in combinations(elements, size))


def steps_for_claims(steps_by_claim: Sequence[Sequence[ClaimStep]]) -> Iterator[ClaimStep]:
    """Yields steps that change one claim, the smallest first, then steps that change two claims, the smallest first."""
    for count in range(1, min(len(steps_by_claim), _MOST_CLAIMS_CHANGED) + 1):
        together = [steps for chosen in combinations(steps_by_claim, count) for steps in product(*chosen)]
        for steps in sorted(together, key=_total_size):
            objects = tuple(obj for step in steps for obj in step.objects)
            yield ClaimStep(" and ".join(step.text for step in steps), _total_size(steps), objects)


def _total_size(steps: Sequence[ClaimStep]) -> float:
    return sum(step.size for step in steps)


def is_accepted(state: ClusterState, pod: Pod) -> bool:
    metadata = {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels}
    manifest = {"metadata": metadata, "spec": msgspec.to_builtins(pod.spec)}
    try:
        state.admit(manifest)
    except MalformedCluster:
        return False
    return True


def limits_of(state: ClusterState, pod: Pod) -> list[LimitRange]:
    """Returns the LimitRanges of the pod's namespace; [] if they refuse even the unchanged pod.

    In that case the pod is older than the LimitRanges, and they are ignored.
    """
    limits = admission.limit_ranges_of(pod.namespace, state.objects)
    return limits if limits and is_accepted(state, pod) else []


def acceptance(state: ClusterState, pod: Pod) -> Acceptance:
    """Returns a function that says if the LimitRanges of the pod's namespace allow a changed pod."""
    return partial(is_accepted, state) if limits_of(state, pod) else lambda _: True
