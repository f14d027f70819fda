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
            "extender_preemption_victims_total",
            "counter",
            (),
            "Pods that serve has evicted for pods which rules alone refused (--preempt-for-rules).",
        ),
        Series(
            "extender_policy_reloads_total",
            "counter",
            ("result",),
            "Times that the policy was read again, by result: success, or failure, after which the one before stays.",
        ),
        Series(
            "extender_policy_last_reload_successful",
            "gauge",
            (),
            "0 while the policy on disk is not the one in force, for it could not be adopted; else 1.",
        ),
        Series(
            "extender_policy_last_reload_success_timestamp_seconds",
            "gauge",
            (),
            "Seconds since the epoch at which the policy in force was read.",
        ),
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
        Series("leader_election_master_status", "gauge", ("name",), "As extender_leader, by client-go's name."),
        Series(
            "rest_client_requests_total",
            "counter",
            ("code", "method", "host"),
            "Requests to the API server by status code; <error>: no answer came.",
        ),
        Series(
            "rest_client_request_duration_seconds",
            "histogram",
            ("verb", "host"),
            "Seconds from a request to the head of its answer, by method.",
            _REQUEST_BUCKETS,
        ),
        Series(
            "extender_gc_longest_pause_seconds",
            "gauge",
            (),
            "Seconds that the longest collection of garbage has held up every call.",
        ),
        Series("extender_build_info", "gauge", ("version", "python_version"), "Always 1; the labels tell the build."),
    )
}

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
            "scheduler_unschedulable_pods",
            "gauge",
            ("plugin", "profile"),
            "Pods that wait, by each plugin that refused them in their last attempt, or does not admit them.",
        ),
        Series(
            "scheduler_framework_extension_point_duration_seconds",
            "histogram",
            ("extension_point", "status", "profile"),
            "Seconds that an extension point took with all of its plugins: PreFilter, Filter, PostFilter, PreScore,"
            " Score, Reserve, Permit, PreBind, Bind; of every hundredth pod.",
            _POINT_BUCKETS,
        ),
        Series(
            "scheduler_plugin_execution_duration_seconds",
            "histogram",
            ("plugin", "extension_point", "status"),
            "Seconds that a plugin took: at PreFilter, Filter, PreScore and Score for all nodes; at Reserve, Permit,"
            " PreBind and Bind; of every hundredth pod.",
            _WAIT_BUCKETS,
        ),
        Series("workqueue_depth", "gauge", ("name",), "Writes that wait for their turn: statuses, events."),
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

ALL_SERIES: Mapping[str, Series] = {**SERIES, **SCHEDULER_SERIES}
