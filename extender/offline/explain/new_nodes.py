"""Suggests a new node like an existing one."""

from __future__ import annotations

from extender.model.pod import Pod
from extender.offline.controllers.fresh_nodes import copies_of, shapes
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.state import ClusterState

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
