"""The loop's series: each notification shows at /metrics, under kube-scheduler's names."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.scheduler.scheduler_ports import Attempt, AttemptResult, GroupResult
from extender.table.features import VERSIONS
from extender.web.metrics import SchedulerMetrics, Waiting
from extender.web.series import SCHEDULER_SERIES, as_in
from tests.builders import make_node, make_pod
from tests.scheduler.world import NAME, World


def samples(metrics: SchedulerMetrics) -> dict[tuple[str, ...], float]:
    body, _ = metrics.render("text/plain")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def observed(version: str = "1.37") -> SchedulerMetrics:
    metrics = SchedulerMetrics(ManualClock(), "1")
    metrics.follow(VERSIONS[version].features.behaviours)
    pending = {"active": 3, "gated": 1}
    entities: dict[tuple[str, ...], int] = {("active", "podgroup"): 2, ("active", "compositepodgroup"): 1}
    refused: dict[tuple[str, ...], int] = {("NodeResourcesFit", "mine"): 2}
    metrics.observe_queue(Waiting(lambda: pending, lambda: entities, lambda: refused, lambda: {"events": 7}))
    metrics.incoming("active", "PodAdd")
    metrics.entity_incoming("active", "PodAdd", "podgroup")
    pod = msgspec.convert(make_pod("p").scheduler("mine").obj(), Pod)
    metrics.attempted(Attempt(pod, AttemptResult.SCHEDULED, 0.5, 1, "", "n1"))
    metrics.decided(0.002)
    metrics.spent("gave way", 0.25)
    metrics.scheduled(2, 1.5)
    metrics.scheduled(40, 90.0)
    metrics.scheduled_after_flush()
    metrics.waited_at_permit("Unschedulable", 4.0)
    metrics.preemption_tried("Success", 0.5)
    metrics.preemption_tried("Unschedulable", 0.25)
    metrics.preempted("pod", 3, 2, {})
    metrics.evictions_ended("pod", "success", 0.5)
    metrics.group_decided("mine", "podgroup", 0.25)
    metrics.group_attempted(GroupResult.WAITING_ON_PREEMPTION, "mine", "podgroup", 0.5)
    metrics.group_preemption_tried("podgroup", "Success", 0.125)
    metrics.group_preemption_tried("podgroup", "Success", None)
    metrics.preempted("podgroup", 4, 0, {"pod": 3, "podgroup": 2})
    metrics.placements_generated("mine", "podgroup", 2)
    metrics.placement_evaluated("feasible", "mine", "podgroup", 0.5)
    metrics.entity_incoming("active", "PodAdd", "compositepodgroup")
    metrics.extension_point("Filter", "Success", "mine", 0.003)
    metrics.plugin_executed("NodeAffinity", "Filter", "Success", 0.001)
    return metrics


def test_each_notification_is_counted() -> None:
    found = samples(observed())
    assert found["scheduler_pending_pods", "active"] == 3
    assert found["scheduler_unschedulable_pods", "NodeResourcesFit", "mine"] == 2
    assert found["workqueue_depth", "events"] == 7
    assert found["scheduler_framework_extension_point_duration_seconds_sum", "Filter", "Success", "mine"] == 0.003
    assert found["scheduler_plugin_execution_duration_seconds_sum", "Filter", "NodeAffinity", "Success"] == 0.001
    assert found["scheduler_queue_incoming_pods_total", "PodAdd", "active"] == 1
    assert found["scheduler_queue_incoming_entities_total", "PodAdd", "active", "podgroup"] == 2
    assert found["scheduler_schedule_attempts_total", "mine", "scheduled"] == 1
    assert found["scheduler_scheduling_attempt_duration_seconds_sum", "mine", "scheduled"] == 0.5
    assert found["scheduler_scheduling_algorithm_duration_seconds_count",] == 1
    assert found["scheduler_pod_scheduling_attempts_sum",] == 42
    assert found["extender_attempt_seconds_total", "gave way"] == 0.25
    assert found["scheduler_pod_scheduling_sli_duration_seconds_sum", "2"] == 1.5
    assert found["scheduler_pod_scheduling_sli_duration_seconds_sum", "15+"] == 90.0
    assert found["scheduler_pod_scheduled_after_flush_total",] == 1
    assert found["scheduler_permit_wait_duration_seconds_sum", "Unschedulable"] == 4.0
    assert found["scheduler_preemption_attempts_total",] == 2
    assert found["scheduler_preemption_victims_sum",] == 3
    assert found["scheduler_queued_entities", "active", "podgroup"] == 3
    assert found["scheduler_podgroup_scheduling_algorithm_duration_seconds_sum",] == 0.25
    assert found["scheduler_podgroup_schedule_attempts_total", "mine", "waiting_on_preemption"] == 1
    assert found["scheduler_podgroup_scheduling_attempt_duration_seconds_sum", "mine", "waiting_on_preemption"] == 0.5
    assert found["scheduler_workload_preemption_attempts_total", "Success"] == 2
    assert found["scheduler_workload_preemption_victims_sum",] == 4
    assert found["scheduler_preemption_workload_disruptions_sum", "podgroup"] == 2
    assert found["scheduler_preemption_evaluation_duration_seconds_sum", "Unschedulable", "pod"] == 0.25
    assert found["scheduler_preemption_evaluation_duration_seconds_sum", "Success", "podgroup"] == 0.125
    assert found["scheduler_preemption_execution_duration_seconds_sum", "pod", "success"] == 0.5
    assert found["scheduler_preemption_pdb_violations_total", "pod"] == 2
    assert found["scheduler_generated_placements_total", "mine"] == 2
    assert found["scheduler_placement_evaluations_total", "feasible", "mine"] == 1
    assert found["scheduler_placement_evaluation_duration_seconds_sum", "feasible", "mine"] == 0.5


def test_since_1_38_metrics_have_the_kind_of_group() -> None:
    metrics = observed("1.38")
    metrics.placements_generated("mine", "compositepodgroup", 4)
    metrics.placement_evaluated("feasible", "mine", "compositepodgroup", 0.25)
    found = samples(metrics)
    assert found["scheduler_queue_incoming_entities_total", "PodAdd", "active", "compositepodgroup"] == 1
    assert found["scheduler_queued_entities", "active", "podgroup"] == 2
    assert found["scheduler_queued_entities", "active", "compositepodgroup"] == 1
    assert found["scheduler_podgroup_scheduling_algorithm_duration_seconds_sum", "mine", "podgroup"] == 0.25
    assert found["scheduler_podgroup_schedule_attempts_total", "mine", "podgroup", "waiting_on_preemption"] == 1
    assert found["scheduler_workload_preemption_attempts_total", "Success", "podgroup"] == 2
    assert found["scheduler_workload_preemption_victims_sum", "podgroup"] == 4
    assert found["scheduler_preemption_workload_disruptions_sum", "pod", "podgroup"] == 3
    assert found["scheduler_preemption_workload_disruptions_sum", "podgroup", "podgroup"] == 2
    assert found["scheduler_generated_placements_total", "compositepodgroup", "mine"] == 4
    assert found["scheduler_placement_evaluation_duration_seconds_sum", "feasible", "mine", "podgroup"] == 0.5
    assert found["scheduler_placement_evaluations_total", "compositepodgroup", "feasible", "mine"] == 1


def test_a_pods_way_through_the_queue_can_be_read_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "extender.web.metrics")
    world = World(make_pod("p").uid("p").scheduler(NAME).req(cpu="1"), telemetry=SchedulerMetrics(ManualClock(), "1"))
    world.settle()
    world.put(make_node("n").capacity(cpu="8", pods="9").allocatable(cpu="8", pods="9"))
    world.pass_time(3)
    assert [record.getMessage() for record in caplog.records if "moved" in record.getMessage()] == [
        "pod moved pod=default/p from=none to=active event=UnscheduledPodAdd",
        "pod moved pod=default/p from=none to=unschedulable event=ScheduleAttemptFailure",
        "pod moved pod=default/p from=unschedulable to=backoff event=NodeAdd",
        "pod moved pod=default/p from=backoff to=active event=PopFromBackoffQ",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_series_has_the_labels_and_buckets_of_the_table(version: str) -> None:
    body, _ = observed(version).render("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    for series in map(as_in(VERSIONS[version].features.behaviours).__getitem__, SCHEDULER_SERIES):
        family = families[series.name.removesuffix("_total") if series.kind == "counter" else series.name]
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert (family.type, labels) == (series.kind, set(series.labels))


def test_no_series_grows_with_pods_and_nodes() -> None:
    def labels(pods: int, nodes: int) -> set[tuple[str, ...]]:
        metrics = SchedulerMetrics(ManualClock(), "1")
        world = World(
            *(make_node(f"n{i}").capacity(cpu="8", pods="99").allocatable(cpu="8", pods="99") for i in range(nodes)),
            *(make_pod(f"p{i}").uid(f"p{i}").scheduler(NAME).req(cpu="100m" if i % 2 else "9") for i in range(pods)),
            telemetry=metrics,
        )
        metrics.observe_queue(Waiting(world.queue.pending, world.queue.entities, world.queue.rejections, dict))
        world.settle()
        return {key for key in samples(metrics) if key[0].startswith("scheduler_")}

    few = labels(pods=12, nodes=3)
    assert any("NodeResourcesFit" in key for key in few if key[0] == "scheduler_unschedulable_pods")
    assert labels(pods=60, nodes=30) == few
