"""Suggests changes for tainted nodes: the pod tolerates the taints, or a cordoned node is uncordoned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, Node, Taint, untolerated
from extender.model.pod import Pod, Toleration
from extender.offline.explain.changes.placement_rules import unspread
from extender.offline.explain.changes.suggestion import PodStep, SuggestedChange
from extender.offline.state import ClusterState

# A taint with this prefix marks an unhealthy node. A pod that tolerates it would start there and fail.
_CONDITION_TAINTS = "node.kubernetes.io/"


class Tolerations:
    """A change that adds tolerations for the taints of a node."""

    kind = "tolerations"

    def without(self, pod: Pod) -> Pod:
        return _tolerating(pod, [Toleration(operator="Exists")])

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        missing: dict[tuple[Taint, ...], None] = {}
        for name in state.engine.feasible(unspread(self.without(pod)), despite_errors=True):
            node = state.node(name)
            taints = [*node.taints, *([UNSCHEDULABLE_TAINT] if node.spec.unschedulable else ())]
            lacking = tuple(dict.fromkeys(untolerated(taints, pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE))))
            if lacking and not any(taint.key.startswith(_CONDITION_TAINTS) for taint in lacking):
                missing[lacking] = None
        for lacking in sorted(missing, key=len):
            text = "tolerate " + " and ".join(map(_taint_text, lacking))
            added = [_toleration(taint) for taint in lacking]
            yield PodStep(text, len(added), partial(_tolerating, added=added))


def uncordoned_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests uncordoning a node that could then take the pod; None if there is no such node."""
    opened = [with_cordon(node, unschedulable=False) for node in state.nodes() if node.spec.unschedulable]
    if not opened:
        return None
    with state.engine.suppose(objects=opened):
        names = sorted(state.engine.feasible(unspread(pod), [node.name for node in opened], despite_errors=True))
    for node in opened:
        if node.name in names and _fits_after(state, pod, node):
            others = f" (or another of {len(names)})" if len(names) > 1 else ""
            return SuggestedChange("uncordon", f"uncordon {node.name}{others}", 1, [node.name], set_objects=(node,))
    return None


def with_cordon(node: Node, *, unschedulable: bool) -> Node:
    """Returns the node cordoned (`unschedulable`) or uncordoned; its taint is added or removed with it."""
    taints = [taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key]
    taints += [UNSCHEDULABLE_TAINT] if unschedulable else []
    return replace(node, spec=replace(node.spec, unschedulable=unschedulable or None, taints=taints or None))


def _fits_after(state: ClusterState, pod: Pod, node: Node) -> bool:
    """Returns True if the pod fits on `node` when this node alone is uncordoned."""
    with state.engine.suppose(objects=[node]):
        return node.name in state.engine.feasible(pod)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


def _tolerating(pod: Pod, added: list[Toleration]) -> Pod:
    return pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added])
