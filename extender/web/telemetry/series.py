"""Every series at /metrics in kube-scheduler's style, in two tables. None has a label per node or pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**step for step in range(count))


# As the stock framework_extension_point_duration_seconds, but on to 3 s: the scheduler waits 5 s by default.
_CALL_BUCKETS = exponential(0.0001, 2, 16)
# As the stock framework_extension_point_duration_seconds; Bind waits for the API server.
_POINT_BUCKETS = exponential(0.0001, 2, 14)
# As the stock plugin_execution_duration_seconds.
_WAIT_BUCKETS = exponential(0.00001, 1.5, 20)

_ATTEMPT_BUCKETS = exponential(0.001, 2, 15)
_TO_BOUND_BUCKETS = exponential(0.01, 2, 20)
_COUNT_BUCKETS = exponential(1, 2, 5)
_VICTIMS_BUCKETS = exponential(1, 2, 7)
# client-go's (component-base metrics/prometheus/restclient).
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric family: `name` as it stands in a query, less a histogram's suffixes."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


def counter(name: str, help_text: str, *labels: str) -> Series:
    return Series(name, "counter", labels, help_text)


def gauge(name: str, help_text: str, *labels: str) -> Series:
    return Series(name, "gauge", labels, help_text)


def histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Series:
    return Series(name, "histogram", labels, help_text, buckets)


SERIES: Mapping[str, Series] = {
    series.name: series
    for series in (
        histogram(
            "extender_verb_duration_seconds",
            "Seconds from body to answer, by verb and result: decided, passed, error, failed, unready, malformed.",
            _CALL_BUCKETS,
            "verb",
            "result",
        ),
        histogram(
            "extender_lock_wait_seconds", "Seconds that a caller waited for the cache's lock.", _WAIT_BUCKETS, "caller"
        ),
        counter("extender_refused_nodes_total", "Nodes turned down, by the plugin that did it.", "plugin"),
        counter("extender_binds_total", "Binds by result: bound, already_bound, unfit, refused, unknown.", "result"),
        gauge("extender_cache_size", "Objects in the cache: nodes, pods, assumed_pods.", "type"),
        counter("extender_watch_events_total", "Watch events by kind and event type.", "kind", "event"),
        counter("extender_unreadable_objects_total", "Objects left out, for they make no sense.", "kind"),
        counter("extender_relists_total", "Times that a kind had to be listed anew.", "kind"),
        counter(
            "extender_cache_differences_total",
            "Differences between cache and API server that the comparer has put right; Table: a count in a table.",
            "kind",
        ),
        counter(
            "extender_dropped_writes_total",
            "Events and statuses given up: too many waited, or the API server turned them down again and again.",
            "kind",
        ),
        counter(
            "extender_not_recorded_total",
            "Changes and decisions that --record has left out, for they came faster than they could be written.",
            "kind",
        ),
        counter("extender_rule_failures_total", "Pods for which a user's rule failed.", "rule"),
        counter(
            "extender_preemption_victims_total",
            "Pods that serve has evicted for pods which rules alone refused (--preempt-for-rules).",
        ),
        counter(
            "extender_policy_reloads_total",
            "Times that the policy was read again, by result: success, or failure, after which the one before stays.",
            "result",
        ),
        gauge(
            "extender_policy_last_reload_successful",
            "0 while the policy on disk is not the one in force, for it could not be adopted; else 1.",
        ),
        gauge(
            "extender_policy_last_reload_success_timestamp_seconds",
            "Seconds since the epoch at which the policy in force was read.",
        ),
        gauge(
            "extender_watch_staleness_seconds",
            "Seconds since the cache was last known to be equal to the API server's state of the kind.",
            "kind",
        ),
        counter(
            "extender_rejected_requests_total",
            "Requests answered with a status of 400 or above, by status code.",
            "code",
        ),
        gauge("extender_leader", "1 while this process holds the lease and leads, else 0.", "name"),
        gauge("leader_election_master_status", "As extender_leader, by client-go's name.", "name"),
        counter(
            "rest_client_requests_total",
            "Requests to the API server by status code; <error>: no answer came.",
            "code",
            "method",
            "host",
        ),
        histogram(
            "rest_client_request_duration_seconds",
            "Seconds from a request to the head of its answer, by method.",
            _REQUEST_BUCKETS,
            "verb",
            "host",
        ),
        gauge(
            "extender_gc_longest_pause_seconds",
            "Seconds that the longest collection of garbage has held up every call.",
        ),
        gauge("extender_build_info", "Always 1; the labels tell the build.", "version", "python_version"),
    )
}

SCHEDULER_SERIES: Mapping[str, Series] = {
    series.name: series
    for series in (
        gauge("scheduler_pending_pods", "Pods that wait: active, backoff, unschedulable, gated.", "queue"),
        counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by the event that brought them there.",
            "queue",
            "event",
        ),
        gauge(
            "scheduler_unschedulable_pods",
            "Pods that wait, by each plugin that refused them in their last attempt, or does not admit them.",
            "plugin",
            "profile",
        ),
        histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Seconds that an extension point took with all of its plugins: PreFilter, Filter, PostFilter, PreScore,"
            " Score, Reserve, Permit, PreBind, Bind; of every hundredth pod.",
            _POINT_BUCKETS,
            "extension_point",
            "status",
            "profile",
        ),
        histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Seconds that a plugin took: at PreFilter, Filter, PreScore and Score for all nodes; at Reserve, Permit,"
            " PreBind and Bind; of every hundredth pod.",
            _WAIT_BUCKETS,
            "plugin",
            "extension_point",
            "status",
        ),
        gauge("workqueue_depth", "Writes that wait for their turn: statuses, events.", "name"),
        counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule a pod by result: scheduled, unschedulable, error.",
            "result",
            "profile",
        ),
        histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Seconds from a pod's being taken from the queue to its binding or its return.",
            _ATTEMPT_BUCKETS,
            "result",
            "profile",
        ),
        histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Seconds that one decision took.", _ATTEMPT_BUCKETS
        ),
        histogram("scheduler_pod_scheduling_attempts", "How many attempts it took to schedule a pod.", _COUNT_BUCKETS),
        histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from a pod's first chance to be tried to its binding.",
            _TO_BOUND_BUCKETS,
            "attempts",
        ),
        counter("scheduler_preemption_attempts_total", "Pods that made room for themselves."),
        histogram("scheduler_preemption_victims", "How many pods had to go for one.", _VICTIMS_BUCKETS),
    )
}

ALL_SERIES: Mapping[str, Series] = {**SERIES, **SCHEDULER_SERIES}
