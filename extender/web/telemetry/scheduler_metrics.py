"""The series of the scheduler's own loop, with the stock scheduler's names, labels and buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.runtime.clock import Clock
from extender.web.telemetry.metrics import Metrics, Series, exponential

_ATTEMPT_BUCKETS = exponential(0.001, 2, 15)
_TO_BOUND_BUCKETS = exponential(0.01, 2, 20)
_COUNT_BUCKETS = exponential(1, 2, 5)
_VICTIMS_BUCKETS = exponential(1, 2, 7)
_MANY_ATTEMPTS = 16

SCHEDULER_SERIES: Mapping[str, Series] = {
    series.name: series
    for series in (
        Series("scheduler_pending_pods", "gauge", ("queue",), "Pods that wait: active, backoff, unschedulable, gated."),
        Series(
            "scheduler_queue_incoming_pods_total",
            "counter",
            ("queue", "event"),
            "Pods that entered a queue, by the event that brought them there.",
        ),
        Series(
            "scheduler_schedule_attempts_total",
            "counter",
            ("result", "profile"),
            "Attempts to schedule a pod by result: scheduled, unschedulable, error.",
        ),
        Series(
            "scheduler_scheduling_attempt_duration_seconds",
            "histogram",
            ("result", "profile"),
            "Seconds from a pod's being taken from the queue to its binding or its return.",
            _ATTEMPT_BUCKETS,
        ),
        Series(
            "scheduler_scheduling_algorithm_duration_seconds",
            "histogram",
            (),
            "Seconds that one decision took.",
            _ATTEMPT_BUCKETS,
        ),
        Series(
            "scheduler_pod_scheduling_attempts",
            "histogram",
            (),
            "How many attempts it took to schedule a pod.",
            _COUNT_BUCKETS,
        ),
        Series(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "histogram",
            ("attempts",),
            "Seconds from a pod's first chance to be tried to its binding.",
            _TO_BOUND_BUCKETS,
        ),
        Series("scheduler_preemption_attempts_total", "counter", (), "Pods that made room for themselves."),
        Series("scheduler_preemption_victims", "histogram", (), "How many pods had to go for one.", _VICTIMS_BUCKETS),
    )
}


class SchedulerMetrics(Metrics):
    """The series of a process that runs the loop; a scheduler.ports.SchedulerTelemetry."""

    def __init__(self, clock: Clock, version: str) -> None:
        super().__init__(clock, version)
        incoming = self._count("scheduler_queue_incoming_pods_total")
        self._incoming_child = cache(incoming.labels)
        attempts = self._count("scheduler_schedule_attempts_total")
        self._attempts_child = cache(attempts.labels)
        durations = self._distribution("scheduler_scheduling_attempt_duration_seconds")
        self._duration_child = cache(durations.labels)
        self._algorithm = self._distribution("scheduler_scheduling_algorithm_duration_seconds")
        self._attempts_to_bound = self._distribution("scheduler_pod_scheduling_attempts")
        to_bound = self._distribution("scheduler_pod_scheduling_sli_duration_seconds")
        self._to_bound_child = cache(to_bound.labels)
        self._preemptions = self._count("scheduler_preemption_attempts_total")
        self._victims = self._distribution("scheduler_preemption_victims")

    def observe_queue(self, pending: Callable[[], Mapping[str, int]]) -> None:
        """Has `pending` asked at each scrape: {"active": 3, "backoff": 0, "unschedulable": 1, "gated": 0}."""
        self.registry.register(_Pending(pending))

    def incoming(self, queue: str, event: str) -> None:
        """See state.tiers.QueueTelemetry."""
        self._incoming_child(queue, event).inc()

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        """See scheduler.ports.SchedulerTelemetry."""
        self._attempts_child(result, profile).inc()
        self._duration_child(result, profile).observe(seconds)

    def decided(self, seconds: float) -> None:
        """See scheduler.ports.SchedulerTelemetry."""
        self._algorithm.observe(seconds)

    def scheduled(self, attempts: int, seconds: float) -> None:
        """See scheduler.ports.SchedulerTelemetry."""
        self._attempts_to_bound.observe(attempts)
        self._to_bound_child(str(attempts) if attempts < _MANY_ATTEMPTS else f"{_MANY_ATTEMPTS}+").observe(seconds)

    def preempted(self, victims: int) -> None:
        """See scheduler.ports.SchedulerTelemetry."""
        self._preemptions.inc()
        self._victims.observe(victims)

    def _count(self, name: str) -> Counter:
        series = SCHEDULER_SERIES[name]
        return Counter(name, series.help, series.labels, registry=self.registry)

    def _distribution(self, name: str) -> Histogram:
        series = SCHEDULER_SERIES[name]
        return Histogram(name, series.help, series.labels, buckets=series.buckets, registry=self.registry)


class _Pending(Collector):
    def __init__(self, pending: Callable[[], Mapping[str, int]]) -> None:
        self._pending = pending

    def collect(self) -> Iterator[GaugeMetricFamily]:
        series = SCHEDULER_SERIES["scheduler_pending_pods"]
        family = GaugeMetricFamily(series.name, series.help, labels=series.labels)
        for queue, pods in self._pending().items():
            family.add_metric([queue], pods)
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # Registering must not ask for the queue: it may not be there yet.
