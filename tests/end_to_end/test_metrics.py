"""The metrics of pods, beside those of the real kube-scheduler after the same work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders import make_pod
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import condition, placed, sized
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane
from tests.stock.scraping import scrape
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]
SAME = (
    "pending_pods",
    "pod_scheduling_attempts",
    "pod_scheduling_sli_duration_seconds",
    "preemption_attempts_total",
    "preemption_victims",
    "queued_entities",
    "schedule_attempts_total",
    "scheduling_algorithm_duration_seconds",
    "scheduling_attempt_duration_seconds",
    "unschedulable_pods",
)
LAST = ("scheduler_pod_scheduling_sli_duration_seconds_count", "2")
"""Both schedulers count this last after a bind: the pod needed two attempts."""
Counts = dict[tuple[str, ...], float]


def tried(plane: ControlPlane, name: str) -> object:
    return placed(plane).get(name) or condition(plane, name)


def counts(text: str) -> Counts:
    """Returns what was counted, without zeros and without how long anything took."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.removeprefix("scheduler_").removesuffix("_count").removesuffix("_sum") in SAME
        if sample.value and not sample.name.endswith("_seconds_sum")
    }


def prepare(plane: ControlPlane) -> None:
    """Creates two nodes before the scheduler starts: a pod that it knows before its node is tried once more."""
    clean(plane)
    plane.client.create(sized("small", "2").obj(), sized("closed", "9").taint("closed").obj())


def work(plane: ControlPlane, metrics: Callable[[], str]) -> tuple[Counts, Counts]:
    """One pod fits, two do not, and one has a gate; then a node comes that helps one of them."""
    plane.client.create(make_pod("gated").gate("wait").obj())
    for name, cpu in (("fits", "1"), ("big", "5"), ("huge", "50")):
        plane.client.create(make_pod(name).req(cpu=cpu).obj())
        assert wait_until(partial(tried, plane, name))
    assert wait_until(lambda: counts(metrics()).get(("scheduler_pending_pods", "unschedulable")) == 2)
    first = counts(metrics())
    plane.client.create(sized("large", "8").obj())
    assert wait_until(lambda: "big" in placed(plane))
    assert wait_until(lambda: counts(metrics()).get(LAST) == 1)
    return first, counts(metrics())


def test_pods_are_counted_as_by_kube_scheduler(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    prepare(control_plane)
    with control_plane.scheduler() as scheduler:
        theirs = work(control_plane, lambda: scrape(control_plane, scheduler))
    prepare(control_plane)
    with start_scheduler() as ours_running:
        ours = work(control_plane, lambda: ours_running.get("/metrics")[1])
    assert ours == theirs
    assert ours[0]["scheduler_pending_pods", "gated"] == 1
    assert ours[1]["scheduler_schedule_attempts_total", "default-scheduler", "scheduled"] == 2
