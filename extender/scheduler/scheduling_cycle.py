"""Decides about one pod: chooses a node, or finds why the pod fits nowhere and which evictions would help.

Source: upstream schedule_one.go schedulePod, evaluateNominatedNode, selectHost, and the PostFilter that follows;
framework.FitError and Diagnosis.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol
from uuid import UUID

import numpy as np

from extender.devices.plan import DevicePlan, idle_claim, plan_devices
from extender.errors import DeadlineExceeded, ExtenderError, RuleFailed
from extender.framework.find_fit import Fit, find_fit
from extender.framework.plugin import RESERVE, error_prefix
from extender.framework.profile import Profile
from extender.framework.rankings import Rankings
from extender.framework.rules import Proposal
from extender.framework.score import score
from extender.framework.status import Code, Refusal
from extender.groups import GroupDecision, Tree
from extender.groups.group_preemption import GroupPreemption
from extender.model.devices.claims import ResourceClaim
from extender.model.pod import Pod
from extender.model.scheduling.pod_groups import SchedulingGroup
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.registry import users_rules
from extender.plugins.volume_binding import VolumeBindingFilter, VolumePlan, plan_volumes
from extender.preemption import (
    NO_NODES,
    NOT_HELPFUL,
    Candidate,
    Preemption,
    fit_message,
    preempt,
    preemption_message,
    rows_per_refusal,
)
from extender.queue.queued_pod import NO_REJECTION, Rejection
from extender.runtime.ports import NominatedNode, Nominating
from extender.scheduler.other_extenders import NAME as EXTENDER
from extender.scheduler.other_extenders import Extenders
from extender.scheduler.scheduler_ports import EventType
from extender.scheduler.timing import POST_FILTER, PointStatus, ProfileTimer
from extender.table import PodInfo, Table
from extender.table.labels import Rows

POD_UNSCHEDULABLE = "Unschedulable"
POD_SCHEDULER_ERROR = "SchedulerError"
ANYWHERE = "cluster"  # a group's victims are on several nodes, so upstream writes this instead of a node's name
VOLUME_BINDING = "VolumeBinding"
DEVICES = "DynamicResources"
NOTHING_TO_BIND = VolumePlan()
NOTHING_TO_ALLOCATE = DevicePlan()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits for a pod: until its volumes are bound, and until its devices are ready."""

    volumes_seconds: float = 600
    devices_seconds: float = 600


@dataclass(frozen=True, slots=True)
class Chosen:
    """The node chosen for a pod, and the writes that its volume and device claims need before the bind."""

    node_name: str
    volumes: VolumePlan = NOTHING_TO_BIND
    devices: DevicePlan = NOTHING_TO_ALLOCATE
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The evictions that free resources for a preemptor on one node.

    Attributes:
        victims: the pods to evict, in this order.
        outranked: pods of lower priority that lose their nomination to the node.
        group: the pod group for which the pods are evicted; None if the preemptor is a single pod.
        pdb_violations: the number of victims whose eviction violates a PodDisruptionBudget.
        disrupted_groups: the number of victims in pod groups. Pods that are evicted together count once. As in
            upstream, 0 if the preemptor is a single pod.
    """

    node_name: str
    victims: Sequence[PodInfo]
    outranked: Sequence[PodInfo] = ()
    group: SchedulingGroup | None = None
    pdb_violations: int = 0
    disrupted_groups: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt to schedule or bind a pod, and what follows from it.

    Attributes:
        message: the message for users, in kube-scheduler's words.
        rejection: the plugins that rejected the pod; empty after an error.
        preemption: the evictions that would help the pod; None if none would.
        nominated_node: the node to nominate the pod to; KEEP or CLEAR keeps or ends its present nomination.
        idle_claim: a claim that no other pod uses, and that should get other devices, because the pod fits nowhere with
            the present ones; None if there is no such claim.
        search_seconds: how long preemption searched for pods to evict; None if it did not search.
        gave_way: True if the attempt ended because other pods waited.
    """

    message: str
    rejection: Rejection = NO_REJECTION
    preemption: EvictionPlan | None = None
    nominated_node: NominatedNode = Nominating.CLEAR
    idle_claim: ResourceClaim | None = None
    search_seconds: float | None = None
    gave_way: bool = False

    @property
    def node_to_nominate(self) -> str:
        """The node to nominate the pod to; "" if `nominated_node` is KEEP or CLEAR."""
        return self.nominated_node if isinstance(self.nominated_node, str) else ""

    @property
    def reason(self) -> str:
        """The reason in the pod's PodScheduled condition."""
        return POD_UNSCHEDULABLE if self.rejection.rules else POD_SCHEDULER_ERROR


class AttemptObserver(Protocol):
    """Observes every decision and every event of the loop. An observer must be quick and must not raise."""

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:
        """Records the decision about a pod, which was made on `table`. Called in the loop's thread."""

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:
        """Records the decision about a pod group, which was made on `table`. Called in the loop's thread."""

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:
        """Records that an error ended the attempt for a pod group. Called in the loop's thread."""

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """Observes an event about a pod. Called in any thread."""


class SchedulingCycle:
    """Decides about the pods of one profile.

    Args:
        random: chooses between nodes with the same score, and the node at which preemption starts its search.
        extenders: called for the nodes that pass the profile's filters.
        timer: measures a sample of the decisions.
        observers: called with each decision.
    """

    def __init__(
        self,
        profile: Profile,
        random: Random,
        extenders: Extenders | None = None,
        timer: ProfileTimer | None = None,
        observers: Sequence[AttemptObserver] = (),
    ) -> None:
        self.profile = profile
        self._rules = profile
        self._observers = observers
        self._timer = timer
        self._random = random
        self._timeouts = timeouts_of(profile)
        self._extenders = extenders or Extenders()
        self._rankings = Rankings(profile)

    def schedule_pod(self, pod: PodInfo, table: Table) -> Chosen | Failure:
        """Returns the node for `pod` in the cluster that `table` shows, or the reason why no node can take it.

        Raises:
            DeadlineExceeded: the table's deadline has passed. If the error is a RuleUnanswered, a rule may still be
                using `table`.
        """
        try:
            decided = self._timed(lambda: self._decide(pod, table))
        except DeadlineExceeded as error:
            self._notify(pod, table, Failure(str(error)))
            raise
        self._notify(pod, table, decided)
        return decided

    def _timed(self, decide: Callable[[], Chosen | Failure]) -> Chosen | Failure:
        """Calls `decide` and returns the decision. For a sample of the calls, measures how long each rule takes."""
        if self._timer is None:
            return decide()
        self._rules = self._timer.begin(self.profile)
        decided = decide()
        self._timer.end(*_statuses(decided))
        return decided

    def _notify(self, pod: PodInfo, table: Table, decided: Chosen | Failure) -> None:
        for observer in self._observers:
            observer.attempted(pod, table, decided)

    def group_decided(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:
        """Passes the decision about a pod group to the observers."""
        for observer in self._observers:
            observer.group_attempted(table, decision, preemption)

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:
        """Passes the error that ended a group's attempt to the observers."""
        for observer in self._observers:
            observer.group_failed(table, tree, message)

    def _decide(self, pod: PodInfo, table: Table) -> Chosen | Failure:
        decided = self._choose(pod, table, table.nodes.rows)
        return self._failure(pod, table, decided) if isinstance(decided, Fit) else decided

    def decide_member(self, pod: PodInfo, table: Table, rows: Rows | None = None) -> Chosen | Failure:
        """Decides about a member of a group. `rows` are the nodes to consider; None means all nodes.

        In `table`, the members that were decided earlier are on their nodes. This method searches for no victims,
        because the group preempts as a whole. Raises the same errors as `schedule_pod`.
        """
        return self._timed(lambda: self._decide_member(pod, table, table.nodes.rows if rows is None else rows))

    def _decide_member(self, pod: PodInfo, table: Table, rows: Rows) -> Chosen | Failure:
        decided = self._choose(pod, table, rows)
        if isinstance(decided, Fit):
            return Failure(fit_message(decided), rejection_of(decided, self.profile), nominated_node=Nominating.KEEP)
        return decided

    def _choose(self, pod: PodInfo, table: Table, rows: Rows) -> Chosen | Failure | Fit:
        """Chooses a node for the pod among `rows`. Returns a Fit with all refusals if no node can take the pod."""
        if not len(rows):
            return Failure(NO_NODES, rejection_by_all(self.profile))
        nominated = self._fit_on_nominated_node(pod, table, rows)
        if nominated is not None and len(nominated.feasible):
            return self._chosen(pod, table, int(nominated.rows[0]))
        try:
            if len(rows) == len(table.nodes.rows) and (row := self._ranked_row(pod, table)) is not None:
                return self._chosen(pod, table, row)
            fit = self._find_fit(pod, table, rows)
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            return Failure(str(error))
        if fit.error is not None:
            return Failure(fit_message(fit))
        if len(feasible := fit.feasible):
            return self._scored(pod, table, feasible)
        if nominated is not None:
            fit.add_earlier(nominated)
        return fit

    def _fit_on_nominated_node(self, pod: PodInfo, table: Table, rows: Rows) -> Fit | None:
        """Checks the pod's nominated node alone, before the other nodes (upstream evaluateNominatedNode).

        Returns None if the nominated node is not among `rows`, or if the check failed. As in upstream, the nominated
        node is checked even if PreFilter restricts the pod to other nodes.
        """
        row = table.nodes.row_of.get(pod.pod.status.nominated_node_name)
        if row is None or row not in rows:
            return None
        try:
            return self._find_fit(pod, table, np.array([row], np.intp), narrowed=False)
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            _log.warning("checking the nominated node failed pod=%s reason=%r", pod.pod.key, str(error))
            return None

    def _ranked_row(self, pod: PodInfo, table: Table) -> int | None:
        """Returns the row that `_find_fit` and `_select_row` would choose; None if no cached ranking is valid."""
        best = None if self._extenders else self._rankings.best(pod, table)
        if best is None:
            return None
        return int(best.rows[0] if best.only else best.rows[self._random.randrange(len(best.rows))])

    def _find_fit(self, pod: PodInfo, table: Table, rows: Rows, *, narrowed: bool = True) -> Fit:
        """Returns which rows the profile's rules and the extenders accept for the pod.

        Raises:
            ExtenderError: an extender that is not ignorable has failed.
        """
        fit = find_fit(self._rules, pod, table, rows, narrowed=narrowed)
        if fit.error is None:
            with table.deadline.paused():  # calls of extenders have timeouts of their own
                self._extenders.filter(pod, table, fit)
        return fit

    def _scored(self, pod: PodInfo, table: Table, feasible: Rows) -> Chosen | Failure:
        try:
            row = self._select_row(pod, table, feasible)
        except RuleFailed as error:
            return Failure(str(error))
        return self._chosen(pod, table, row)

    def _select_row(self, pod: PodInfo, table: Table, feasible: Rows) -> int:
        """Returns the row with the highest score, chosen at random in a tie (upstream prioritizeNodes, selectHost)."""
        if len(feasible) == 1:
            return int(feasible[0])
        total = score(self._rules, pod, table, feasible).total
        if self._extenders:
            with table.deadline.paused():
                total = total + self._extenders.prioritize(pod, table, feasible)
        best: Rows = feasible[total == total.max()]
        return int(best[self._random.randrange(len(best))])

    def _chosen(self, pod: PodInfo, table: Table, row: int) -> Chosen | Failure:
        reserving = self.profile.reserving
        volumes = plan_volumes(pod, table, row) if VOLUME_BINDING in reserving else NOTHING_TO_BIND
        if isinstance(volumes, Refusal):
            return Failure(error_prefix(RESERVE, VOLUME_BINDING) + ", ".join(volumes.reasons))

        def new_share_id() -> str:
            return str(UUID(int=self._random.getrandbits(128), version=4))

        devices = plan_devices(pod, table, row, new_share_id) if DEVICES in reserving else NOTHING_TO_ALLOCATE
        if isinstance(devices, Refusal):
            return Failure(error_prefix(RESERVE, DEVICES) + ", ".join(devices.reasons))
        return Chosen(table.nodes.names[row], volumes, devices, self._timeouts)

    def _failure(self, pod: PodInfo, table: Table, fit: Fit) -> Failure:
        return replace(self._preempt(pod, table, fit), idle_claim=idle_claim(pod, table, fit))

    def _preempt(self, pod: PodInfo, table: Table, fit: Fit) -> Failure:
        message = fit_message(fit)
        rejection = rejection_of(fit, self.profile)
        reasons = []
        for proposal in self._proposals(pod, table, fit):
            if proposal.node_name:
                _log.debug("preemption not tried pod=%s reason=%r", pod.pod.key, "a PostFilter rule nominated a node")
                return Failure(message, rejection, nominated_node=proposal.node_name)
            reasons += [proposal.reason] if proposal.reason else []
        limits = self.profile.preemption
        if limits is None:
            _log.debug("preemption not tried pod=%s reason=%r", pod.pod.key, "the profile has no DefaultPreemption")
            return Failure(_with_reasons(message, reasons), rejection)

        def post_filter() -> Preemption:
            preemption = preempt(self.profile, pod, table, fit, limits, self._random.randrange(len(fit.rows)))
            with table.deadline.paused():
                return self._extenders.preempt(pod, table, preemption)

        timed = self._timer.time_point(POST_FILTER, post_filter) if self._timer else (post_filter(), 0.0)
        preemption, seconds = timed
        outcome = preemption_message(fit, preemption, pod, table)
        if preemption.nominated_node is None:
            message = _with_reasons(message, [*reasons, outcome])
            is_final = preemption.reason == NOT_HELPFUL
            nominated = Nominating.CLEAR if is_final else Nominating.KEEP
            return Failure(message, rejection, nominated_node=nominated, search_seconds=seconds)
        plan = eviction_plan(self.profile, pod, table, preemption.candidates[preemption.nominated_node])
        return Failure(_with_reasons(message, [outcome]), rejection, plan, plan.node_name, search_seconds=seconds)

    def _proposals(self, pod: PodInfo, table: Table, fit: Fit) -> Iterator[Proposal]:
        """Yields what users' PostFilter rules propose, in the order of the rules."""
        if self.profile.post_filter:
            refused = {table.nodes.names[row]: ", ".join(refusal.reasons) for row, refusal in fit.refused()}
            for rule in self.profile.post_filter:
                yield rule.propose(pod, refused, table)


def _with_reasons(message: str, reasons: Sequence[str]) -> str:
    """Appends what the PostFilter plugins say. After a success, upstream keeps only what the successful plugin says."""
    return f"{message} {', '.join(reasons)}" if reasons else message


def eviction_plan(profile: Profile, pod: PodInfo, table: Table, candidate: Candidate) -> EvictionPlan:
    """Returns the evictions, and the nominations to end, that make the pod fit on the candidate's node."""
    nominated = table.nominated.get(candidate.node, {}).values()
    outranked = [info for info in nominated if info.priority < pod.priority and profile.awaits(pod, info)]
    return EvictionPlan(candidate.node, candidate.victims, outranked, pdb_violations=candidate.num_pdb_violations)


def rejection_of(fit: Fit, profile: Profile) -> Rejection:
    """Returns the plugins that rejected the pod, so that the queue knows which events may help it.

    Some nodes are rejected only because PreFilter plugins limited the pod to other nodes. Then these PreFilter plugins
    count as rejecting the pod.
    """
    codes: dict[str, set[Code]] = {}
    for refusal, rows in zip(fit.refusals, rows_per_refusal(fit), strict=True):
        for plugin in [refusal.plugin] if refusal.plugin else fit.narrowed_by or _names(profile):
            if rows:
                codes.setdefault(plugin, set()).add(refusal.code)
    final = {plugin for plugin, plugin_codes in codes.items() if plugin_codes == {Code.UNSCHEDULABLE_AND_UNRESOLVABLE}}
    # An extender or a user's rule may reject a pod for any reason, so every event is worth a retry (kubernetes#122019).
    # A pod whose affinity matches its own labels may be placed once no other matching pod exists.
    final -= {EXTENDER, INTER_POD_AFFINITY, *(rule.name for rule in users_rules(profile))}
    return Rejection(unschedulable=frozenset(codes), unresolvable=frozenset(final))


def rejection_by_all(profile: Profile) -> Rejection:
    """Returns the rejection of a pod in a cluster without nodes. It names all plugins of the profile.

    A new node then wakes the pod if any of these plugins may accept the node. Upstream names no plugin, and therefore
    tries such pods again and again.
    """
    return Rejection(unschedulable=frozenset(_names(profile)))


def _names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]


def _statuses(decided: Chosen | Failure) -> tuple[PointStatus, PointStatus]:
    """Returns two statuses: of the last extension point before PostFilter, and of PostFilter."""
    if isinstance(decided, Chosen):
        return PointStatus.SUCCESS, PointStatus.SUCCESS
    post_filter = PointStatus.SUCCESS if decided.preemption else PointStatus.UNSCHEDULABLE
    return (PointStatus.UNSCHEDULABLE if decided.rejection.rules else PointStatus.ERROR), post_filter


def timeouts_of(profile: Profile) -> Timeouts:
    """Returns the timeouts of the profile's plugins (bindTimeoutSeconds, bindingTimeout)."""
    timeouts = Timeouts()
    for predicate in profile.predicates:
        if isinstance(predicate, VolumeBindingFilter):
            timeouts = replace(timeouts, volumes_seconds=predicate.bind_timeout_seconds)
        elif isinstance(predicate, DynamicResourcesFilter):
            timeouts = replace(timeouts, devices_seconds=predicate.binding_timeout_seconds)
    return timeouts
