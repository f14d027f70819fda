"""The smallest changes that would let a pod run. None is named before the engine has decided it again.

Changes to the pod are searched kind by kind (see pod_changes), then by two and three kinds together where no kind alone
does: while one is made as small as can be, the others are lifted; then the next. Changes to the cluster are in
cluster_changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.explain.pod_changes import POD_CHANGES
from extender.offline.explain.spec_changes import PodChange, Step
from extender.offline.state import ClusterState

MOST_TOGETHER = 3
_MOST_OF_A_KIND = 2


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A change after which the pod fits.

    Attributes:
        kind: "requests", "tolerations", "node-selection", "spread", "pod-affinity", "host-ports", "node-name", several
            of these joined by "+"; "uncordon", "label-node", "remove-pods", "free-devices", "add-node"; "volume-claim",
            "device-claim"; one of these two and kinds of changes to the pod, joined by "+".
        text: what is to be done, for people.
        size: what it costs, for comparison: 1 for each term, label or node, 1 and 1 for each pod that goes, 3 for a new
            node; of requests the part that is given up; 1 for each device less, 2 for data that is lost.
        nodes: the nodes that it opens.
        pod: the pod as it would be, where the pod is to change.
        set_objects: nodes and claims as they would be, new ones among them.
        removed: the pods, by `namespace/name`, that would go.
    """

    kind: str
    text: str
    size: float
    nodes: Sequence[str]
    pod: Pod | None = None
    set_objects: tuple[Object, ...] = ()
    removed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """{"kind", "text", "size", "nodes": [...], "spec": of the changed pod, "removed": [pod, ...], "objects"}."""
        told: dict[str, Any] = {
            "kind": self.kind,
            "text": self.text,
            "size": round(self.size, 4),
            "nodes": list(self.nodes),
        }
        if self.pod is not None:
            told["spec"] = msgspec.to_builtins(self.pod.spec)
        if self.removed:
            told["removed"] = list(self.removed)
        if self.set_objects:
            made = [{"kind": type(obj).__name__, **msgspec.to_builtins(obj)} for obj in self.set_objects]
            told["objects"] = made
        return told


def pod_changes(state: ClusterState, pod: Pod) -> Iterator[SuggestedChange]:
    """The smallest changes to the pod; those of the fewest kinds that do."""
    kinds = [kind for kind in POD_CHANGES if kind.lifted(pod) is not None]
    for together in range(1, MOST_TOGETHER + 1):
        found = [change for chosen in combinations(kinds, together) for change in _by_kinds(state, pod, chosen)]
        if found:
            yield from found
            return


def _by_kinds(state: ClusterState, pod: Pod, kinds: Sequence[PodChange]) -> Iterator[SuggestedChange]:
    """Changes of all of the kinds together, the last one's in several ways."""
    if not state.feasible(lifted(pod, kinds)):
        return
    taken: list[Step] = []
    for position, kind in enumerate(kinds[:-1]):
        step = next(_smallest(state, kind, lifted(pod, kinds[position + 1 :])), None)
        if step is None:
            return
        taken.append(step)
        pod = step.apply(pod)
    for step in _smallest(state, kinds[-1], pod):
        changed = step.apply(pod)
        yield SuggestedChange(
            kind="+".join(each.kind for each in kinds),
            text=", and ".join(each.text for each in (*taken, step)),
            size=sum(each.size for each in (*taken, step)),
            nodes=state.table.nodes.names_of(np.sort(state.fit(changed).feasible)),
            pod=changed,
        )


def _smallest(state: ClusterState, kind: PodChange, pod: Pod) -> Iterator[Step]:
    """The smallest steps of a kind after which the pod fits; a few where several are as small."""
    found: list[Step] = []
    for step in kind.steps(pod, state):
        if found and (step.size > found[0].size or len(found) == _MOST_OF_A_KIND):
            break
        if state.feasible(step.apply(pod)):
            found.append(step)
            yield step


def lifted(pod: Pod, kinds: Sequence[PodChange]) -> Pod:
    """The pod without the demands of these kinds."""
    for kind in kinds:
        pod = kind.lifted(pod) or pod
    return pod
