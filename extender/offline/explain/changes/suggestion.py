"""A suggested change, and the steps from which the search makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple, Protocol

import msgspec

from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.state import ClusterState

_MOST_ELEMENTS = 6
_MOST_CLAIMS_CHANGED = 2


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A change after which the pod fits.

    Attributes:
        kind: "requests", "tolerations", "node-selection", "spread", "pod-affinity", "host-ports", "node-name", or
            several of these joined by "+"; "uncordon", "label-node", "remove-pods", "free-devices", "add-node";
            "volume-claim", "device-claim", or one of these two joined by "+" with changes to the pod.
        text: what to do, for people.
        size: the cost, for comparison. Each term, label, node or device that is given up counts 1. So does each removed
            pod, plus 1 for removing any. A new node counts 3, lost data 2; requests count by the share given up.
        nodes: the nodes that could then take the pod.
        pod: the changed pod, if the pod is to change.
        set_objects: the changed nodes and claims, and the new ones.
        removed: the pods to remove, by `namespace/name`.
    """

    kind: str
    text: str
    size: float
    nodes: Sequence[str]
    pod: Pod | None = None
    set_objects: tuple[Object, ...] = ()
    removed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns {"kind", "text", "size", "nodes": [...], "spec": of the changed pod, "removed", "objects"}."""
        document: dict[str, Any] = {
            "kind": self.kind,
            "text": self.text,
            "size": round(self.size, 4),
            "nodes": list(self.nodes),
        }
        if self.pod is not None:
            document["spec"] = msgspec.to_builtins(self.pod.spec)
        if self.removed:
            document["removed"] = list(self.removed)
        if self.set_objects:
            document["objects"] = [{"kind": type(obj).__name__, **msgspec.to_builtins(obj)} for obj in self.set_objects]
        return document


class PodStep(NamedTuple):
    """A change to the pod's spec. `size`: the number of terms it changes; for requests, the share that is given up."""

    text: str
    size: float
    apply: Callable[[Pod], Pod]


class PodChange(Protocol):
    """A kind of change to the pod's spec.

    `without` drops everything of the kind, which shows at once if it is what keeps the pod from running. `steps` are
    then tried in order.
    """

    kind: str

    def without(self, pod: Pod) -> Pod | None:
        """Returns the pod without anything that this kind could change; None if it has nothing of the kind."""
        ...

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        """Yields the steps, the smallest first."""
        ...


class ClaimStep(NamedTuple):
    """Changed claims, and changed objects that they name.

    `size` counts 1 for each name or selector and for each device less, and 2 for lost data.
    """

    text: str
    size: float
    objects: tuple[Object, ...]


def subsets(elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yields all choices of one or more elements, small ones first; of more than six, only single ones and all."""
    if len(elements) > _MOST_ELEMENTS:
        yield from ([element] for element in elements)
        yield elements
        return
    for size in range(1, len(elements) + 1):
        yield from (list(chosen) for chosen in combinations(elements, size))


def steps_for_claims(steps_by_claim: Sequence[Sequence[ClaimStep]]) -> Iterator[ClaimStep]:
    """Yields the steps of single claims, then those of two claims together; among these the smallest first."""
    for count in range(1, min(len(steps_by_claim), _MOST_CLAIMS_CHANGED) + 1):
        together = [steps for chosen in combinations(steps_by_claim, count) for steps in product(*chosen)]
        for steps in sorted(together, key=_total_size):
            objects = tuple(obj for step in steps for obj in step.objects)
            yield ClaimStep(" and ".join(step.text for step in steps), _total_size(steps), objects)


def _total_size(steps: Sequence[ClaimStep]) -> float:
    return sum(step.size for step in steps)
