"""Counts the events of a process in metrics of prometheus-client. `series` has the tables of all series.

The metrics of the scheduling loop have kube-scheduler's names and buckets; each attempt also gets a line in the log.

Log lines of many threads are collected and written a moment later, many at once. That takes a fraction of the time per
line, because the processor's caches are still warm, and a scheduler need not wait for the line with its answer.
"""

from __future__ import annotations

import atexit
import logging
import platform
import threading
import traceback
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from extender.cache.debugger import TABLE
from extender.runtime.clock import Clock
from extender.runtime.ports import LONG_AGO, Telemetry
from extender.runtime.process import PAUSES, product_commit
from extender.runtime.threads import Ticker
from extender.scheduler.scheduler_ports import Attempt, GroupResult, SchedulerTelemetry
from extender.table.features import DEFAULT_FEATURES, Behaviours
from extender.web.log import Traces, inform
from extender.web.series import ALL_SERIES, BEFORE_ENTITIES, SCHEDULER_SERIES, SERIES, Series, as_in

_log = logging.getLogger(__name__)
T = TypeVar("T")
PAUSE_SECONDS = 0.1


# Switched off, because series that end with _created are a third of all series and are not used.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client has no annotations for it

_MOST_SAID = 1000  # errors about objects in the log; a bug may meet a million objects
MOST_RULE_SERIES = 200
"""The most pairs of a user's rule and a name that get series of their own, because each takes memory forever."""

Sizes = Callable[[], Mapping[str, int]]
Leading = Callable[[], Mapping[str, bool]]
"""Returns {name of the lease: True if this process leads}; {} without an election."""


class Metrics(Telemetry):
    """Implements runtime.ports.Telemetry: counts the events of one process in Prometheus series."""

    def __init__(self, clock: Clock, version: str, series: Mapping[str, Series] = SERIES) -> None:
        self.registry = registry = CollectorRegistry()
        self._clock = clock
        self._version = version
        self._synced_at: dict[str, float] = {}
        self._withdrawn_at: dict[str, float] = {}
        self._rule_names: set[tuple[str, str]] = set()
        self._said: set[tuple[str, ...]] = set()  # the errors in the log: task, type, place, object
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._register(series.values())
        # prometheus-client takes a lock for each look-up of a series. The cache looks each series up only once.
        self._counter = cache(partial(_child, self._counters))
        self._histogram = cache(partial(_child, self._histograms))
        self._policy_is_current = self._gauge("extender_policy_last_reload_successful")
        self._stuck_calls = self._gauge("extender_rule_calls_stuck")
        self._policy_read_at = self._gauge("extender_policy_last_reload_success_timestamp_seconds")
        self._policy_is_current.set(1)
        self._policy_read_at.set(clock.now())
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def _register(self, series: Iterable[Series]) -> None:
        """Adds the counters and histograms among these metrics. Each gauge computes its value at a scrape."""
        for row in series:
            if row.kind == "counter":
                self._counters[row.name] = Counter(row.name, row.help, row.labels, registry=self.registry)
            elif row.kind == "histogram":
                self._histograms[row.name] = Histogram(
                    row.name, row.help, row.labels, buckets=row.buckets, registry=self.registry
                )

    def _replace(self, series: Sequence[Series]) -> None:
        """Registers these metrics again, with other labels. What they have counted is lost."""
        families = self._counters | self._histograms
        for row in series:
            if row.name in families:
                self.registry.unregister(families[row.name])
        self._register(series)

    def observe(self, sizes: Sizes, leading: Leading = dict) -> None:
        """Registers two functions that are called at each scrape.

        Args:
            sizes: returns the number of objects in the cache, {"nodes": 5000, "pods": 30000, "assumed_pods": 3}.
            leading: returns which leases this process holds.
        """
        build = self._version, product_commit(), platform.python_version()

        def collect() -> Iterator[GaugeMetricFamily]:
            yield gauge(SERIES["extender_cache_size"], sizes())
            yield gauge(SERIES["extender_watch_staleness_seconds"], self.staleness())
            leases = leading()
            yield gauge(SERIES["extender_leader"], leases)
            yield gauge(SERIES["leader_election_master_status"], leases)
            yield gauge(SERIES["extender_gc_longest_pause_seconds"], {(): PAUSES.longest_seconds})
            yield gauge(SERIES["extender_build_info"], {build: 1})

        self.registry.register(AtScrape(collect))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics in the format that the `Accept` header names, and the content type of that format."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def called(self, verb: str, result: str, seconds: float) -> None:
        self._histogram("extender_verb_duration_seconds", verb, result).observe(seconds)

    def rejected(self, status: int) -> None:
        """Counts a request that was answered with this status, 400 or above."""
        self._counter("extender_rejected_requests_total", str(status)).inc()

    def lock_waited(self, caller: str, seconds: float) -> None:
        self._histogram("extender_lock_wait_seconds", caller).observe(seconds)

    def refused(self, plugin: str, nodes: int) -> None:
        self._counter("extender_refused_nodes_total", plugin).inc(nodes)

    def bound(self, result: str) -> None:
        self._counter("extender_binds_total", result).inc()

    def group_planned(self, result: str) -> None:
        self._counter("extender_group_plans_total", result).inc()

    def plan_dropped(self, reason: str) -> None:
        self._counter("extender_group_plans_dropped_total", reason).inc()

    def quorum_refused(self, reason: str, members: int) -> None:
        self._counter("extender_gang_binds_refused_total", reason).inc(members)

    def watch_event(self, kind: str, event: str) -> None:
        self._counter("extender_watch_events_total", kind, event).inc()

    def synced(self, kind: str, as_of: float) -> None:
        self._synced_at[kind] = max(as_of, self._synced_at.get(kind, as_of))

    def relisted(self, kind: str) -> None:
        self._counter("extender_relists_total", kind).inc()

    def withdrawn(self, kind: str) -> None:
        self._withdrawn_at[kind] = self._clock.monotonic()

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        self._counter("extender_cache_differences_total", kind).inc()
        if kind == TABLE:
            _log.error("computed values were wrong, computing them again object=%r difference=%r", key, how)
        else:
            _log.error("cache corrected, it differed from the API server kind=%s key=%s difference=%r", kind, key, how)

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """Counts a request to the API server. `code` is the status of the answer, or `<error>`."""
        self._counter("rest_client_requests_total", code, method, host).inc()
        self._histogram("rest_client_request_duration_seconds", method, host).observe(seconds)

    def write_dropped(self, kind: str) -> None:
        """Counts an event or a status that is not written, because too many wait or it failed too often."""
        self._counter("extender_dropped_writes_total", kind).inc()

    def not_recorded(self, kind: str, count: int) -> None:
        """Counts changes or decisions that the recorder has dropped."""
        self._counter("extender_not_recorded_total", kind).inc(count)

    def rule_failed(self, rule: str) -> None:
        self._counter("extender_rule_failures_total", rule).inc()

    def rule_calls_stuck(self, calls: int) -> None:
        self._stuck_calls.set(calls)

    def rule_counted(self, rule: str, name: str, amount: float) -> None:
        self._counter("extender_rule_events_total", rule, self._rule_series(rule, name)).inc(amount)

    def rule_observed(self, rule: str, name: str, value: float) -> None:
        self._histogram("extender_rule_values", rule, self._rule_series(rule, name)).observe(value)

    def _rule_series(self, rule: str, name: str) -> str:
        """Returns the name, or `other` if the rules have used MOST_RULE_SERIES names already."""
        if (rule, name) not in self._rule_names and len(self._rule_names) >= MOST_RULE_SERIES:
            return "other"
        self._rule_names.add((rule, name))
        return name

    def preempted_for_rules(self, victims: int) -> None:
        """Counts pods that `extender serve` evicted to make room for a pod that only users' rules had refused."""
        self._counter("extender_preemption_victims_total").inc(victims)

    def policy_reloaded(self, *, succeeded: bool) -> None:
        self._counter("extender_policy_reloads_total", "success" if succeeded else "failure").inc()
        self._policy_is_current.set(succeeded)
        if succeeded:
            self._policy_read_at.set(self._clock.now())

    def unreadable(self, kind: str, key: str, why: str) -> None:
        self._counter("extender_unreadable_objects_total", kind).inc()
        _log.warning("object left out of the cache kind=%s key=%s reason=%r", kind, key, why)

    def set_aside(self, task: str, item: str, error: Exception) -> None:
        """Counts and logs the error: its traceback once, then one line for each object, `_MOST_SAID` at most."""
        self._counter("extender_set_aside_total", task).inc()
        place = task, type(error).__name__, _raised_at(error)
        if len(self._said) < _MOST_SAID and (*place, item) not in self._said:
            known = place in self._said
            self._said |= {place, (*place, item)}
            traced = None if known else error
            _log.error("object set aside task=%s object=%s error=%r", task, item or "unknown", error, exc_info=traced)

    def task_failed(self, task: str, error: BaseException) -> None:
        """Counts and logs an error that a background task has raised; its next run goes on. See threads.OnError."""
        if isinstance(error, Exception):
            self.set_aside(task, "", error)

    def staleness(self) -> Mapping[str, float]:
        """Returns, for each served kind, the seconds since the cache was last known to equal the API server."""
        now, withdrawn_at = self._clock.monotonic(), self._withdrawn_at
        return {
            kind: now - synced_at
            for kind, synced_at in self._synced_at.copy().items()
            # leaves out a kind that was removed from the API and has not been listed since
            if synced_at > withdrawn_at.get(kind, LONG_AGO)
        }

    def _gauge(self, name: str) -> Gauge:
        return Gauge(name, SERIES[name].help, registry=self.registry)


def _raised_at(error: Exception) -> str:
    """Returns the file and line where the error was raised."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[0].filename}:{frames[0].lineno}" if frames else ""


Family = TypeVar("Family", Counter, Histogram)


def _child(families: Mapping[str, Family], name: str, *labels: str) -> Family:
    """Returns the series of the metric `name` with these label values; the metric itself if it has no labels."""
    return families[name].labels(*labels) if labels else families[name]


class AtScrape(Collector):
    """Gauges whose values are computed at each scrape."""

    def __init__(self, collect: Callable[[], Iterator[GaugeMetricFamily]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return self._collect()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # registering the collector must not read the values, which may not exist yet


def gauge(series: Series, values: Mapping[Any, float]) -> GaugeMetricFamily:
    """Returns the metric with one value for each value of its label, or for each tuple of its labels' values."""
    family = GaugeMetricFamily(series.name, series.help, labels=series.labels)
    for labels, value in values.items():
        family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family


class BatchedNotifier(Generic[T]):
    """Calls `notify` with all items of the last `PAUSE_SECONDS`, in the order in which they were noted.

    Before `start` it calls `notify` at once for each item. Only SIGKILL loses items; at any other exit `notify` gets
    the remaining ones.
    """

    def __init__(self, notify: Callable[[Sequence[T]], object]) -> None:
        self._notify = notify
        self._items: deque[T] = deque()
        self._notifying = threading.Lock()
        self._stopping = threading.Event()
        self._started = False
        self._awake = False
        self._ticker = Ticker("notifier", 0, self._notify_soon)

    def note(self, item: T) -> None:
        """Adds an item, which `notify` will get soon."""
        self._items.append(item)
        if not self._started:
            self.catch_up()
        elif not self._awake:
            self._awake = True
            self._ticker.wake()

    def catch_up(self) -> None:
        """Calls `notify` now with the items noted so far."""
        with self._notifying:
            items = [self._items.popleft() for _ in range(len(self._items))]
            if not items:
                return
            try:
                self._notify(items)
            except Exception:
                _log.exception("reporting calls failed, some may be missing in metrics and log calls=%d", len(items))

    def start(self) -> None:
        """Starts the thread. Call it in the worker process, because threads do not survive a fork."""
        self._started = True
        atexit.register(self.catch_up)
        self._ticker.start()

    def stop(self) -> None:
        """Ends the thread, and calls `notify` with the remaining items. Later items are passed to `notify` at once."""
        self._started = False
        self._stopping.set()
        self._ticker.stop()
        self.catch_up()
        atexit.unregister(self.catch_up)

    def _notify_soon(self) -> None:
        self._stopping.wait(PAUSE_SECONDS)
        self._awake = False  # reset before `catch_up`, so that an item noted from here on wakes the thread again
        self.catch_up()


_LONGEST_REASON = 1024
_MANY_ATTEMPTS = 15


def _fields(attempt: Attempt) -> dict[str, object]:
    pod = attempt.pod
    fields: dict[str, object] = {"pod": pod.key, "uid": pod.uid, "profile": pod.spec.scheduler_name}
    fields |= {"attempt": attempt.number, "result": attempt.result, "ms": round(attempt.seconds * 1e3, 3)}
    if attempt.node_name:
        fields["node"] = attempt.node_name
    if attempt.message:
        fields["error"] = attempt.message[:_LONGEST_REASON]
    return fields


class Waiting(NamedTuple):
    """Functions that count pods in the queue, and writes and tasks that have not begun. They are called at each scrape.

    Attributes:
        pending: counts pods by queue: {"active": 3, "backoff": 0, "unschedulable": 1, "gated": 0}.
        entities: counts single pods and root groups by (queue, kind: pod, podgroup or compositepodgroup).
        refused: counts pods by (plugin that refused them, profile).
        tasks: counts writes and tasks that have not begun by kind: {"statuses": 0, "events": 7, "binds": 2, ...}.
    """

    pending: Callable[[], Mapping[str, int]]
    entities: Callable[[], Mapping[tuple[str, ...], int]]
    refused: Callable[[], Mapping[tuple[str, ...], int]]
    tasks: Callable[[], Mapping[str, int]]


class SchedulerMetrics(Metrics, SchedulerTelemetry):
    """The metrics of the scheduling loop.

    Attributes:
        attempt_log: logs attempts to schedule a pod. After `start` it writes in a thread, so that scheduling need not
            wait.
    """

    def __init__(self, clock: Clock, version: str) -> None:
        super().__init__(clock, version, ALL_SERIES)
        self.attempt_log = BatchedNotifier[tuple[float, Attempt]](self._log_attempts)
        self._traces = Traces()
        self._has_entities = True
        self._series: Mapping[str, Series] = ALL_SERIES
        self.follow(DEFAULT_FEATURES.behaviours)

    def follow(self, behaviours: Behaviours) -> None:
        """Gives the metrics the labels that they have in a version of Kubernetes. Called before anything is counted.

        If the version changes while the process runs, the labels stay, because a counter cannot change them.
        """
        self._has_entities = behaviours.metrics_have_entities
        self._series = as_in(behaviours)
        self._replace([self._series[name] for name in BEFORE_ENTITIES])

    def observe_queue(self, waiting: Waiting) -> None:
        """Adds the gauges whose values the functions in `waiting` compute at each scrape."""

        def collect() -> Iterator[GaugeMetricFamily]:
            yield gauge(SCHEDULER_SERIES["scheduler_pending_pods"], waiting.pending())
            yield gauge(self._series["scheduler_queued_entities"], self._entities(waiting.entities()))
            yield gauge(SCHEDULER_SERIES["scheduler_unschedulable_pods"], waiting.refused())
            yield gauge(SCHEDULER_SERIES["workqueue_depth"], waiting.tasks())

        self.registry.register(AtScrape(collect))

    def _entities(self, found: Mapping[tuple[str, ...], int]) -> Mapping[tuple[str, ...], int]:
        counts = Counts[tuple[str, ...]]()
        for (queue, entity), count in found.items():
            counts[queue, self._entity(entity)] += count
        return counts

    def _entity(self, entity: str) -> str:
        """Returns the kind of an entity of the queue; before Kubernetes 1.38, a tree is a podgroup."""
        return entity if self._has_entities or entity == "pod" else "podgroup"

    def _add(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Counts with those of the labels that the metric has in this version."""
        self._counter(name, *(labels[label] for label in self._series[name].labels)).inc(amount)

    def _observe(self, name: str, value: float, /, **labels: str) -> None:
        """Observes with those of the labels that the metric has in this version."""
        self._histogram(name, *(labels[label] for label in self._series[name].labels)).observe(value)

    def incoming(self, queue: str, event: str) -> None:
        self._counter("scheduler_queue_incoming_pods_total", queue, event).inc()

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        self._counter("scheduler_queue_incoming_entities_total", queue, event, self._entity(entity)).inc()

    def moved(self, pod_key: str, origin: str, tier: str, event: str) -> None:
        """Logs the move at level debug, so that the log shows the pod's way through the queues."""
        _log.debug("pod moved pod=%s from=%s to=%s event=%s", pod_key, origin or "none", tier, event)

    def attempted(self, attempt: Attempt) -> None:
        labels = attempt.result, attempt.pod.spec.scheduler_name
        self._counter("scheduler_schedule_attempts_total", *labels).inc()
        self._histogram("scheduler_scheduling_attempt_duration_seconds", *labels).observe(attempt.seconds)
        if _log.isEnabledFor(logging.INFO):
            self.attempt_log.note((self._clock.now(), attempt))

    def _log_attempts(self, attempts: Sequence[tuple[float, Attempt]]) -> None:
        inform(_log, "attempt", [self._traces.trace(_fields(attempt), ended_at) for ended_at, attempt in attempts])

    def decided(self, seconds: float) -> None:
        self._histogram("scheduler_scheduling_algorithm_duration_seconds").observe(seconds)

    def spent(self, cost: str, seconds: float) -> None:
        self._counter("extender_attempt_seconds_total", cost).inc(seconds)

    def scheduled(self, attempts: int, seconds: float) -> None:
        self._histogram("scheduler_pod_scheduling_attempts").observe(attempts)
        label = str(attempts) if attempts < _MANY_ATTEMPTS else f"{_MANY_ATTEMPTS}+"
        self._histogram("scheduler_pod_scheduling_sli_duration_seconds", label).observe(seconds)

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        name = "scheduler_framework_extension_point_duration_seconds"
        self._histogram(name, point, status, profile).observe(seconds)

    def plugin_executed(self, plugin: str, point: str, status: str, seconds: float) -> None:
        self._histogram("scheduler_plugin_execution_duration_seconds", plugin, point, status).observe(seconds)

    def scheduled_after_flush(self) -> None:
        self._counter("scheduler_pod_scheduled_after_flush_total").inc()

    def waited_at_permit(self, status: str, seconds: float) -> None:
        self._histogram("scheduler_permit_wait_duration_seconds", status).observe(seconds)

    def preemption_tried(self, status: str, seconds: float) -> None:
        self._counter("scheduler_preemption_attempts_total").inc()
        self._histogram("scheduler_preemption_evaluation_duration_seconds", "pod", status).observe(seconds)

    def preempted(self, preemptor: str, victims: int, pdb_violations: int, disruptions: Mapping[str, int]) -> None:
        if preemptor == "pod":
            self._histogram("scheduler_preemption_victims").observe(victims)
        else:
            self._observe("scheduler_workload_preemption_victims", victims, preemptor=preemptor)
        if not self._has_entities:
            groups = sum(count for victim, count in disruptions.items() if victim != "pod")
            disruptions = {"podgroup": groups} if groups else {}
        for victim, count in disruptions.items():
            self._observe("scheduler_preemption_workload_disruptions", count, preemptor=preemptor, victim=victim)
        if pdb_violations:
            self._counter("scheduler_preemption_pdb_violations_total", preemptor).inc(pdb_violations)

    def evictions_ended(self, preemptor: str, result: str, seconds: float) -> None:
        self._histogram("scheduler_preemption_execution_duration_seconds", preemptor, result).observe(seconds)

    def group_decided(self, profile: str, entity: str, seconds: float) -> None:
        name = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
        self._observe(name, seconds, profile=profile, entity=entity)

    def group_attempted(self, result: GroupResult, profile: str, entity: str, seconds: float) -> None:
        labels = {"result": result, "profile": profile, "entity": entity}
        self._add("scheduler_podgroup_schedule_attempts_total", **labels)
        self._observe("scheduler_podgroup_scheduling_attempt_duration_seconds", seconds, **labels)

    def group_preemption_tried(self, entity: str, status: str, seconds: float | None) -> None:
        self._add("scheduler_workload_preemption_attempts_total", preemptor=entity, result=status)
        if seconds is not None:
            name = "scheduler_preemption_evaluation_duration_seconds"
            self._histogram(name, self._entity(entity), status).observe(seconds)

    def placements_generated(self, profile: str, entity: str, count: int) -> None:
        self._add("scheduler_generated_placements_total", count, profile=profile, entity=entity)

    def placement_evaluated(self, result: str, profile: str, entity: str, seconds: float) -> None:
        labels = {"result": result, "profile": profile, "entity": entity}
        self._add("scheduler_placement_evaluations_total", **labels)
        self._observe("scheduler_placement_evaluation_duration_seconds", seconds, **labels)
