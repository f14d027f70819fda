"""One pod's node, decided on a snapshot. Source: upstream schedule_one.go, schedulePod, evaluateNominatedNode."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

import numpy as np

from extender.devices.plan import DevicePlan, idle_claim, plan_devices
from extender.errors import ExtenderError
from extender.framework.algorithm import Fit, Profile, find_fit, score
from extender.framework.status import Refusal
from extender.model.devices.claims import ResourceClaim
from extender.plugins.dynamic_resources.predicate import DynamicResourcesFilter
from extender.plugins.volume_binding.plan import VolumePlan, plan_volumes
from extender.plugins.volume_binding.predicate import VolumeBindingFilter
from extender.preemption import NOT_HELPFUL, Candidate, preempt
from extender.queue.queued_pod import ERROR, Rejection
from extender.scheduler import diagnosis
from extender.scheduler.extenders import Extenders
from extender.table import PodInfo, Table
from extender.table.labels import Rows

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
_log = logging.getLogger(__name__)
NOTHING_TO_BIND = VolumePlan()
NOTHING_TO_ALLOCATE = DevicePlan()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a pod waits for its volumes to be bound, and for its devices to be made ready."""

    volumes_seconds: float = 600
    devices_seconds: float = 600


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pod is to run there, with what is to be done about its claims first."""

    node_name: str
    volumes: VolumePlan = NOTHING_TO_BIND
    devices: DevicePlan = NOTHING_TO_ALLOCATE
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True)
class Unfit:
    """The pod cannot be placed now.

    Attributes:
        message: for people, as the stock scheduler words it.
        rejection: the plugins that it waits for; none where something went wrong.
        make_room: the node and the pods to be evicted there, if that helps.
        nominated_node: what is to become of its nomination; None: it stays.
        idle_claim: a claim whose devices keep the pod away, and that nobody else uses: it is to be given up.
    """

    message: str
    rejection: Rejection = ERROR
    make_room: Candidate | None = None
    nominated_node: str | None = ""
    idle_claim: ResourceClaim | None = None

    @property
    def reason(self) -> str:
        """The reason in the pod's PodScheduled condition."""
        return UNSCHEDULABLE if self.rejection.rules else SCHEDULER_ERROR


class SchedulingCycle:
    """Decides by one profile; `random` breaks ties, and says where preemption begins to search.

    `extenders` are asked about what the profile lets pass.
    """

    def __init__(self, profile: Profile, random: Random, extenders: Extenders | None = None) -> None:
        self.profile = profile
        self._random = random
        self._timeouts = timeouts_of(profile)
        self._extenders = extenders or Extenders()

    def decide(self, pod: PodInfo, table: Table) -> Chosen | Unfit:
        """The node for `pod`, or why there is none. Everything counts that `table` holds."""
        rows = table.nodes.rows
        if not len(rows):
            return Unfit(diagnosis.NO_NODES, diagnosis.rejection_by_all(self.profile))
        nominated = self._on_nominated_node(pod, table)
        try:
            fit = None if nominated is not None else self._fit(pod, table, rows)
        except ExtenderError as error:
            return Unfit(str(error))
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
        try:
            fit = self._fit(pod, table, np.array([row], np.intp))
        except ExtenderError as error:
            _log.warning("%s on its nominated node: %s", pod.pod.key, error)
            return None
        return row if len(fit.feasible) else None

    def _fit(self, pod: PodInfo, table: Table, rows: Rows) -> Fit:
        """Which rows can take the pod, other extenders asked. Raises ExtenderError where one of them has failed."""
        fit = find_fit(self.profile, pod, table, rows)
        if not diagnosis.failure(fit):
            self._extenders.filter(pod, table, fit)
        return fit

    def _best(self, pod: PodInfo, table: Table, fit: Fit) -> int | None:
        feasible = fit.feasible
        if diagnosis.failure(fit) or not len(feasible):
            return None
        if len(feasible) == 1:
            return int(feasible[0])
        total = score(self.profile, pod, table, feasible).total + self._extenders.prioritize(pod, table, feasible)
        best: Rows = feasible[total == total.max()]
        return int(best[self._random.randrange(len(best))])

    def _chosen(self, pod: PodInfo, table: Table, row: int) -> Chosen | Unfit:
        volumes = plan_volumes(pod, table, row)
        if isinstance(volumes, Refusal):
            return Unfit(f"volumes: {', '.join(volumes.reasons)}")
        devices = plan_devices(pod, table, row, self._new_share_id)
        if isinstance(devices, Refusal):
            return Unfit(f"devices: {', '.join(devices.reasons)}")
        return Chosen(table.nodes.names[row], volumes, devices, self._timeouts)

    def _new_share_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _unfit(self, pod: PodInfo, table: Table, fit: Fit) -> Unfit:
        unfit = self._preempt(pod, table, fit)
        idle = idle_claim(pod, table, fit)
        return unfit if idle is None else replace(unfit, idle_claim=idle)

    def _preempt(self, pod: PodInfo, table: Table, fit: Fit) -> Unfit:
        message, rejection = diagnosis.fit_message(fit), diagnosis.rejection(fit, self.profile)
        limits = self.profile.preemption
        if limits is None:
            return Unfit(message, rejection)
        preemption = preempt(self.profile, pod, table, fit, limits, self._random.randrange(len(fit.rows)))
        preemption = self._extenders.preempt(pod, table, preemption)
        told = diagnosis.preemption_message(fit, preemption, pod, table)
        if preemption.nominated_node is not None:
            candidate = preemption.candidates[preemption.nominated_node]
            return Unfit(message, rejection, candidate, candidate.node)
        searched = preemption.reason == NOT_HELPFUL
        return Unfit(f"{message} {told}", rejection, None, "" if searched else None)


def timeouts_of(profile: Profile) -> Timeouts:
    """As the profile's plugins say (bindTimeoutSeconds, bindingTimeout)."""
    timeouts = Timeouts()
    for predicate in profile.predicates:
        if isinstance(predicate, VolumeBindingFilter):
            timeouts = replace(timeouts, volumes_seconds=predicate.bind_timeout_seconds)
        elif isinstance(predicate, DynamicResourcesFilter):
            timeouts = replace(timeouts, devices_seconds=predicate.binding_timeout_seconds)
    return timeouts
