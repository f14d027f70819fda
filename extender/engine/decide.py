"""Decides about one pod. This is the only place where filters, scores and preemption are put together.

    decide
      1. check the pod's nominated node alone; if it can take the pod, it is chosen
      2. run the filters over all nodes, or use a ranking that gives the same nodes; ask the other extenders
      3. an error of a filter or of an extender ends the attempt
      4. score the nodes that can take the pod, and choose one of the best
      5. if no node can take the pod: run users' PostFilter rules, then preemption; find the plugins that rejected the
         pod, and a claim that should get other devices

Random numbers, other extenders and timers are passed in, because the engine itself is deterministic.

Source: upstream schedule_one.go schedulePod, evaluateNominatedNode, selectHost, and the PostFilter that follows;
framework.FitError and Diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol, TypeGuard, TypeVar
from uuid import UUID

import numpy as np

from extender.devices.plan import DevicePlan, idle_claim, plan_devices
from extender.devices.pod_claims import NAME as DEVICES
from extender.engine.decision import (
    NO_SCORES,
    NOTHING_TO_ALLOCATE,
    NOTHING_TO_BIND,
    Chosen,
    Decision,
    EvictionPlan,
    Failure,
    Timeouts,
    rejected,
)
from extender.errors import BindingFailed, DeadlineExceeded, ExtenderError, RuleFailed
from extender.framework.annotations import choose_annotations
from extender.framework.find_fit import Fit, Scoring, find_fit, score
from extender.framework.plugin import RESERVE, error_prefix
from extender.framework.profile import ALL_NODES, CandidateLimits, Profile
from extender.framework.rankings import Best, Rankings
from extender.framework.rules import Proposal, Scores
from extender.framework.status import Code, Refusal, Rejection, failed, unschedulable
from extender.groups import GroupDecision, Tree
from extender.groups.group_preemption import GroupPreemption, Prefer
from extender.plugins.device_scoring import device_scoring_of
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.inter_pod_affinity import NAME as INTER_POD_AFFINITY
from extender.plugins.registry import users_rules
from extender.plugins.volume_binding import VolumeBindingFilter, plan_volumes
from extender.preemption.candidates import Candidate
from extender.preemption.evaluator import (
    NO_NODES,
    NO_UIDS,
    NOT_HELPFUL,
    Preemption,
    fit_message,
    preempt,
    preemption_message,
    rows_per_refusal,
)
from extender.runtime.ports import NominatedNode, Nominating
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.volumes.node_volumes import NAME as VOLUME_BINDING

EXTENDER = "Extender"
"""The plugin name of all other extenders. A pod that one of them rejected is tried again after any event."""

T = TypeVar("T")


class Scope(Enum):
    """The purpose of a decision, which determines how much it examines.

    A POD is scheduled alone. A MEMBER of a pod group searches for no victims, because the group preempts as a whole.
    EVERYTHING is for explanations: it also examines what the choice does not need, such as the other nodes if the
    nominated node can take the pod, the scores of an only node, and evictions on every node.
    """

    POD = auto()
    MEMBER = auto()
    EVERYTHING = auto()


class RandomNumbers(Protocol):
    """Draws random numbers, as random.Random does."""

    def randrange(self, stop: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


class _First:
    """Always chooses the first."""

    def randrange(self, _stop: int, /) -> int:
        return 0

    def getrandbits(self, _k: int, /) -> int:
        return 0


class OtherExtenders(Protocol):
    """Other extenders that the policy names. Their calls have timeouts of their own."""

    def __bool__(self) -> bool:
        """Returns True if there are any."""

    def filter(self, pod: PodInfo, table: Table, fit: Fit) -> None:
        """Marks in `fit` the rows that an extender rejects. Raises ExtenderError if an extender failed."""

    def prioritize(self, pod: PodInfo, table: Table, rows: Rows) -> Scores:
        """Returns what the extenders add to the score of each row."""

    def preempt(self, pod: PodInfo, table: Table, preemption: Preemption) -> Preemption:
        """Returns the preemption without the candidates that an extender rejects."""


class DecisionTimer(Protocol):
    """Measures decisions. Used by one thread at a time."""

    def begin(self, profile: Profile) -> Profile:
        """Returns the profile for the next decision; its rules may be measured."""

    def post_filter(self, work: Callable[[], T]) -> tuple[T, float]:
        """Runs preemption; returns its result, and how many seconds it took."""

    def end(self, outcome: Chosen | Failure) -> None:
        """Reports what was measured of the decision."""


class DecisionObserver(Protocol):
    """Observes every decision of the scheduling loop, in its thread. An observer must be quick and must not raise."""

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:
        """Records the decision about a pod, which was made on `table`."""

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:
        """Records the decision about a pod group, which was made on `table`."""

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:
        """Records that an error ended the attempt for a pod group."""


FIRST = _First()


@dataclass(eq=False)
class SchedulingCycle:
    """Decides about the pods of one profile. It keeps rankings of nodes, so only one thread at a time may use it.

    Attributes:
        random: chooses between nodes with the same score, and the node at which preemption starts its search.
        extenders: called for the nodes that pass the profile's filters.
        timer: measures a sample of the decisions.
        observers: called with each decision about a pod that is scheduled alone.
        passed_over: called with the error because of which the nominated node was not checked before the other nodes.
    """

    profile: Profile
    random: RandomNumbers = FIRST
    extenders: OtherExtenders | None = None
    timer: DecisionTimer | None = None
    observers: Sequence[DecisionObserver] = ()
    passed_over: Callable[[PodInfo, ExtenderError], object] = lambda _pod, _error: None

    def __post_init__(self) -> None:
        self.rankings = Rankings(self.profile)
        self.timeouts = timeouts_of(self.profile)
        self.device_scoring = device_scoring_of(self.profile)

    def schedule_pod(self, pod: PodInfo, table: Table) -> Chosen | Failure:
        """Returns the node for a waiting pod, or the reason why no node can take it; passes it to the observers.

        Raises:
            DeadlineExceeded: the table's deadline has passed. If the error is a RuleUnanswered, a rule may still be
                using `table`.
        """
        try:
            outcome = self.decide(pod, table).outcome
        except DeadlineExceeded as error:
            for observer in self.observers:
                observer.attempted(pod, table, Failure(str(error)))
            raise
        for observer in self.observers:
            observer.attempted(pod, table, outcome)
        return outcome

    def decide_member(
        self, pod: PodInfo, table: Table, rows: Rows | None = None, prefer: Prefer | None = None
    ) -> Chosen | Failure:
        """Decides about a member of a group; in `table`, the members before it are on their nodes. See `decide`."""
        return self.decide(pod, table, rows, Scope.MEMBER, prefer).outcome

    def decide(
        self,
        pod: PodInfo,
        table: Table,
        rows: Rows | None = None,
        scope: Scope = Scope.POD,
        prefer: Prefer | None = None,
    ) -> Decision:
        """Returns the decision about a pod that is on no node of the table.

        `rows` are the nodes to consider; None means all nodes. Of those that can take the pod, only the ones that
        `prefer` returns are scored. Raises the same errors as `schedule_pod`.
        """
        rules = self.profile if self.timer is None else self.timer.begin(self.profile)
        rows = table.nodes.rows if rows is None else rows
        decision = _Attempt(self, rules, pod, table, rows, scope, prefer).decide()
        if self.timer is not None:
            self.timer.end(decision.outcome)
        return decision

    def filter(self, pod: PodInfo, table: Table, rows: Rows) -> tuple[Fit, Rows]:
        """Runs only steps 1 to 3; returns what each row answered, and the rows that can take the pod.

        No row can take the pod if a filter ended in an error on any row, unless its nominated node can take it. Raises
        DeadlineExceeded.
        """
        attempt = _Attempt(self, self.profile, pod, table, rows, Scope.EVERYTHING)
        nominated = attempt.fit_on_nominated_node()
        fit = attempt.fit(nominated)
        return fit, fit.feasible if fit.error is None or _fits(nominated) else fit.feasible[:0]

    def score(self, pod: PodInfo, table: Table, rows: Rows) -> Scoring:
        """Runs only the scores of step 4, for these rows."""
        return score(self.profile, pod, table, rows)

    def preempt(
        self,
        pod: PodInfo,
        table: Table,
        fit: Fit,
        rows: Rows | None = None,
        limits: CandidateLimits = ALL_NODES,
        spared: Mapping[str, Sequence[str]] = NO_UIDS,
    ) -> Preemption:
        """Runs only preemption, even if the profile has none; see `preemption.preempt`."""
        return preempt(self.profile, pod, table, fit, limits, rows=rows, spared=spared)


@dataclass(slots=True)
class _Attempt:
    """One decision. `rules` is the profile, perhaps with rules that measure themselves."""

    cycle: SchedulingCycle
    rules: Profile
    pod: PodInfo
    table: Table
    rows: Rows
    scope: Scope
    prefer: Prefer | None = None

    def decide(self) -> Decision:
        if not len(self.rows):
            return self._decision(Failure(NO_NODES, rejection_by_all(self.cycle.profile)), Fit(self.rows))
        nominated = self.fit_on_nominated_node()
        if nominated is not None and self.scope is not Scope.EVERYTHING and len(nominated.feasible):
            return self._chosen(nominated, _unscored(nominated.rows), int(nominated.rows[0]))
        try:
            if (best := self._ranked()) is not None:
                return self._chosen(Fit(best.rows), _unscored(best.rows), self._any_of(best.rows, only=best.only))
            fit = self.fit(nominated)
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            return self._decision(Failure(str(error)), Fit(self.rows), cause=error)
        if not _fits(nominated) and fit.error is not None:
            return self._decision(Failure(fit_message(fit)), fit)
        feasible = fit.feasible
        if self.prefer is not None and len(feasible) > 1:
            feasible = self.prefer(feasible)
        return self._scored(fit, feasible, nominated) if len(feasible) else self._fits_nowhere(fit)

    # ---- filters

    def fit_on_nominated_node(self) -> Fit | None:
        """Checks the pod's nominated node alone, before the other nodes (upstream evaluateNominatedNode).

        Returns None if the nominated node is not among the rows, or if the check failed. As in upstream, the nominated
        node is checked even if PreFilter restricts the pod to other nodes.
        """
        row = self.table.nodes.row_of.get(self.pod.pod.status.nominated_node_name)
        if row is None or row not in self.rows:
            return None
        try:
            return self._find_fit(np.array([row], np.intp), narrowed=False)
        except DeadlineExceeded:
            raise
        except ExtenderError as error:
            self.cycle.passed_over(self.pod, error)
            return None

    def fit(self, nominated: Fit | None) -> Fit:
        """Returns which rows can take the pod, after the check of the nominated node alone.

        Raises:
            ExtenderError: an extender that is not ignorable has failed, or a rule.
        """
        fit = self._find_fit(self.rows)
        if nominated is None:
            return fit
        if len(nominated.feasible):
            fit.accept(nominated.rows)
        elif fit.error is None and not len(fit.feasible):
            fit.add_earlier(nominated)
        return fit

    def _find_fit(self, rows: Rows, *, narrowed: bool = True) -> Fit:
        fit = find_fit(self.rules, self.pod, self.table, rows, narrowed=narrowed)
        if self.cycle.extenders and fit.error is None:
            with self.table.deadline.paused():
                self.cycle.extenders.filter(self.pod, self.table, fit)
        return fit

    def _ranked(self) -> Best | None:
        """Returns the rows among which steps 2 to 4 would choose; None if no kept ranking is valid."""
        is_limited = self.scope is Scope.EVERYTHING or self.prefer is not None
        if self.cycle.extenders or is_limited or len(self.rows) < len(self.table.nodes.rows):
            return None
        return self.cycle.rankings.best(self.pod, self.table)

    # ---- scores

    def _scored(self, fit: Fit, feasible: Rows, nominated: Fit | None) -> Decision:
        """Chooses one of the best rows, or the nominated one if it fits (upstream prioritizeNodes, selectHost).

        As in kube-scheduler, one row is scored too if it is the only one that `prefer` returned.
        """
        has_choice = not _fits(nominated) and len(fit.feasible) > 1
        scoring = _unscored(feasible)
        if has_choice or self.scope is Scope.EVERYTHING:
            try:
                scoring = self._score(feasible)
            except RuleFailed as error:
                if has_choice:
                    fit.refuse(np.flatnonzero(np.isin(fit.rows, feasible)), failed(error.plugin, str(error)))
                    return self._decision(Failure(str(error)), fit)
        if _fits(nominated):
            return self._chosen(fit, scoring, int(nominated.rows[0]))
        best: Rows = feasible[scoring.total == scoring.total.max()] if has_choice else feasible
        return self._chosen(fit, scoring, self._any_of(best, only=not has_choice))

    def _score(self, feasible: Rows) -> Scoring:
        scoring = score(self.rules, self.pod, self.table, feasible)
        if not self.cycle.extenders:
            return scoring
        with self.table.deadline.paused():
            added = self.cycle.extenders.prioritize(self.pod, self.table, feasible)
        return scoring._replace(total=scoring.total + added)

    def _any_of(self, best: Rows, *, only: bool) -> int:
        """Returns one of the best rows. Draws no random number if only one row could take the pod."""
        return int(best[0 if only else self.cycle.random.randrange(len(best))])

    def _chosen(self, fit: Fit, scoring: Scoring, row: int) -> Decision:
        """Returns the decision for this row, with the plans for the pod's volumes and devices there."""
        pod, table, reserving = self.pod, self.table, self.cycle.profile.reserving
        volumes = plan_volumes(pod, table, row) if VOLUME_BINDING in reserving else NOTHING_TO_BIND
        if isinstance(volumes, Refusal):
            return self._decision(
                Failure(error_prefix(RESERVE, VOLUME_BINDING) + ", ".join(volumes.reasons)), fit, scoring
            )
        devices = self._plan_devices(row) if DEVICES in reserving else NOTHING_TO_ALLOCATE
        if isinstance(devices, Refusal):
            message = error_prefix(RESERVE, DEVICES) + ", ".join(devices.reasons)
            return self._decision(Failure(message), fit, scoring)
        try:
            annotations = choose_annotations(self.cycle.profile.bind, pod, row, table)
        except BindingFailed as error:
            refusal = unschedulable(error.plugin, str(error)) if error.plugin else failed("", str(error))
            fit.refuse(np.flatnonzero(fit.rows == row), refusal)
            return self._decision(rejected(error), fit)
        chosen = Chosen(table.nodes.names[row], volumes, devices, self.cycle.timeouts, annotations)
        return self._decision(chosen, fit, scoring)

    def _plan_devices(self, row: int) -> DevicePlan | Refusal:
        scoring = self.cycle.device_scoring
        find_best = scoring.find_best(self.pod, self.table, row) if scoring is not None else None
        return plan_devices(self.pod, self.table, row, self._new_share_id, find_best)

    def _new_share_id(self) -> str:
        return str(UUID(int=self.cycle.random.getrandbits(128), version=4))

    # ---- what helps a pod that fits nowhere

    def _fits_nowhere(self, fit: Fit) -> Decision:
        failure = Failure(fit_message(fit), rejection_of(fit, self.cycle.profile))
        if self.scope is Scope.MEMBER:
            return self._decision(replace(failure, nominated_node=Nominating.KEEP), fit)
        failure = replace(failure, idle_claim=idle_claim(self.pod, self.table, fit))
        reasons = []
        for proposal in self._proposals(fit):
            if proposal.node_name:
                return self._decision(replace(failure, nominated_node=proposal.node_name), fit)
            reasons += [proposal.reason] if proposal.reason else []
        limits = self.cycle.profile.preemption
        if limits is None:
            return self._decision(replace(failure, message=_with_reasons(failure.message, reasons)), fit)
        return self._preempt(fit, failure, reasons, limits)

    def _proposals(self, fit: Fit) -> Iterator[Proposal]:
        """Yields what users' PostFilter rules propose, in the order of the rules."""
        if rules := self.cycle.profile.post_filter:
            refused = {self.table.nodes.names[row]: ", ".join(refusal.reasons) for row, refusal in fit.refused()}
            for rule in rules:
                yield rule.propose(self.pod, refused, self.table)

    def _preempt(self, fit: Fit, failure: Failure, reasons: Sequence[str], limits: CandidateLimits) -> Decision:
        def search() -> Preemption:
            return self._search_victims(fit, limits)

        timer, pod, table = self.cycle.timer, self.pod, self.table
        preemption, seconds = (search(), 0.0) if timer is None else timer.post_filter(search)
        outcome = preemption_message(fit, preemption, pod, table)
        plan: EvictionPlan | None = None
        node: NominatedNode = Nominating.CLEAR if preemption.reason == NOT_HELPFUL else Nominating.KEEP
        if preemption.nominated_node is not None:
            plan = eviction_plan(self.cycle.profile, pod, table, preemption.candidates[preemption.nominated_node])
            node, reasons = plan.node_name, ()
        message = _with_reasons(failure.message, [*reasons, outcome])
        failure = replace(failure, message=message, preemption=plan, nominated_node=node, search_seconds=seconds)
        return self._decision(failure, fit, preemption=preemption)

    def _search_victims(self, fit: Fit, limits: CandidateLimits) -> Preemption:
        cycle, pod, table = self.cycle, self.pod, self.table
        if self.scope is Scope.EVERYTHING:
            return preempt(cycle.profile, pod, table, fit)
        preemption = preempt(cycle.profile, pod, table, fit, limits, cycle.random.randrange(len(fit.rows)))
        if not cycle.extenders:
            return preemption
        with table.deadline.paused():
            return cycle.extenders.preempt(pod, table, preemption)

    def _decision(
        self,
        outcome: Chosen | Failure,
        fit: Fit,
        scoring: Scoring = NO_SCORES,
        preemption: Preemption | None = None,
        cause: ExtenderError | None = None,
    ) -> Decision:
        return Decision(self.pod.pod, self.table.nodes.names, outcome, fit, scoring, preemption, cause)


def _fits(nominated: Fit | None) -> TypeGuard[Fit]:
    return nominated is not None and len(nominated.feasible) > 0


def _unscored(rows: Rows) -> Scoring:
    return Scoring(rows, np.zeros(len(rows), np.int64), ())


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


def timeouts_of(profile: Profile) -> Timeouts:
    """Returns the timeouts of the profile's plugins (bindTimeoutSeconds, bindingTimeout)."""
    timeouts = Timeouts()
    for predicate in profile.predicates:
        if isinstance(predicate, VolumeBindingFilter):
            timeouts = replace(timeouts, volumes_seconds=predicate.bind_timeout_seconds)
        elif isinstance(predicate, DynamicResourcesFilter):
            timeouts = replace(timeouts, devices_seconds=predicate.binding_timeout_seconds)
    return timeouts
