"""Says whether moves may let a pod run, by one sum: `extender plan` finds out which moves do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extender.model.pod import Pod
from extender.offline.explain.suggestion import SuggestedChange
from extender.offline.state import ClusterState
from extender.table import PodInfo


def may_help(state: ClusterState, pod: Pod, changes: Sequence[SuggestedChange]) -> bool:
    """Returns True if pods stand in the way that a controller would recreate, and there is room for all pods in total.

    A plan may still have to keep these pods, because of a budget or an annotation for example.
    """
    for change in changes:
        victims = [state.infos[key] for key in change.removed]
        if victims and all(_is_recreated(info.pod) for info in victims):
            return _has_room_in_total(state, PodInfo(pod))
    return False


def _is_recreated(pod: Pod) -> bool:
    return bool(pod.node_name) and pod.controller is not None and not pod.terminating


def _has_room_in_total(state: ClusterState, info: PodInfo) -> bool:
    """Returns True if all nodes together have free what the pod requests; moves do not change that sum."""
    nodes = state.table.nodes
    rows, needed = nodes.rows, nodes.vector(info.footprint)
    indices = np.flatnonzero(needed)
    free = nodes.allocatable[indices][:, rows] - nodes.requested[indices][:, rows]
    return bool((np.maximum(free, 0).sum(axis=1) >= needed[indices]).all())
