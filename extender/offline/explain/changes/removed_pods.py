"""Suggests the fewest pods to remove from one node so that a pod can run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from extender.model.pod import Pod
from extender.offline.explain.changes.suggestion import SuggestedChange
from extender.offline.state import ClusterState, is_pinned
from extender.preemption import Candidate
from extender.runtime.text import listed
from extender.table import PodInfo

_HIGHEST_PRIORITY = 2**31 - 1
_MOST_NODES_TRIED = 3
_MOST_VICTIMS_DIVIDED = 4


def removed_pods(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests removing the pods that preemption would evict from one node if the pod had the highest priority."""
    urgent = pod.with_spec(priority=_HIGHEST_PRIORITY, preemption_policy=None)
    candidates = sorted(state.engine.preempt(urgent).candidates.values(), key=_cost)
    for cheapest in candidates[:_MOST_NODES_TRIED]:
        candidate = _without_pinned(state, urgent, cheapest)
        if candidate is None or not candidate.victims:
            continue
        with state.engine.suppose(remove=candidate.victims):
            fits = state.engine.feasible(pod, [candidate.node])
        if fits:
            return _change(state, pod, candidate)
    return None


def _change(state: ClusterState, pod: Pod, candidate: Candidate) -> SuggestedChange:
    victims, nodes = _fewest(state, pod, candidate.victims) or (candidate.victims, [candidate.node])
    keys = tuple(info.pod.key for info in victims)
    protected = " (a PodDisruptionBudget protects some)" if candidate.num_pdb_violations else ""
    text = f"remove {listed(keys)} from {candidate.node}{protected}"
    return SuggestedChange("remove-pods", text, 1 + len(keys), nodes, removed=keys)


def _without_pinned(state: ClusterState, urgent: Pod, candidate: Candidate) -> Candidate | None:
    """Returns the candidate with victims that are not pinned to the node; None if removing such pods is not enough.

    A pinned pod, such as a DaemonSet's, would be recreated on the same node. Preemption is tried again with pinned pods
    at the highest priority, so that it cannot choose them.
    """
    if not any(is_pinned(info.pod) for info in candidate.victims):
        return candidate
    pinned = [info.pod for info in state.pods_on(candidate.node) if is_pinned(info.pod)]
    raised = [pod.with_spec(priority=_HIGHEST_PRIORITY) for pod in pinned]
    with state.engine.suppose(objects=raised):
        return state.engine.preempt(urgent, [candidate.node]).candidates.get(candidate.node)


def _fewest(
    state: ClusterState, pod: Pod, victims: Sequence[PodInfo]
) -> tuple[Sequence[PodInfo], Sequence[str]] | None:
    """Returns the fewest of the victims whose removal is enough, and the nodes that the pod then fits on.

    Returns None if all victims are needed, or if there are too many to try all combinations.
    """
    if len(victims) > _MOST_VICTIMS_DIVIDED:
        return None
    for size in range(1, len(victims)):
        for part in combinations(victims, size):
            with state.engine.suppose(remove=part):
                if nodes := state.engine.feasible(pod):
                    return part, nodes
    return None


def _cost(candidate: Candidate) -> tuple[int, int, int, int, str]:
    """Returns a sort key for candidates: few pinned pods first, then few violated budgets, few pods, low priorities."""
    pinned = sum(is_pinned(info.pod) for info in candidate.victims)
    priorities = sum(info.priority for info in candidate.victims)
    return pinned, candidate.num_pdb_violations, len(candidate.victims), priorities, candidate.node
