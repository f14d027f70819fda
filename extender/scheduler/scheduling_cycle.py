"""The decision about one pod: a node, or the reason why there is none, and the pods that could make room for it.

Source: upstream schedule_one.go, schedulePod, evaluateNominatedNode, selectHost, and the PostFilter that follows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol
from uuid import UUID

import numpy as np

from extender.devices.plan import DevicePlan, idle_claim, plan_devices
from extender.errors import DeadlineExceeded, ExtenderError, RuleFailed
from extender.framework.find_fit import Fit, find_fit
from extender.framework.profile import Profile
from extender.framework.rankings import Rankings
from extender.framework.score import score
from extender.framework.status import Refusal
from extender.model.devices.claims import ResourceClaim
from extender.model.pod import Pod
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.volume_binding import VolumeBindingFilter, VolumePlan, plan_volumes
from extender.preemption import NO_NODES, NOT_HELPFUL, Candidate, Preemption, fit_message, preempt, preemption_message
from extender.queue.queued_pod import ERROR, Rejection
from extender.scheduler import diagnosis
from extender.scheduler.extenders import Extenders
from extender.scheduler.ports import EventType
from extender.scheduler.timing import ERROR as ERROR_STATUS
from extender.scheduler.timing import POST_FILTER, SUCCESS, UNSCHEDULABLE, ProfileTimer
from extender.table import PodInfo, Table
from extender.table.labels import Rows

POD_UNSCHEDULABLE, POD_SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
GANG_SCHEDULING = "GangScheduling"
NO_POD_GROUPS = "pod groups are not supported: a pod with a schedulingGroup is not placed without the others"
VOLUME_BINDING, DEVICES = "VolumeBinding", "DynamicResources"
NOTHING_TO_BIND = VolumePlan()
NOTHING_TO_ALLOCATE = DevicePlan()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits for a pod's volumes to be bound, and for its devices to be made ready."""

    volumes_seconds: float = 600
    devices_seconds: float = 600


@dataclass(frozen=True, slots=True)
class Chosen:
    """The node for a pod, with what is to be done about its claims first."""

    node_name: str
    volumes: VolumePlan = NOTHING_TO_BIND
    devices: DevicePlan = NOTHING_TO_ALLOCATE
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The pods that make room for a preemptor.

    Attributes:
        victims: the pods that leave the node, in the order of their eviction.
        outranked: pods of a lower priority that are nominated to the node, and lose their nomination.
    """

    node_name: str
    victims: Sequence[PodInfo]
    outranked: Sequence[PodInfo] = ()


@dataclass(frozen=True, slots=True)
class Unfit:
    """The reason why a pod cannot be placed now.

    Attributes:
        message: for people, as the stock scheduler words it.
        rejection: the plugins that the pod waits for; none after an error.
        preemption: the pods to evict, if that helps.
        nominated_node: the pod's new nomination, "" for none; None leaves it as it is.
        idle_claim: a claim whose devices keep the pod away, and that nobody else uses: it is to be deallocated.
    """

    message: str
    rejection: Rejection = ERROR
    preemption: EvictionPlan | None = None
    nominated_node: str | None = ""
    idle_claim: ResourceClaim | None = None

    @property
    def reason(self) -> str:
        """The reason in the pod's PodScheduled condition."""
        return POD_UNSCHEDULABLE if self.rejection.rules else POD_SCHEDULER_ERROR


class AttemptObserver(Protocol):
    """Hears of every attempt and every event of the loop; must be quick, and not raise."""

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Unfit) -> None:
        """The cycle has decided about the pod, on this table, in the loop's thread."""

    def told(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """An event about the pod is written; in any thread."""


class SchedulingCycle:
    """Decides by one profile.

    Args:
        random: breaks ties, and says where preemption begins to search.
        extenders: asked about the nodes that the profile lets pass.
        timer: times some decisions; None: none is.
        observers: hear of each decision.
    """

    def __init__(
        self,
        profile: Profile,
        random: Random,
        extenders: Extenders | None = None,
        timer: ProfileTimer | None = None,
        observers: Sequence[AttemptObserver] = (),
    ) -> None:
        self.profile = self._rules = profile
        self._observers = observers
        self._timer = timer
        self._random = random
        self._timeouts = timeouts_of(profile)
        self._extenders = extenders or Extenders()
        self._rankings = Rankings(profile)

    def schedule_pod(self, pod: PodInfo, table: Table) -> Chosen | Unfit:
        """Returns the node for `pod`, or the reason why there is none, by what `table` holds.

        Raises:
            DeadlineExceeded: the table's deadline has passed. If it is a RuleUnanswered, a rule may still use `table`.
        """
        try:
            self._rules = self._timer.begin(self.profile) if self._timer else self.profile
            decided = self._decide(pod, table)
        except DeadlineExceeded as error:
            self._tell(pod, table, Unfit(str(error)))
            raise
        if self._timer:
            self._timer.end(*_statuses(decided))
        self._tell(pod, table, decided)
        return decided

    def _tell(self, pod: PodInfo, table: Table, decided: Chosen | Unfit) -> None:
        for observer in self._observers:
            observer.attempted(pod, table, decided)

    def _decide(self, pod: PodInfo, table: Table) -> Chosen | Unfit:
        if pod.pod.spec.scheduling_group is not None:
            return Unfit(NO_POD_GROUPS, Rejection(unschedulable=frozenset((GANG_SCHEDULING,))))
        rows = table.nodes.rows
        if not len(rows):
            return Unfit(NO_NODES, diagnosis.rejection_by_all(self.profile))
        row = self._nominated_row(pod, table)
        if row is not None:
            return self._chosen(pod, table, row)
        try:
            if (row := self._ranked_row(pod, table)) is not None:
                return self._chosen(pod, table, row)
            fit = self._find_fit(pod, table, rows)
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            return Unfit(str(error))
        if failure := diagnosis.failure(fit):
            return Unfit(failure)
        if len(feasible := fit.feasible):
            return self._scored(pod, table, feasible)
        return self._unfit(pod, table, fit)

    def _nominated_row(self, pod: PodInfo, table: Table) -> int | None:
        """Returns the row of the pod's nominated node if it can take the pod (upstream evaluateNominatedNode)."""
        row = table.nodes.row_of.get(pod.pod.status.nominated_node_name)
        if row is None or not table.nodes.present[row]:
            return None
        try:
            fit = self._find_fit(pod, table, np.array([row], np.intp))
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            _log.warning("%s on its nominated node: %s", pod.pod.key, error)
            return None
        return row if len(fit.feasible) else None

    def _ranked_row(self, pod: PodInfo, table: Table) -> int | None:
        """Returns the row that `_find_fit` and `_select_row` would end with, if the ranking of the template tells."""
        best = None if self._extenders else self._rankings.best(pod, table)
        if best is None:
            return None
        return int(best.rows[0] if best.only else best.rows[self._random.randrange(len(best.rows))])

    def _find_fit(self, pod: PodInfo, table: Table, rows: Rows) -> Fit:
        """Returns the rows that can take the pod, by the profile and the extenders.

        Raises:
            ExtenderError: an extender that is not ignorable has failed.
        """
        fit = find_fit(self._rules, pod, table, rows)
        if not diagnosis.failure(fit):
            with table.deadline.paused():  # extenders have timeouts of their own
                self._extenders.filter(pod, table, fit)
        return fit

    def _scored(self, pod: PodInfo, table: Table, feasible: Rows) -> Chosen | Unfit:
        try:
            row = self._select_row(pod, table, feasible)
        except RuleFailed as error:
            return Unfit(str(error))
        return self._chosen(pod, table, row)

    def _select_row(self, pod: PodInfo, table: Table, feasible: Rows) -> int:
        """Returns the row with the highest score, one of several at random (upstream prioritizeNodes, selectHost)."""
        if len(feasible) == 1:
            return int(feasible[0])
        total = score(self._rules, pod, table, feasible).total
        if self._extenders:
            with table.deadline.paused():
                total = total + self._extenders.prioritize(pod, table, feasible)
        best: Rows = feasible[total == total.max()]
        return int(best[self._random.randrange(len(best))])

    def _chosen(self, pod: PodInfo, table: Table, row: int) -> Chosen | Unfit:
        reserving = self.profile.reserving
        volumes = plan_volumes(pod, table, row) if VOLUME_BINDING in reserving else NOTHING_TO_BIND
        if isinstance(volumes, Refusal):
            return Unfit(f"volumes: {', '.join(volumes.reasons)}")

        def new_share_id() -> str:
            return str(UUID(int=self._random.getrandbits(128), version=4))

        devices = plan_devices(pod, table, row, new_share_id) if DEVICES in reserving else NOTHING_TO_ALLOCATE
        if isinstance(devices, Refusal):
            return Unfit(f"devices: {', '.join(devices.reasons)}")
        return Chosen(table.nodes.names[row], volumes, devices, self._timeouts)

    def _unfit(self, pod: PodInfo, table: Table, fit: Fit) -> Unfit:
        unfit = self._preempt(pod, table, fit)
        idle = idle_claim(pod, table, fit)
        return unfit if idle is None else replace(unfit, idle_claim=idle)

    def _preempt(self, pod: PodInfo, table: Table, fit: Fit) -> Unfit:
        message, rejection = fit_message(fit), diagnosis.rejection(fit, self.profile)
        limits = self.profile.preemption
        if limits is None:
            return Unfit(message, rejection)

        def post_filter() -> Preemption:
            found = preempt(self.profile, pod, table, fit, limits, self._random.randrange(len(fit.rows)))
            with table.deadline.paused():
                return self._extenders.preempt(pod, table, found)

        found = self._timer.time_point(POST_FILTER, post_filter) if self._timer else post_filter()
        if found.nominated_node is None:
            message = f"{message} {preemption_message(fit, found, pod, table)}"
            return Unfit(message, rejection, nominated_node="" if found.reason == NOT_HELPFUL else None)
        plan = eviction_plan(self.profile, pod, table, found.candidates[found.nominated_node])
        return Unfit(message, rejection, plan, plan.node_name)


def eviction_plan(profile: Profile, pod: PodInfo, table: Table, candidate: Candidate) -> EvictionPlan:
    """Returns what is to be done to have the pod fit the candidate's node."""
    nominated = table.nominated.get(candidate.node, {}).values()
    outranked = [each for each in nominated if each.priority < pod.priority and profile.awaits(pod, each)]
    return EvictionPlan(candidate.node, candidate.victims, outranked)


def _statuses(decided: Chosen | Unfit) -> tuple[str, str]:
    """Returns the status of the last point that filtered or scored, and that of PostFilter."""
    if isinstance(decided, Chosen):
        return SUCCESS, SUCCESS
    made_room = SUCCESS if decided.preemption else UNSCHEDULABLE
    return (UNSCHEDULABLE if decided.rejection.rules else ERROR_STATUS), made_room


def timeouts_of(profile: Profile) -> Timeouts:
    """Returns the timeouts of the profile's plugins (bindTimeoutSeconds, bindingTimeout)."""
    timeouts = Timeouts()
    for predicate in profile.predicates:
        if isinstance(predicate, VolumeBindingFilter):
            timeouts = replace(timeouts, volumes_seconds=predicate.bind_timeout_seconds)
        elif isinstance(predicate, DynamicResourcesFilter):
            timeouts = replace(timeouts, devices_seconds=predicate.binding_timeout_seconds)
    return timeouts
