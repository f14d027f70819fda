"""Prometheus series in kube-scheduler's style. `SERIES` is the one table of them; none has a label per node or pod."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from extender.runtime.clock import Clock
from extender.runtime.memory import PAUSES

_log = logging.getLogger(__name__)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**step for step in range(count))


# As the stock framework_extension_point_duration_seconds, but on to 3 s: the scheduler waits 5 s by default.
_CALL_BUCKETS = exponential(0.0001, 2, 16)
# As the stock plugin_execution_duration_seconds.
_WAIT_BUCKETS = exponential(0.00001, 1.5, 20)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric family: `name` as it stands in a query, less a histogram's suffixes."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


SERIES: Mapping[str, Series] = {
    series.name: series
    for series in (
        Series(
            "extender_verb_duration_seconds",
            "histogram",
            ("verb", "result"),
            "Seconds from body to answer, by verb and result: decided, passed, error, failed, unready, malformed.",
            _CALL_BUCKETS,
        ),
        Series(
            "extender_lock_wait_seconds",
            "histogram",
            ("caller",),
            "Seconds that a caller waited for the cache's lock.",
            _WAIT_BUCKETS,
        ),
        Series("extender_refused_nodes_total", "counter", ("plugin",), "Nodes turned down, by the plugin that did it."),
        Series(
            "extender_binds_total",
            "counter",
            ("result",),
            "Binds by result: bound, already_bound, unfit, refused, unknown.",
        ),
        Series("extender_cache_size", "gauge", ("type",), "Objects in the cache: nodes, pods, assumed_pods."),
        Series("extender_watch_events_total", "counter", ("kind", "event"), "Watch events by kind and event type."),
        Series("extender_unreadable_objects_total", "counter", ("kind",), "Objects left out, for they make no sense."),
        Series("extender_relists_total", "counter", ("kind",), "Times that a kind had to be listed anew."),
        Series(
            "extender_cache_differences_total",
            "counter",
            ("kind",),
            "Differences between cache and API server that the comparer has put right; Table: a count in a table.",
        ),
        Series(
            "extender_dropped_writes_total",
            "counter",
            ("kind",),
            "Events and statuses given up: too many waited, or the API server turned them down again and again.",
        ),
        Series(
            "extender_not_recorded_total",
            "counter",
            ("kind",),
            "Changes and decisions that --record has left out, for they came faster than they could be written.",
        ),
        Series("extender_rule_failures_total", "counter", ("rule",), "Pods for which a user's rule failed."),
        Series(
            "extender_watch_staleness_seconds",
            "gauge",
            ("kind",),
            "Seconds since the cache was last known to be equal to the API server's state of the kind.",
        ),
        Series(
            "extender_rejected_requests_total",
            "counter",
            ("code",),
            "Requests answered with a status of 400 or above, by status code.",
        ),
        Series("extender_leader", "gauge", ("name",), "1 while this process holds the lease and leads, else 0."),
        Series(
            "extender_gc_longest_pause_seconds",
            "gauge",
            (),
            "Seconds that the longest collection of garbage has held up every call.",
        ),
        Series("extender_build_info", "gauge", ("version", "python_version"), "Always 1; the labels tell the build."),
    )
}

Sizes = Callable[[], Mapping[str, int]]
Leading = Callable[[], Mapping[str, bool]]
"""Returns True for each lease, by name, by which this process leads; nothing where there is no election."""


class Metrics:
    """The series of one process; implements `ports.Telemetry` and `calls.CallTelemetry`."""

    def __init__(self, clock: Clock, version: str) -> None:
        # Nobody reads the _created series, and they are a third of all.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client leaves it bare
        self.registry = CollectorRegistry()
        self._clock, self._version = clock, version
        self._synced_at: dict[str, float] = {}
        self._calls = self._histogram("extender_verb_duration_seconds")
        self._waits = self._histogram("extender_lock_wait_seconds")
        self._refused = self._counter("extender_refused_nodes_total")
        self._binds = self._counter("extender_binds_total")
        self._events = self._counter("extender_watch_events_total")
        self._unreadable = self._counter("extender_unreadable_objects_total")
        self._relists = self._counter("extender_relists_total")
        self._rule_failures = self._counter("extender_rule_failures_total")
        self._dropped_writes = self._counter("extender_dropped_writes_total")
        self._not_recorded = self._counter("extender_not_recorded_total")
        self._differences = self._counter("extender_cache_differences_total")
        self._rejected = self._counter("extender_rejected_requests_total")
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        # prometheus-client looks a child up under a lock, by its labels made to strings: once each is enough.
        self._call_child = cache(self._calls.labels)
        self._wait_child = cache(self._waits.labels)
        self._refused_child = cache(self._refused.labels)
        self._bind_child = cache(self._binds.labels)
        self._event_child = cache(self._events.labels)

    def observe(self, sizes: Sizes, leading: Leading = dict) -> None:
        """Has both asked at each scrape; `sizes`: {"nodes": 5000, "pods": 30000, "assumed_pods": 3}."""
        self.registry.register(_AtScrape(sizes, self.staleness, leading, self._version))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Returns the exposition and its content type, in the format that the `Accept` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def called(self, verb: str, result: str, seconds: float) -> None:
        """See calls.CallTelemetry."""
        self._call_child(verb, result).observe(seconds)

    def rejected(self, status: int) -> None:
        """Counts a request that was answered with this status, 400 or above."""
        self._rejected.labels(str(status)).inc()

    def lock_waited(self, caller: str, seconds: float) -> None:
        """See ports.Telemetry."""
        self._wait_child(caller).observe(seconds)

    def refused(self, plugin: str, nodes: int) -> None:
        """See ports.Telemetry."""
        self._refused_child(plugin).inc(nodes)

    def bound(self, result: str) -> None:
        """See ports.Telemetry."""
        self._bind_child(result).inc()

    def watch_event(self, kind: str, event: str) -> None:
        """See ports.Telemetry."""
        self._event_child(kind, event).inc()

    def synced(self, kind: str) -> None:
        """See ports.Telemetry."""
        self._synced_at[kind] = self._clock.monotonic()

    def relisted(self, kind: str) -> None:
        """See ports.Telemetry."""
        self._relists.labels(kind).inc()

    def withdrawn(self, kind: str) -> None:
        """See ports.Telemetry."""
        self._synced_at.pop(kind, None)

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        """See ports.Telemetry."""
        self._differences.labels(kind).inc()
        _log.error("the cache was wrong, and is put right: %s %s %s", kind, key, how)

    def write_dropped(self, kind: str) -> None:
        """Counts an event or a status that was given up."""
        self._dropped_writes.labels(kind).inc()

    def not_recorded(self, kind: str, count: int) -> None:
        """Counts changes or decisions that the recorder has dropped."""
        self._not_recorded.labels(kind).inc(count)

    def rule_failed(self, rule: str) -> None:
        """See ports.Telemetry."""
        self._rule_failures.labels(rule).inc()

    def unreadable(self, kind: str, key: str, why: str) -> None:
        """See ports.Telemetry."""
        self._unreadable.labels(kind).inc()
        _log.warning("%s %s is left out of the cache: %s", kind, key, why)

    def staleness(self) -> Mapping[str, float]:
        """Seconds since the cache was last known to be equal to the API server's state, by kind."""
        now = self._clock.monotonic()
        return {kind: now - at for kind, at in self._synced_at.copy().items()}

    def _histogram(self, name: str) -> Histogram:
        series = SERIES[name]
        return Histogram(name, series.help, series.labels, buckets=series.buckets, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        return Counter(name, SERIES[name].help, SERIES[name].labels, registry=self.registry)


class _AtScrape(Collector):
    """Gauges that are read when somebody looks."""

    def __init__(
        self, sizes: Sizes, staleness: Callable[[], Mapping[str, float]], leading: Leading, version: str
    ) -> None:
        self._sizes = sizes
        self._staleness = staleness
        self._leading = leading
        self._build = (version, platform.python_version())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge("extender_cache_size", {(kind,): size for kind, size in self._sizes().items()})
        yield _gauge("extender_watch_staleness_seconds", {(kind,): age for kind, age in self._staleness().items()})
        yield _gauge("extender_leader", {(name,): leads for name, leads in self._leading().items()})
        yield _gauge("extender_gc_longest_pause_seconds", {(): PAUSES.longest_seconds})
        yield _gauge("extender_build_info", {self._build: 1})

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # Registering must not ask for sizes: the cache may not be there yet.


def _gauge(name: str, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, SERIES[name].help, labels=SERIES[name].labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
