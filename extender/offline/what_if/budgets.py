"""PodDisruptionBudgets, as the eviction API goes by them and their controller counts.

Sources: upstream pkg/registry/core/pod/storage/eviction.go, pkg/controller/disruption.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.model.pod import Pod
from extender.model.workloads import PodDisruptionBudget
from extender.table import PodInfo, Table

NOT_ALLOWED = "a PodDisruptionBudget does not allow its eviction"
SEVERAL = "it has more than one PodDisruptionBudget, which the eviction API does not support"


def objection(info: PodInfo, table: Table) -> str:
    """Returns why the eviction API does not let the pod go now; empty where it does."""
    budgets = _covering(info, table)
    if not budgets or info.pod.terminating or info.pod.status.phase == "Pending":
        return ""
    if len(budgets) > 1:
        return SEVERAL
    spec, status = budgets[0].spec, budgets[0].status
    if _is_unready(info.pod):
        enough = status.current_healthy >= status.desired_healthy > 0
        if enough or spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return ""
    return "" if status.disruptions_allowed > 0 else NOT_ALLOWED


def count(info: PodInfo, by: int, table: Table) -> None:
    """Counts one healthy pod more or less; one that is not ready was not counted."""
    for budget in [] if _is_unready(info.pod) else _covering(info, table):
        status = budget.status
        healthy = max(status.current_healthy + by, 0)
        # A budget that is written by hand may say nothing but how many disruptions it allows.
        allowed = healthy - status.desired_healthy if status.desired_healthy else status.disruptions_allowed + by
        counted = replace(status, current_healthy=healthy, disruptions_allowed=max(allowed, 0))
        table.set_object(type(budget).__name__, replace(budget, status=counted))


def _covering(info: PodInfo, table: Table) -> list[PodDisruptionBudget]:
    budgets = table.objects.all(PodDisruptionBudget)
    return [budgets[key] for key in table.budgets.covering(info.group)]


def _is_unready(pod: Pod) -> bool:
    """Returns True if its kubelet says so; of a pod that has no conditions nobody has said anything."""
    return pod.status.phase == "Pending" or any(
        each.type == "Ready" and each.status != "True" for each in pod.status.conditions or ()
    )
