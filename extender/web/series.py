"""Lists all series at /metrics in two tables, in kube-scheduler's style. No label names a node or a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # `extender reference` shows these without NumPy
    from extender.table.features import Behaviours


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**step for step in range(count))


# These buckets reach 3.3 s instead of kube-scheduler's 0.2 s, because it waits up to 5 s for an extender.
_CALL_BUCKETS = exponential(0.0001, 2, 16)
# As kube-scheduler's framework_extension_point_duration_seconds.
_POINT_BUCKETS = exponential(0.0001, 2, 12)
# As kube-scheduler's plugin_execution_duration_seconds.
_WAIT_BUCKETS = exponential(0.00001, 1.5, 20)
_RULE_BUCKETS = (0.001, 0.01, 0.1, 1, 10, 100, 1_000, 10_000)

_ATTEMPT_BUCKETS = exponential(0.001, 2, 15)
_TO_BOUND_BUCKETS = exponential(0.01, 2, 20)
_COUNT_BUCKETS = exponential(1, 2, 5)
_VICTIMS_BUCKETS = exponential(1, 2, 7)
_GROUP_VICTIMS_BUCKETS = exponential(1, 2, 11)
_PREEMPTION_BUCKETS = exponential(0.001, 2, 16)
# The buckets of client-go's request durations (component-base metrics/prometheus/restclient).
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric family. `name` is its name in queries, without the suffixes of a histogram."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = field(default=(), kw_only=True)
    name: str = field(default="", kw_only=True)


counter = partial(Series, "counter")
gauge = partial(Series, "gauge")
histogram = partial(Series, "histogram")


def _named(table: Mapping[str, Series]) -> Mapping[str, Series]:
    return {name: replace(series, name=name) for name, series in table.items()}


SERIES = _named(
    {
        "extender_verb_duration_seconds": histogram(
            "Seconds from a complete request to its answer, by verb and result: decided, passed, error, failed,"
            " unready, malformed.",
            ("verb", "result"),
            buckets=_CALL_BUCKETS,
        ),
        "extender_lock_wait_seconds": histogram(
            "Seconds for which a caller waited for the cache's lock.", ("caller",), buckets=_WAIT_BUCKETS
        ),
        "extender_refused_nodes_total": counter("Nodes refused, by the plugin that refused them.", ("plugin",)),
        "extender_binds_total": counter("Binds by result: bound, already_bound, unfit, refused, unknown.", ("result",)),
        "extender_group_plans_total": counter(
            "Plans of pod groups for filter, by result: placed, refused.", ("result",)
        ),
        "extender_group_plans_dropped_total": counter(
            "Plans of pod groups that were dropped, by reason: asked_again, changed, node, bound_elsewhere, age.",
            ("reason",),
        ),
        "extender_gang_binds_refused_total": counter(
            "Binds of gang members that were refused because too few members could be bound together, by reason: "
            "unfit, timeout.",
            ("reason",),
        ),
        "extender_cache_size": gauge("Objects in the cache: nodes, pods, assumed_pods.", ("type",)),
        "extender_watch_events_total": counter("Watch events by kind and event type.", ("kind", "event")),
        "extender_unreadable_objects_total": counter(
            "Objects that are left out of the cache because they cannot be read.", ("kind",)
        ),
        "extender_set_aside_total": counter(
            "Unexpected errors about one object, with which the task went on without the object, by task. The log has"
            " them as `object set aside`.",
            ("task",),
        ),
        "extender_relists_total": counter("Times that a kind had to be listed again.", ("kind",)),
        "extender_cache_differences_total": counter(
            "Differences from the API server that were corrected in the cache. Kind Table: in values that are derived"
            " from the objects.",
            ("kind",),
        ),
        "extender_dropped_writes_total": counter(
            "Events and statuses that were dropped, because too many waited or the API server refused them repeatedly.",
            ("kind",),
        ),
        "extender_not_recorded_total": counter(
            "Changes and decisions that --record left out because they came too fast or were too large.", ("kind",)
        ),
        "extender_rule_failures_total": counter("Pods for which a user's rule failed or hung.", ("rule",)),
        "extender_rule_calls_stuck": gauge(
            "Calls of users' rules that run on after their deadline and that the process could not end."
        ),
        "extender_rule_events_total": counter("The counters of users' rules (handle.count).", ("rule", "name")),
        "extender_rule_values": histogram(
            "The histograms of users' rules (handle.observe).", ("rule", "name"), buckets=_RULE_BUCKETS
        ),
        "extender_preemption_victims_total": counter(
            "Pods that `extender serve` evicted for pods which only users' rules refused (--preempt-for-rules)."
        ),
        "extender_policy_reloads_total": counter(
            "Reads of the policy after the start, by result: success, or failure (the old policy then stays).",
            ("result",),
        ),
        "extender_policy_last_reload_successful": gauge(
            "1 if the policy on disk is in force, 0 if it could not be loaded."
        ),
        "extender_policy_last_reload_success_timestamp_seconds": gauge(
            "The time at which the policy in force was read, in seconds since the epoch."
        ),
        "extender_watch_staleness_seconds": gauge(
            "Seconds since the cache was last confirmed to hold all objects of the kind as the API server does.",
            ("kind",),
        ),
        "extender_rejected_requests_total": counter(
            "Requests answered with a status of 400 or above, by status code.", ("code",)
        ),
        "extender_leader": gauge("1 while this process holds the lease and leads, else 0.", ("name",)),
        "leader_election_master_status": gauge("The same as extender_leader, under client-go's name.", ("name",)),
        "rest_client_requests_total": counter(
            "Requests to the API server by status code; the code <error> means that there was no answer.",
            ("code", "method", "host"),
        ),
        "rest_client_request_duration_seconds": histogram(
            "Seconds until the API server's response headers arrived, by method.",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
        ),
        "extender_gc_longest_pause_seconds": gauge(
            "Seconds of the longest garbage collection of the last five to ten minutes; every call waits for it."
        ),
        "extender_build_info": gauge(
            "Always 1; the labels describe the build.", ("version", "commit", "python_version")
        ),
    }
)

SCHEDULER_SERIES = _named(
    {
        "scheduler_pending_pods": gauge("Waiting pods by queue: active, backoff, unschedulable, gated.", ("queue",)),
        "scheduler_queue_incoming_pods_total": counter(
            "Pods that entered a queue, by the event that brought them there.", ("queue", "event")
        ),
        "scheduler_unschedulable_pods": gauge(
            "Waiting pods, by each plugin that refused them in their last attempt or keeps them gated.",
            ("plugin", "profile"),
        ),
        "scheduler_framework_extension_point_duration_seconds": histogram(
            "Seconds that an extension point took with all of its plugins: PreEnqueue, PreFilter, Filter, PostFilter,"
            " PreScore, Score, Reserve, Permit, PreBind, Bind, RankNodes. Bind and RankNodes are measured for each pod,"
            " the others for each hundredth. RankNodes, since Kubernetes 1.38, is for groups that look for victims.",
            ("extension_point", "status", "profile"),
            buckets=_POINT_BUCKETS,
        ),
        "scheduler_plugin_execution_duration_seconds": histogram(
            "Seconds that a plugin took at an extension point: PreFilter, Filter, PreScore and Score (for all nodes"
            " together), Reserve, Permit, PreBind and Bind. Measured for every hundredth pod.",
            ("plugin", "extension_point", "status"),
            buckets=_WAIT_BUCKETS,
        ),
        "workqueue_depth": gauge(
            "What waits for a free thread: writes of statuses and events; pods whose bind (binds), reservations or"
            " PreBind rules (prebinds) have not begun; preemptions that have evicted nothing yet (preemptions).",
            ("name",),
        ),
        "scheduler_schedule_attempts_total": counter(
            "Attempts to schedule a pod by result: scheduled, unschedulable, error.", ("result", "profile")
        ),
        "scheduler_scheduling_attempt_duration_seconds": histogram(
            "Seconds from the moment when a pod leaves the queue until it is bound or back in the queue.",
            ("result", "profile"),
            buckets=_ATTEMPT_BUCKETS,
        ),
        "scheduler_scheduling_algorithm_duration_seconds": histogram(
            "Seconds that one decision took.", buckets=_ATTEMPT_BUCKETS
        ),
        "scheduler_pod_scheduling_attempts": histogram(
            "Attempts that a pod needed until it was bound.", buckets=_COUNT_BUCKETS
        ),
        "scheduler_pod_scheduling_sli_duration_seconds": histogram(
            "Seconds from the moment when a pod could first be tried until it is bound.",
            ("attempts",),
            buckets=_TO_BOUND_BUCKETS,
        ),
        "scheduler_pod_scheduled_after_flush_total": counter(
            "Pods that were bound after they were tried again only because they had waited too long"
            " (podMaxInUnschedulablePodsSeconds)."
        ),
        "scheduler_permit_wait_duration_seconds": histogram(
            "Seconds that a pod waited at Permit, by how that ended: Success, Unschedulable, Error.",
            ("result",),
            buckets=_ATTEMPT_BUCKETS,
        ),
        "scheduler_preemption_attempts_total": counter(
            "Searches for pods that could be evicted for a pod, with or without success."
        ),
        "scheduler_preemption_victims": histogram("Pods evicted for one pod.", buckets=_VICTIMS_BUCKETS),
        "scheduler_queued_entities": gauge(
            "Waiting entities by queue: pods without a group (pod) and root groups (podgroup, compositepodgroup).",
            ("queue", "entity"),
        ),
        "scheduler_queue_incoming_entities_total": counter(
            "Pods without a group (pod) and root groups (podgroup, compositepodgroup) that entered a queue, by event.",
            ("queue", "event", "entity"),
        ),
        "scheduler_podgroup_schedule_attempts_total": counter(
            "Attempts to schedule a root group by result: scheduled, unschedulable, waiting_on_preemption, error.",
            ("result", "profile", "entity"),
        ),
        "scheduler_podgroup_scheduling_attempt_duration_seconds": histogram(
            "Seconds from the moment when a group leaves the queue until its members are bound or given back.",
            ("result", "profile", "entity"),
            buckets=_ATTEMPT_BUCKETS,
        ),
        "scheduler_podgroup_scheduling_algorithm_duration_seconds": histogram(
            "Seconds that the decision about all members of a group took, without preemption.",
            ("profile", "entity"),
            buckets=_ATTEMPT_BUCKETS,
        ),
        "extender_attempt_seconds_total": counter(
            "Seconds of the deciding thread by what the attempt cost: cheap (under 0.1 s), costly, gave way.", ("cost",)
        ),
        "scheduler_workload_preemption_attempts_total": counter(
            "Searches for pods that could be evicted for a group, by kube-scheduler's code of the outcome.",
            ("preemptor", "result"),
        ),
        "scheduler_workload_preemption_victims": histogram(
            "Pods evicted for one group.", ("preemptor",), buckets=_GROUP_VICTIMS_BUCKETS
        ),
        "scheduler_preemption_workload_disruptions": histogram(
            "Units evicted for one group: a pod, or all pods of a group with disruptionMode all. Before Kubernetes 1.38"
            " only units of pod groups, without the label victim.",
            ("preemptor", "victim"),
            buckets=_GROUP_VICTIMS_BUCKETS,
        ),
        "scheduler_preemption_evaluation_duration_seconds": histogram(
            "Seconds of a search for pods to evict, by preemptor (pod, podgroup, compositepodgroup) and by"
            " kube-scheduler's code of the outcome.",
            ("preemptor", "result"),
            buckets=_PREEMPTION_BUCKETS,
        ),
        "scheduler_preemption_execution_duration_seconds": histogram(
            "Seconds that the evictions for a preemptor (pod, podgroup, compositepodgroup) took, by result: success,"
            " error.",
            ("preemptor", "result"),
            buckets=_PREEMPTION_BUCKETS,
        ),
        "scheduler_preemption_pdb_violations_total": counter(
            "Pods evicted although a PodDisruptionBudget protects them, by preemptor.", ("preemptor",)
        ),
        "scheduler_generated_placements_total": counter(
            "Topology domains on which groups were tried. Before Kubernetes 1.38 of PodGroups alone, as the next two.",
            ("profile", "entity"),
        ),
        "scheduler_placement_evaluations_total": counter(
            "Attempts to place a group on one topology domain, by result: feasible, infeasible.",
            ("result", "profile", "entity"),
        ),
        "scheduler_placement_evaluation_duration_seconds": histogram(
            "Seconds of an attempt to place a group on one topology domain, by result: feasible, infeasible.",
            ("result", "profile", "entity"),
            buckets=_ATTEMPT_BUCKETS,
        ),
    }
)

ALL_SERIES: Mapping[str, Series] = {**SERIES, **SCHEDULER_SERIES}

BEFORE_ENTITIES: Mapping[str, Sequence[str]] = {
    "scheduler_queued_entities": ("queue", "type"),
    "scheduler_queue_incoming_entities_total": ("queue", "event", "type"),
    "scheduler_podgroup_schedule_attempts_total": ("result", "profile"),
    "scheduler_podgroup_scheduling_attempt_duration_seconds": ("result", "profile"),
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": (),
    "scheduler_workload_preemption_attempts_total": ("result",),
    "scheduler_workload_preemption_victims": (),
    "scheduler_preemption_workload_disruptions": ("preemptor",),
    "scheduler_generated_placements_total": ("profile",),
    "scheduler_placement_evaluations_total": ("result", "profile"),
    "scheduler_placement_evaluation_duration_seconds": ("result", "profile"),
}
"""Metric -> its labels before Kubernetes 1.38 (`Behaviours.metrics_have_entities`)."""


def as_in(behaviours: Behaviours) -> Mapping[str, Series]:
    """Returns ALL_SERIES with the labels that kube-scheduler has in a version."""
    if behaviours.metrics_have_entities:
        return ALL_SERIES
    return {
        name: replace(series, labels=tuple(BEFORE_ENTITIES.get(name, series.labels)))
        for name, series in ALL_SERIES.items()
    }
