"""Counts events of scheduling in metrics with kube-scheduler's names and buckets, and logs a line for each attempt."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from extender.runtime.clock import Clock
from extender.scheduler.scheduler_ports import Attempt, GroupResult
from extender.table.features import DEFAULT_FEATURES, Behaviours
from extender.web.log import Traces, Work, inform
from extender.web.metrics import AtScrape, BatchedNotifier, Metrics, gauge
from extender.web.series import ALL_SERIES, BEFORE_ENTITIES, SCHEDULER_SERIES, Series, as_in

_log = logging.getLogger(__name__)
_LONGEST_REASON = 1024
_MANY_ATTEMPTS = 15


class AttemptLog:
    """Logs attempts to schedule a pod. After `start` it writes in a thread, so that scheduling need not wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._traces = Traces()
        self._notifier = BatchedNotifier[tuple[float, Attempt]](self._write)
        self.start = self._notifier.start

    def note(self, attempt: Attempt) -> None:
        """Logs the attempt at level info."""
        if _log.isEnabledFor(logging.INFO):
            self._notifier.note((self._clock.now(), attempt))

    def stop(self) -> None:
        """Writes the rest of the lines."""
        self._notifier.stop()

    def _write(self, attempts: Sequence[tuple[float, Attempt]]) -> None:
        work = [Work(_fields(attempt), ended_at) for ended_at, attempt in attempts]
        inform(_log, "attempt", [self._traces.trace(each) for each in work])


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


class SchedulerMetrics(Metrics):
    """The metrics of the scheduling loop; implements scheduler_ports.SchedulerTelemetry."""

    def __init__(self, clock: Clock, version: str) -> None:
        super().__init__(clock, version, ALL_SERIES)
        self.attempt_log = AttemptLog(clock)
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
        counts = Counter[tuple[str, ...]]()
        for (queue, entity), count in found.items():
            counts[queue, self._entity(entity)] += count
        return counts

    def _entity(self, entity: str) -> str:
        """Returns the kind of an entity of the queue; before Kubernetes 1.38, a tree is a podgroup."""
        return entity if self._has_entities or entity == "pod" else "podgroup"

    def _values(self, name: str, **labels: str) -> Sequence[str]:
        """Returns the values of those labels that the metric has in this version."""
        return [labels[label] for label in self._series[name].labels]

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
        self.attempt_log.note(attempt)

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
            name = "scheduler_workload_preemption_victims"
            self._histogram(name, *self._values(name, preemptor=preemptor)).observe(victims)
        if not self._has_entities:
            groups = sum(count for victim, count in disruptions.items() if victim != "pod")
            disruptions = {"podgroup": groups} if groups else {}
        name = "scheduler_preemption_workload_disruptions"
        for victim, count in disruptions.items():
            self._histogram(name, *self._values(name, preemptor=preemptor, victim=victim)).observe(count)
        if pdb_violations:
            self._counter("scheduler_preemption_pdb_violations_total", preemptor).inc(pdb_violations)

    def evictions_ended(self, preemptor: str, result: str, seconds: float) -> None:
        self._histogram("scheduler_preemption_execution_duration_seconds", preemptor, result).observe(seconds)

    def group_decided(self, profile: str, entity: str, seconds: float) -> None:
        name = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
        self._histogram(name, *self._values(name, profile=profile, entity=entity)).observe(seconds)

    def group_attempted(self, result: GroupResult, profile: str, entity: str, seconds: float) -> None:
        name = "scheduler_podgroup_schedule_attempts_total"
        values = self._values(name, result=result, profile=profile, entity=entity)
        self._counter(name, *values).inc()
        self._histogram("scheduler_podgroup_scheduling_attempt_duration_seconds", *values).observe(seconds)

    def group_preemption_tried(self, entity: str, status: str, seconds: float | None) -> None:
        name = "scheduler_workload_preemption_attempts_total"
        self._counter(name, *self._values(name, preemptor=entity, result=status)).inc()
        if seconds is not None:
            name = "scheduler_preemption_evaluation_duration_seconds"
            self._histogram(name, self._entity(entity), status).observe(seconds)

    def placements_generated(self, profile: str, entity: str, count: int) -> None:
        name = "scheduler_generated_placements_total"
        self._counter(name, *self._values(name, profile=profile, entity=entity)).inc(count)

    def placement_evaluated(self, result: str, profile: str, entity: str, seconds: float) -> None:
        name = "scheduler_placement_evaluations_total"
        values = self._values(name, result=result, profile=profile, entity=entity)
        self._counter(name, *values).inc()
        self._histogram("scheduler_placement_evaluation_duration_seconds", *values).observe(seconds)
