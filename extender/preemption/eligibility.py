"""Whether a pod may preempt others at all. Source: upstream DefaultPreemption.PodEligibleToPreemptOthers."""

from __future__ import annotations

from extender.framework.algorithm import Fit
from extender.framework.status import Code
from extender.model.pod import PREEMPTED_CONDITION, PREEMPTED_REASON, Pod
from extender.table import PodInfo, Table

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS_FOR_VICTIMS = "not eligible due to a terminating pod on the nominated node."


def ineligibility(pod: PodInfo, table: Table, fit: Fit) -> str:
    """Why the pod may not preempt others, in the scheduler's words; empty where it may. `fit`: of its last attempt."""
    if pod.pod.spec.preemption_policy == "Never":
        return NEVER
    row = table.nodes.row_of.get(pod.pod.status.nominated_node_name, -1)
    may_wait = row in fit.with_code(Code.UNSCHEDULABLE)  # elsewhere no victim's leaving could help
    return WAITS_FOR_VICTIMS if may_wait and _victims_leave(pod, table, row) else ""


def terminating_by_preemption(pod: Pod) -> bool:
    """Whether the scheduler has evicted the pod for another one and it is on its way out."""
    target = next((c for c in pod.status.conditions or () if c.type == PREEMPTED_CONDITION), None)
    return pod.terminating and target is not None and (target.status, target.reason) == ("True", PREEMPTED_REASON)


def _victims_leave(pod: PodInfo, table: Table, row: int) -> bool:
    slots = table.pods.on(row)
    leaving = slots[table.pods.terminating[slots] & (table.pods.priority[slots] < pod.priority)]
    return any(terminating_by_preemption(info.pod) for info in table.pods.at(leaving))
