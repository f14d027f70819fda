"""One pod's node, decided on a snapshot. Source: upstream schedule_one.go, schedulePod, evaluateNominatedNode."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from extender.engine.algorithm import Fit, Profile, find_fit, score
from extender.engine.devices.plan import DevicePlan, plan_devices
from extender.engine.preemption import Candidate, preempt
from extender.engine.preemption.preempt import NOT_HELPFUL
from extender.engine.status import Refusal
from extender.engine.volumes.plan import VolumePlan, plan_volumes
from extender.scheduler import diagnosis
from extender.state.queued_pod import ERROR, Rejection
from extender.table import PodInfo, Table
from extender.table.labels import Rows

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
NOTHING_TO_BIND = VolumePlan()
NOTHING_TO_ALLOCATE = DevicePlan()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pod is to run there."""

    node_name: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """The pod cannot be placed now.

    Attributes:
        message: for people, as the stock scheduler words it.
        rejection: the plugins that it waits for; none where something went wrong.
        make_room: the node and the pods to be evicted there, if that helps.
        nominated_node: what is to become of its nomination; None: it stays.
    """

    message: str
    rejection: Rejection = ERROR
    make_room: Candidate | None = None
    nominated_node: str | None = ""

    @property
    def reason(self) -> str:
        """The reason in the pod's PodScheduled condition."""
        return UNSCHEDULABLE if self.rejection.rules else SCHEDULER_ERROR


class SchedulingCycle:
    """Decides by one profile; `random` breaks ties, and says where preemption begins to search."""

    def __init__(self, profile: Profile, random: Random) -> None:
        self.profile = profile
        self._random = random

    def decide(self, pod: PodInfo, table: Table) -> Chosen | Unfit:
        """The node for `pod`, or why there is none. Everything counts that `table` holds."""
        rows = table.nodes.rows
        if not len(rows):
            return Unfit(diagnosis.NO_NODES)
        nominated = self._on_nominated_node(pod, table)
        fit = None if nominated is not None else find_fit(self.profile, pod, table, rows)
        row = nominated if fit is None else self._best(pod, table, fit)
        if row is not None:
            return self._chosen(pod, table, row)
        assert fit is not None
        if failed := diagnosis.failure(fit):
            return Unfit(failed)
        return self._unfit(pod, table, fit)

    def _on_nominated_node(self, pod: PodInfo, table: Table) -> int | None:
        row = table.nodes.row_of.get(pod.pod.status.nominated_node_name)
        if row is None or not table.nodes.present[row]:
            return None
        return row if len(find_fit(self.profile, pod, table, np.array([row], np.intp)).feasible) else None

    def _best(self, pod: PodInfo, table: Table, fit: Fit) -> int | None:
        feasible = fit.feasible
        if diagnosis.failure(fit) or not len(feasible):
            return None
        if len(feasible) == 1:
            return int(feasible[0])
        total = score(self.profile, pod, table, feasible).total
        best: Rows = feasible[total == total.max()]
        return int(best[self._random.randrange(len(best))])

    def _chosen(self, pod: PodInfo, table: Table, row: int) -> Chosen | Unfit:
        """Pods whose claims have to be bound or allocated first are turned down: nothing here writes claims."""
        for what, plan, nothing in (
            ("volumes", plan_volumes(pod, table, row), NOTHING_TO_BIND),
            ("devices", plan_devices(pod, table, row, str), NOTHING_TO_ALLOCATE),
        ):
            if isinstance(plan, Refusal):
                return Unfit(f"{what}: {', '.join(plan.reasons)}")
            if plan != nothing:
                return Unfit(f"the pod's claims of {what} are not bound yet, and this scheduler does not bind them")
        return Chosen(table.nodes.names[row])

    def _unfit(self, pod: PodInfo, table: Table, fit: Fit) -> Unfit:
        message, rejection = diagnosis.fit_message(fit), diagnosis.rejection(fit, self.profile)
        limits = self.profile.preemption
        if limits is None:
            return Unfit(message, rejection)
        preemption = preempt(self.profile, pod, table, fit, limits, self._random.randrange(len(fit.rows)))
        told = diagnosis.preemption_message(fit, preemption, pod, table)
        if preemption.nominated_node is not None:
            candidate = preemption.candidates[preemption.nominated_node]
            return Unfit(message, rejection, candidate, candidate.node)
        searched = preemption.reason == NOT_HELPFUL
        return Unfit(f"{message} {told}", rejection, None, "" if searched else None)
