"""Applies PodDisruptionBudgets as the eviction API does, and updates them as the disruption controller does.

Sources: upstream pkg/registry/core/pod/storage/eviction.go, pkg/controller/disruption.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.table import PodInfo

NOT_ALLOWED = "a PodDisruptionBudget does not allow its eviction"
SEVERAL = "more than one PodDisruptionBudget covers it, which the eviction API does not support"


def objection(info: PodInfo, state: ClusterState) -> str | None:
    """Returns why the eviction API would refuse to evict the pod now; None if it would allow the eviction."""
    budgets = state.budgets_of(info)
    if not budgets or info.pod.terminating or info.pod.status.phase == "Pending":
        return None
    if len(budgets) > 1:
        return SEVERAL
    spec, status = budgets[0].spec, budgets[0].status
    if _is_unready(info.pod):
        enough = status.current_healthy >= status.desired_healthy > 0
        if enough or spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return None
    return None if status.disruptions_allowed > 0 else NOT_ALLOWED


def count_healthy(info: PodInfo, change: int, state: ClusterState) -> None:
    """Adds `change` to the number of healthy pods in each budget that covers the pod, if the pod is ready."""
    for budget in [] if _is_unready(info.pod) else state.budgets_of(info):
        status = budget.status
        healthy = max(status.current_healthy + change, 0)
        # A budget written by hand may have only the number of allowed disruptions.
        allowed = healthy - status.desired_healthy if status.desired_healthy else status.disruptions_allowed + change
        updated = replace(status, current_healthy=healthy, disruptions_allowed=max(allowed, 0))
        state.add(replace(budget, status=updated))


def _is_unready(pod: Pod) -> bool:
    """Returns True if the pod is reported as not ready. A pod without conditions counts as ready."""
    return pod.status.phase == "Pending" or any(
        condition.type == "Ready" and condition.status != "True" for condition in pod.status.conditions or ()
    )
