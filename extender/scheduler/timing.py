"""Measures how long plugins take in decisions and binding cycles, for every hundredth pod.

Upstream measures every tenth pod (pluginMetricsSamplePercent). Here, measuring doubles the time of a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Protocol, TypeVar

from extender.engine.decision import Chosen, Failure
from extender.errors import BindingFailed, Outdated
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, PreEnqueue, Priority, Scorer, Scores, Verdict
from extender.framework.status import Refusal
from extender.runtime.clock import Clock
from extender.table import PodInfo, Table
from extender.table.labels import IntColumn, Rows

T = TypeVar("T")
EVERY = 100
PRE_ENQUEUE = "PreEnqueue"
PRE_FILTER = "PreFilter"
FILTER = "Filter"
POST_FILTER = "PostFilter"
PRE_SCORE = "PreScore"
SCORE = "Score"
RESERVE = "Reserve"
PERMIT = "Permit"
PRE_BIND = "PreBind"
BIND = "Bind"
RANK_NODES = "RankNodes"
DEFAULT_BINDER = "DefaultBinder"
_NOTHING = nullcontext()


class PointStatus(StrEnum):
    """The status of an extension point in metrics (upstream framework.Code)."""

    SUCCESS = "Success"
    SKIP = "Skip"
    UNSCHEDULABLE = "Unschedulable"
    ERROR = "Error"


class PluginTelemetry(Protocol):
    """Observes how long plugins take, with upstream's names for extension points and statuses."""

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """Observes the time that all plugins of an extension point took."""

    def plugin_executed(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """Observes the time that one plugin took at an extension point, for all nodes together."""


def status_of(error: Exception | None) -> PointStatus:
    """Returns the status of an extension point that ended with this error; None means that it succeeded."""
    if error is None:
        return PointStatus.SUCCESS
    return PointStatus.UNSCHEDULABLE if isinstance(error, (BindingFailed, Outdated)) else PointStatus.ERROR


def sample() -> Iterator[bool]:
    """Yields True for the first item and for each EVERY-th after it, False for the others. For one thread only."""
    return (number % EVERY == 0 for number in count())


class PodTimer:
    """Does nothing. Pods outside the sample get this timer, and pods in the sample get a SampledPodTimer."""

    def plugin(self, _point: str, _plugin: str) -> AbstractContextManager[None]:
        """Measures the `with` block as a call of a plugin. An error in the block decides the reported status."""
        return _NOTHING

    def passed(self, *points: str) -> None:
        """Records that the pod passed these extension points. `report` includes them even if no plugin ran there."""

    def report(self) -> None:
        """Reports the time spent at each extension point since the last call."""


UNTIMED = PodTimer()


class SampledPodTimer(PodTimer):
    """Measures the extension points after the decision, for one pod. Used by one thread at a time."""

    def __init__(self, clock: Clock, telemetry: PluginTelemetry, profile: str) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._profile = profile
        self._spent: dict[str, float] = {}
        self._statuses: dict[str, str] = {}

    @contextmanager
    def plugin(self, point: str, plugin: str) -> Iterator[None]:
        status = PointStatus.SUCCESS
        began_at = self._clock.monotonic()
        try:
            yield
        except Exception as error:
            refused = isinstance(error, Outdated) or (isinstance(error, BindingFailed) and error.plugin)
            status = PointStatus.UNSCHEDULABLE if refused else PointStatus.ERROR
            raise
        finally:
            seconds = self._clock.monotonic() - began_at
            self._telemetry.plugin_executed(plugin, point, status, seconds)
            if point != BIND:  # the binding cycle reports Bind itself, for every pod
                self._spent[point] = self._spent.get(point, 0.0) + seconds
                self._statuses[point] = status

    def passed(self, *points: str) -> None:
        for point in points:
            self._spent.setdefault(point, 0.0)

    def report(self) -> None:
        for point, seconds in self._spent.items():
            self._telemetry.extension_point(
                point, self._statuses.get(point, PointStatus.SUCCESS), self._profile, seconds
            )
        self._spent.clear()


@dataclass(frozen=True, slots=True)
class TimedPreEnqueue:
    """Runs PreEnqueue rules in their order. For a sample of the pods, measures how long all rules take together.

    The queue holds its lock during the call, so only one thread at a time calls it.
    """

    rules: Sequence[PreEnqueue]
    clock: Clock
    telemetry: PluginTelemetry
    sample: Iterator[bool]

    def refuse(self, pod: PodInfo) -> Refusal | None:
        is_measured = next(self.sample)
        began_at = self.clock.monotonic() if is_measured else 0.0
        refusal = None
        for rule in self.rules:
            if (refusal := rule.refuse(pod)) is not None:
                break
        if is_measured:
            status = PointStatus.SUCCESS if refusal is None else PointStatus.UNSCHEDULABLE
            seconds = self.clock.monotonic() - began_at
            self.telemetry.extension_point(PRE_ENQUEUE, status, pod.pod.spec.scheduler_name, seconds)
        return refusal


class ProfileTimer:
    """Measures the extension points, for a sample of the decisions. Used by one thread at a time."""

    def __init__(self, clock: Clock, telemetry: PluginTelemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._sample = sample()
        self._sampled = False
        self._spent: dict[str, float] = {}
        self._name = ""

    def begin(self, profile: Profile) -> Profile:
        """Returns the profile for the next decision, with measured rules if the decision is in the sample."""
        self._spent = {}
        self._name = profile.name
        self._sampled = next(self._sample)
        if not self._sampled:
            return profile
        return replace(
            profile,
            predicates=[_TimedPredicate(rule, self) for rule in profile.predicates],
            priorities=[
                replace(weighted, priority=_TimedPriority(weighted.priority, self)) for weighted in profile.priorities
            ],
        )

    def end(self, outcome: Chosen | Failure) -> None:
        """Reports the times of the decision. Its status belongs to the last extension point before PostFilter."""
        if not self._spent:
            return
        last = next((point for point in (SCORE, FILTER, PRE_FILTER) if point in self._spent), "")
        statuses = {last: PointStatus.SUCCESS}
        if isinstance(outcome, Failure):
            statuses[last] = PointStatus.UNSCHEDULABLE if outcome.rejection.rules else PointStatus.ERROR
            statuses[POST_FILTER] = PointStatus.SUCCESS if outcome.preemption else PointStatus.UNSCHEDULABLE
        for point, seconds in self._spent.items():
            self._telemetry.extension_point(point, statuses.get(point, PointStatus.SUCCESS), self._name, seconds)

    def post_filter(self, work: Callable[[], T]) -> tuple[T, float]:
        """Runs preemption; returns its result, and how many seconds it took."""
        return self._spend(POST_FILTER, work) if self._sampled else self._timed(work)

    def time_plugin(self, plugin: str, point: str, work: Callable[[], T], status_of: Callable[[T], str]) -> T:
        """Runs `work` as a call of the plugin, reports how long it took and its status, and returns its result."""
        result, seconds = self._spend(point, work)
        self._telemetry.plugin_executed(plugin, point, status_of(result), seconds)
        return result

    def _spend(self, point: str, work: Callable[[], T]) -> tuple[T, float]:
        result, seconds = self._timed(work)
        self._spent[point] = self._spent.get(point, 0.0) + seconds
        return result, seconds

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        began_at = self._clock.monotonic()
        return work(), self._clock.monotonic() - began_at


@dataclass(frozen=True, slots=True)
class _TimedPredicate:
    inner: Predicate
    timer: ProfileTimer

    @property
    def name(self) -> str:
        return self.inner.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        prepared = self.timer.time_plugin(self.name, PRE_FILTER, lambda: self.inner.prepare(pod, table), _status_of)
        return _TimedCheck(self.name, prepared, self.timer) if isinstance(prepared, Check) else prepared


class _TimedCheck(Check):
    def __init__(self, name: str, inner: Check, timer: ProfileTimer) -> None:
        self._name = name
        self._inner = inner
        self._timer = timer
        self.only = inner.only
        self.sees_pods = inner.sees_pods
        self.sees_own_pods_only = inner.sees_own_pods_only
        self.sees_resources_only = inner.sees_resources_only

    def refuse(self, rows: Rows) -> Verdict:
        return self._timed(lambda: self._inner.refuse(rows), rows)

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        return self._timed(lambda: self._inner.refuse_requested(rows, requested), rows)

    def _timed(self, refuse: Callable[[], Verdict], rows: Rows) -> Verdict:
        def status_of(verdict: Verdict) -> PointStatus:
            refused = sum(int(mask.sum()) for mask, _ in verdict)
            return PointStatus.UNSCHEDULABLE if refused == len(rows) else PointStatus.SUCCESS

        return self._timer.time_plugin(self._name, FILTER, refuse, status_of)


@dataclass(frozen=True, slots=True)
class _TimedPriority:
    inner: Priority
    timer: ProfileTimer

    @property
    def name(self) -> str:
        return self.inner.name

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        scorer = self.timer.time_plugin(self.name, PRE_SCORE, lambda: self.inner.prepare(pod, table, rows), _status_of)
        return None if scorer is None else _TimedScorer(self.name, scorer, self.timer)


class _TimedScorer(Scorer):
    def __init__(self, name: str, inner: Scorer, timer: ProfileTimer) -> None:
        self._name = name
        self._inner = inner
        self._timer = timer
        self.sees_pods = inner.sees_pods
        self.sees_resources_only = inner.sees_resources_only
        self.normalises = inner.normalises

    def map(self, rows: Rows) -> Scores:
        return self._timer.time_plugin(self._name, SCORE, lambda: self._inner.map(rows), lambda _: PointStatus.SUCCESS)

    def reduce(self, raw: Scores) -> Scores:
        return self._inner.reduce(raw)


def _status_of(prepared: object) -> PointStatus:
    if prepared is None:
        return PointStatus.SKIP
    return PointStatus.UNSCHEDULABLE if isinstance(prepared, Refusal) else PointStatus.SUCCESS
