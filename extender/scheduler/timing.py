"""Times the plugins of every hundredth pod, in its decision and after it (upstream: of every tenth,
pluginMetricsSamplePercent)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, TypeVar

from extender.errors import BindingFailed, Outdated
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, Priority, Scorer, Scores, Verdict
from extender.framework.status import Refusal
from extender.runtime.clock import Clock
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import IntColumn, Rows

T = TypeVar("T")
EVERY = 100  # a timed decision costs twice as much as another
SUCCESS, SKIP, UNSCHEDULABLE, ERROR = "Success", "Skip", "Unschedulable", "Error"
PRE_FILTER, FILTER, POST_FILTER = "PreFilter", "Filter", "PostFilter"
PRE_SCORE, SCORE = "PreScore", "Score"
RESERVE, PERMIT, PRE_BIND, BIND = "Reserve", "Permit", "PreBind", "Bind"
DEFAULT_BINDER = "DefaultBinder"
_NOTHING = nullcontext()


class PluginTelemetry(Protocol):
    """The metrics of plugins; points and statuses are upstream's names."""

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """Observes the time that an extension point took with all of its plugins."""

    def plugin_executed(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """Observes the time that a plugin took at an extension point, for all nodes."""


def sample() -> Iterator[bool]:
    """Tells of each of many whether it is to be timed: the first, and then every hundredth; for one thread."""
    return (number % EVERY == 0 for number in count())


class PodTimer:
    """Times what a pod passes once a node is chosen; of most pods, as here, nothing."""

    def plugin(self, _point: str, _plugin: str) -> AbstractContextManager[None]:
        """Times what a plugin does at a point; an error in the block says how that ends."""
        return _NOTHING

    def passed(self, *points: str) -> None:
        """Counts the points as passed, also where no plugin has anything to do there."""

    def tell(self) -> None:
        """Tells the time of each point since the last call."""


UNTIMED = PodTimer()


class SampledPodTimer(PodTimer):
    """Times a pod, which one thread at a time is busy with."""

    def __init__(self, clock: Clock, telemetry: PluginTelemetry, profile: str) -> None:
        self._clock, self._telemetry, self._profile = clock, telemetry, profile
        self._spent: dict[str, float] = {}
        self._statuses: dict[str, str] = {}

    @contextmanager
    def plugin(self, point: str, plugin: str) -> Iterator[None]:
        status, began_at = SUCCESS, self._clock.monotonic()
        try:
            yield
        except Exception as error:
            refused = isinstance(error, Outdated) or (isinstance(error, BindingFailed) and error.plugin)
            status = UNSCHEDULABLE if refused else ERROR
            raise
        finally:
            seconds = self._clock.monotonic() - began_at
            self._telemetry.plugin_executed(plugin, point, status, seconds)
            self._spent[point], self._statuses[point] = self._spent.get(point, 0.0) + seconds, status

    def passed(self, *points: str) -> None:
        for point in points:
            self._spent.setdefault(point, 0.0)

    def tell(self) -> None:
        for point, seconds in self._spent.items():
            self._telemetry.extension_point(point, self._statuses.get(point, SUCCESS), self._profile, seconds)
        self._spent.clear()


class ProfileTimer:
    """Times decisions, for one thread at a time."""

    def __init__(self, clock: Clock, telemetry: PluginTelemetry) -> None:
        self._clock, self._telemetry = clock, telemetry
        self._sample, self._sampled = sample(), False
        self._spent: dict[str, float] = {}
        self._name = ""

    def begin(self, profile: Profile) -> Profile:
        """Returns the profile to decide by: the same rules, timed if it is their turn."""
        self._spent = {}
        self._name, self._sampled = profile.name, next(self._sample)
        if not self._sampled:
            return profile
        return replace(
            profile,
            predicates=[_TimedPredicate(each, self) for each in profile.predicates],
            priorities=[replace(each, priority=_TimedPriority(each.priority, self)) for each in profile.priorities],
        )

    def end(self, status: str, post_filter_status: str) -> None:
        """Ends the decision; `status` is that of the last point that filters or scores, those before it succeeded."""
        if not self._spent:
            return
        last = next((point for point in (SCORE, FILTER, PRE_FILTER) if point in self._spent), "")
        statuses = {last: status, POST_FILTER: post_filter_status}
        for point, seconds in self._spent.items():
            self._telemetry.extension_point(point, statuses.get(point, SUCCESS), self._name, seconds)

    def time_point(self, point: str, work: Callable[[], T]) -> T:
        """Returns what `work` does, and times it as the whole of a point if it is this decision's turn."""
        return self._spend(point, work)[0] if self._sampled else work()

    def time_plugin(self, plugin: str, point: str, work: Callable[[], T], status_of: Callable[[T], str]) -> T:
        """Returns what `work` does, and tells its time and status."""
        made, seconds = self._spend(point, work)
        self._telemetry.plugin_executed(plugin, point, status_of(made), seconds)
        return made

    def _spend(self, point: str, work: Callable[[], T]) -> tuple[T, float]:
        began_at = self._clock.monotonic()
        made = work()
        seconds = self._clock.monotonic() - began_at
        self._spent[point] = self._spent.get(point, 0.0) + seconds
        return made, seconds


@dataclass(frozen=True, slots=True)
class _TimedPredicate:
    inner: Predicate
    timer: ProfileTimer

    @property
    def name(self) -> str:
        return self.inner.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        made = self.timer.time_plugin(self.name, PRE_FILTER, lambda: self.inner.prepare(pod, table), _prepared)
        return _TimedCheck(self.name, made, self.timer) if isinstance(made, Check) else made


class _TimedCheck(Check):
    def __init__(self, name: str, inner: Check, timer: ProfileTimer) -> None:
        self._name, self._inner, self._timer = name, inner, timer
        self.only, self.sees_pods = inner.only, inner.sees_pods
        self.sees_own_pods_only, self.sees_resources_only = inner.sees_own_pods_only, inner.sees_resources_only

    def refuse(self, rows: Rows) -> Verdict:
        return self._timed(lambda: self._inner.refuse(rows), rows)

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        return self._timed(lambda: self._inner.refuse_requested(rows, requested), rows)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict | None:
        return self._inner.filter_with_pods_removed(rows, gone)

    def _timed(self, refuse: Callable[[], Verdict], rows: Rows) -> Verdict:
        return self._timer.time_plugin(
            self._name,
            FILTER,
            refuse,
            lambda verdict: UNSCHEDULABLE if sum(int(mask.sum()) for mask, _ in verdict) == len(rows) else SUCCESS,
        )


@dataclass(frozen=True, slots=True)
class _TimedPriority:
    inner: Priority
    timer: ProfileTimer

    @property
    def name(self) -> str:
        return self.inner.name

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        made = self.timer.time_plugin(self.name, PRE_SCORE, lambda: self.inner.prepare(pod, table, rows), _prepared)
        return None if made is None else _TimedScorer(self.name, made, self.timer)


class _TimedScorer(Scorer):
    def __init__(self, name: str, inner: Scorer, timer: ProfileTimer) -> None:
        self._name, self._inner, self._timer = name, inner, timer
        self.sees_pods, self.sees_resources_only = inner.sees_pods, inner.sees_resources_only
        self.normalises = inner.normalises

    def map(self, rows: Rows) -> Scores:
        return self._timer.time_plugin(self._name, SCORE, lambda: self._inner.map(rows), lambda _: SUCCESS)

    def reduce(self, raw: Scores) -> Scores:
        return self._inner.reduce(raw)


def _prepared(made: object) -> str:
    return SKIP if made is None else UNSCHEDULABLE if isinstance(made, Refusal) else SUCCESS
