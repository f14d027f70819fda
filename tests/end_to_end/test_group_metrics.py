"""The metrics of pod groups and of preemption, beside those of the real kube-scheduler after the same work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders import Object, make_node, make_pdb, make_pod, make_pod_group, make_priority_class
from tests.end_to_end.group_plane import GroupControlPlane, bound, clean_up
from tests.running import schedule
from tests.stock.build import Binaries
from tests.stock.scraping import Family, families, scrape
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]

GATES = ("GenericWorkload=true", "TopologyAwareWorkloadScheduling=true")
PLACEMENTS = (
    "generated_placements_total",
    "placement_evaluations_total",
    "placement_evaluation_duration_seconds",
    "podgroup_scheduling_algorithm_duration_seconds",
    "scheduling_algorithm_duration_seconds",
)
PREEMPTION = (
    "preemption_evaluation_duration_seconds",
    "preemption_execution_duration_seconds",
    "preemption_pdb_violations_total",
    "preemption_victims",
    "preemption_workload_disruptions",
    "workload_preemption_victims",
)
Counts = dict[tuple[str, ...], float]
Results = tuple[Counts, Counts, dict[str, Family]]


@pytest.fixture
def plane(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupControlPlane]:
    with GroupControlPlane(stock_binaries, tmp_path_factory.mktemp("group-metrics")) as plane:
        yield plane


def counts(text: str, names: tuple[str, ...]) -> Counts:
    """Returns the counters and the number of observations of each of these families, by name and labels."""
    return {
        (sample.name, *(f"{label}={value}" for label, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith(("_total", "_count", "_sum")) and "_seconds_sum" not in sample.name
        if sample.name.removeprefix("scheduler_").removesuffix("_count").removesuffix("_sum") in names
    }


def settled(metrics: Callable[[], str], names: tuple[str, ...]) -> Counts:
    """Returns the counts once they stay the same for a while, because some are observed after the bind."""

    def unchanged() -> Counts | None:
        before = counts(metrics(), names)
        time.sleep(1.5)
        return before if counts(metrics(), names) == before else None

    found = wait_until(unchanged)
    assert found is not None
    return found


def incomplete(metrics: Callable[[], str], pods: int) -> bool:
    """Tells whether the scheduler holds that many pods back, because their PodGroups do not exist.

    It hears of pods and of PodGroups by two watches. A PodGroup that is heard of first is tried with some of its pods.
    """
    return wait_until(lambda: sum(waiting(metrics(), queue) for queue in ("gated", "incomplete")) == pods)


def waiting(text: str, queue: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "scheduler_pending_pods" and sample.labels["queue"] == queue
    )


def node(name: str, cpu: str, taint: str = "", **labels: str) -> Object:
    built = make_node(name).label(**labels).capacity(cpu=cpu, memory="64Gi", pods="110")
    return (built.taint(taint) if taint else built).obj()


def work(plane: GroupControlPlane, metrics: Callable[[], str]) -> Results:
    """A gang chooses between two racks; then a pod and a gang evict pods that a budget protects.

    Returns what was counted in each of the two steps, and the families.
    """
    client = plane.client
    rack: Object = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    # The loop begins with the rack that would be fuller. That one does not take the gang, so it tries the other too.
    # Its taint refuses the members. If it were too small, the loop would not try it, and count fewer attempts.
    client.create(node("small", "4", taint="reserved", rack="small"), node("large", "7", rack="large"))
    client.create(*(make_pod(f"gang-{i}").req(cpu="1").group("gang").obj() for i in range(4)))
    assert incomplete(metrics, 4)
    client.create(make_pod_group("gang", 4, **rack))
    assert wait_until(lambda: len(bound(plane)) == 4)
    placements = settled(metrics, PLACEMENTS)

    client.create(make_priority_class("high", 100), make_pdb("budget", {"app": "victim"}, minAvailable=3))
    client.create(node("n2", "16"), make_pod("victim").label(app="victim").req(cpu="16").grace(0).obj())
    assert wait_until(lambda: "victim" in bound(plane))
    victims = [make_pod(f"victim-{i}").label(app="victim").req(cpu="8").group("victims") for i in range(2)]
    client.create(node("n0", "8"), node("n1", "8"), make_pod_group("victims"), *(pod.grace(0).obj() for pod in victims))
    assert wait_until(lambda: len(bound(plane)) == 7)
    client.create(make_pod("single").req(cpu="16").priority_class("high").obj())
    assert wait_until(lambda: "single" in bound(plane))
    client.create(*(make_pod(f"high-{i}").req(cpu="8").priority_class("high").group("high").obj() for i in range(2)))
    assert incomplete(metrics, 2)
    client.create(make_pod_group("high", 2, priorityClassName="high"))
    assert wait_until(lambda: {"high-0", "high-1"} <= bound(plane).keys())
    preemptions = settled(metrics, PREEMPTION)
    return placements, preemptions, families(metrics())


def total(found: Counts, name: str, label: str) -> float:
    """Returns the sum over the samples of this name and label; since 1.38 they have more labels."""
    return sum(count for (found_name, *labels), count in found.items() if found_name == name and label in labels)


def test_groups_are_counted_as_by_kube_scheduler(plane: GroupControlPlane, tmp_path: Path) -> None:
    with plane.scheduler(gates=GATES) as scheduler:
        theirs = work(plane, lambda: scrape(plane, scheduler))
    clean_up(plane)
    with schedule(plane.kubeconfig, tmp_path, "--feature-gates", ",".join(GATES)) as ours_running:
        ours = work(plane, lambda: ours_running.get("/metrics")[1])
    assert ours[:2] == theirs[:2]
    assert total(ours[0], "scheduler_placement_evaluations_total", "result=infeasible") == 1
    assert total(ours[1], "scheduler_preemption_workload_disruptions_sum", "preemptor=podgroup") == 2
    names = {f"scheduler_{name}" for name in (*PLACEMENTS, *PREEMPTION)}
    assert {name: ours[2][name] for name in names} == {name: theirs[2][name] for name in names}
