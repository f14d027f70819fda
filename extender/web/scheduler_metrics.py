"""Counts events of scheduling in metrics with kube-scheduler's names and buckets, and logs a line for each attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.runtime.clock import Clock
from extender.scheduler.scheduler_ports import Attempt, GroupResult
from extender.web.log import inform
from extender.web.metrics import BatchedNotifier, Metrics, gauge
from extender.web.series import ALL_SERIES, SCHEDULER_SERIES
from extender.web.tracing import Traces, Work

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
        entities: counts single pods and pod groups by (queue, pod or podgroup).
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

    def observe_queue(self, waiting: Waiting) -> None:
        """Adds the gauges whose values the functions in `waiting` compute at each scrape."""
        self.registry.register(_AtScrape(waiting))

    def incoming(self, queue: str, event: str) -> None:
        self._counter("scheduler_queue_incoming_pods_total", queue, event).inc()

    def entity_incoming(self, queue: str, event: str, entity: str) -> None:
        self._counter("scheduler_queue_incoming_entities_total", queue, event, entity).inc()

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

    def preempted(self, preemptor: str, victims: int, pdb_violations: int, groups: int) -> None:
        name = "scheduler_preemption_victims" if preemptor == "pod" else "scheduler_workload_preemption_victims"
        self._histogram(name).observe(victims)
        if groups:
            self._histogram("scheduler_preemption_workload_disruptions", preemptor).observe(groups)
        if pdb_violations:
            self._counter("scheduler_preemption_pdb_violations_total", preemptor).inc(pdb_violations)

    def evictions_ended(self, preemptor: str, result: str, seconds: float) -> None:
        self._histogram("scheduler_preemption_execution_duration_seconds", preemptor, result).observe(seconds)

    def group_decided(self, seconds: float) -> None:
        self._histogram("scheduler_podgroup_scheduling_algorithm_duration_seconds").observe(seconds)

    def group_attempted(self, result: GroupResult, profile: str, seconds: float) -> None:
        self._counter("scheduler_podgroup_schedule_attempts_total", result, profile).inc()
        name = "scheduler_podgroup_scheduling_attempt_duration_seconds"
        self._histogram(name, result, profile).observe(seconds)

    def group_preemption_tried(self, status: str, seconds: float | None) -> None:
        self._counter("scheduler_workload_preemption_attempts_total", status).inc()
        if seconds is not None:
            name = "scheduler_preemption_evaluation_duration_seconds"
            self._histogram(name, "podgroup", status).observe(seconds)

    def placements_generated(self, profile: str, count: int) -> None:
        self._counter("scheduler_generated_placements_total", profile).inc(count)

    def placement_evaluated(self, result: str, profile: str, seconds: float) -> None:
        self._counter("scheduler_placement_evaluations_total", result, profile).inc()
        self._histogram("scheduler_placement_evaluation_duration_seconds", result, profile).observe(seconds)


class _AtScrape(Collector):
    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def collect(self) -> Iterator[GaugeMetricFamily]:
        waiting = self._waiting
        yield gauge(SCHEDULER_SERIES["scheduler_pending_pods"], {(tier,): n for tier, n in waiting.pending().items()})
        yield gauge(SCHEDULER_SERIES["scheduler_queued_entities"], waiting.entities())
        yield gauge(SCHEDULER_SERIES["scheduler_unschedulable_pods"], waiting.refused())
        yield gauge(SCHEDULER_SERIES["workqueue_depth"], {(name,): n for name, n in waiting.tasks().items()})

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # registering the collector must not read the queue, which may not exist yet
