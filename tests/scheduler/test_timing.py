"""Timed decisions: every hundredth is, it is decided as the others are, and each point and plugin is reported once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from extender import Node, Pod, permit, pre_bind, reserve
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen, Failure
from extender.errors import BindingFailed, OutcomeUnknown, Outdated, Refused
from extender.plugins.registry import default_profile
from extender.runtime.clock import ManualClock
from extender.scheduler.timing import EVERY, ProfileTimer, status_of
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users.failures import Remembered
from tests.scheduler.world import NAME, Telemetry, World


class PluginTimes:
    """A PluginTelemetry that keeps the times in lists."""

    def __init__(self) -> None:
        self.points: list[tuple[str, str]] = []
        self.plugins: list[tuple[str, str, str]] = []

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        assert profile == "default-scheduler"
        self.points.append((point, status))

    def plugin_executed(self, plugin: str, point: str, status: str, seconds: float) -> None:
        self.plugins.append((plugin, point, status))


@pytest.mark.parametrize(
    ("cpu", "points"),
    [
        ("1", [("PreFilter", "Success"), ("Filter", "Success"), ("PreScore", "Success"), ("Score", "Success")]),
        ("900", [("PreFilter", "Success"), ("Filter", "Unschedulable"), ("PostFilter", "Unschedulable")]),
    ],
)
def test_a_decision_reports_its_points_in_order(cpu: str, points: list[tuple[str, str]]) -> None:
    recorded, (decided,) = decide(cpu)
    assert isinstance(decided, Chosen if cpu == "1" else Failure)
    assert recorded.points == points
    assert ("NodeResourcesFit", "Filter", points[1][1]) in recorded.plugins
    assert ("VolumeBinding", "PreFilter", "Skip") in recorded.plugins


def decide(*requests: str) -> tuple[PluginTimes, list[Chosen | Failure]]:
    """Decides about pods that request so much CPU; what is asked twice would be answered from a ranking."""
    recorded, profile = PluginTimes(), default_profile()
    cycle = SchedulingCycle(profile, Random(0), timer=ProfileTimer(ManualClock(), recorded))
    table = table_of(make_node("n1").obj(), make_node("n2").obj())
    pods = [pod_info(make_pod("p").req(cpu=cpu).obj()) for cpu in requests]
    return recorded, [cycle.schedule_pod(pod, table) for pod in pods]


def test_a_timed_decision_leaves_room_for_a_nominated_pod() -> None:
    nominated = make_pod("nominated").req(cpu="4").priority(9).nominated("n1").obj()
    nodes = [make_node(name).allocatable(cpu="4", memory="8Gi", pods="10").obj() for name in ("n1", "n2")]
    cycle = SchedulingCycle(default_profile(), Random(0), timer=ProfileTimer(ManualClock(), PluginTimes()))
    decided = cycle.schedule_pod(pod_info(make_pod("p").req(cpu="1").obj()), table_of(*nodes, nominated))
    assert isinstance(decided, Chosen)
    assert decided.node_name == "n2"


def test_one_of_a_hundred_is_timed() -> None:
    recorded, _ = decide(*(f"{1000 + i}m" for i in range(2 * EVERY + 1)))
    assert recorded.points.count(("Filter", "Success")) == 3


AFTER = ("Reserve", "Permit", "PreBind", "Bind")


def passed(*pods: PodBuilder, answer: object = None, **objects: Any) -> Telemetry:
    """A loop with a rule of Reserve, one of Permit, which answers so, and one of PreBind."""

    @reserve
    def note(pod: Pod, node: Node) -> None:
        pass

    @permit
    def let_pass(pod: Pod, node: Node) -> object:
        return answer

    @pre_bind
    def prepare(pod: Pod, node: Node) -> None:
        pass

    rules = [rule.rule(name, {}, Remembered()) for name, rule in (("note", note), ("let-pass", let_pass))]
    telemetry, profile = Telemetry(), default_profile()
    if objects:
        profile = replace(profile, permit=rules, pre_bind=[prepare.rule("prepare", {}, Remembered())])
    world = World(node(), *objects.values(), *pods, profile=profile, telemetry=telemetry)
    world.settle()
    world.volumes.complete()
    world.settle()
    telemetry.points = [each for each in telemetry.points if each[0] in AFTER]
    telemetry.plugins = [each for each in telemetry.plugins if each[1] in AFTER]
    return telemetry


def pod(name: str) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu="1")


VOLUME = {
    "kind": make_storage_class("late", provisioner="kubernetes.io/no-provisioner"),
    "volume": make_pv("v", storage_class="late"),
    "claim": make_pvc("c", storage_class="late"),
}


def test_what_comes_after_the_decision_is_reported_by_point_and_plugin() -> None:
    recorded = passed(pod("p").pvc("c"), **VOLUME)
    assert sorted(recorded.points) == sorted((point, "Success") for point in AFTER)
    assert recorded.plugins == [
        ("VolumeBinding", "Reserve", "Success"),
        ("note", "Reserve", "Success"),
        ("let-pass", "Permit", "Success"),
        ("VolumeBinding", "PreBind", "Success"),
        ("prepare", "PreBind", "Success"),
        ("DefaultBinder", "Bind", "Success"),
    ]


def test_a_pod_that_a_rule_rejects_passes_no_further() -> None:
    recorded = passed(pod("p").pvc("c"), answer="not now", **VOLUME)
    assert recorded.points == [("Reserve", "Success"), ("Permit", "Unschedulable")]


def test_points_where_nothing_is_to_be_done_are_passed_by_one_of_a_hundred_and_every_bind_is_measured() -> None:
    recorded = passed(*(pod(f"p{i}") for i in range(EVERY + 1)))
    expected = {("Reserve", "Success"): 2, ("Permit", "Success"): 2, ("PreBind", "Success"): 2}
    assert Counter(recorded.points) == {**expected, ("Bind", "Success"): EVERY + 1}
    assert recorded.plugins == 2 * [("DefaultBinder", "Bind", "Success")]


@pytest.mark.parametrize(
    ("fault", "status"), [(Refused("no", 403), "Error"), (OutcomeUnknown("silence"), "Error"), (None, "Success")]
)
def test_the_measured_time_of_a_bind_has_its_outcome(fault: Exception | None, status: str) -> None:
    world = World(node(), pod("p"))
    world.faults += [fault] if fault else []
    world.attempt()
    world.binders.work()
    assert [each for each in world.telemetry.points if each[0] == "Bind"] == [("Bind", status)]
    assert world.telemetry.bind_seconds == [0.0]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "Success"),
        (BindingFailed("no licence"), "Unschedulable"),
        (Outdated("the claim has changed"), "Unschedulable"),
        (Refused("no", 403), "Error"),
        (KeyError("a defect"), "Error"),
    ],
)
def test_an_error_decides_the_status_of_its_extension_point(error: Exception | None, status: str) -> None:
    assert status_of(error).value == status


def test_the_time_of_the_decision_ends_before_the_pod_is_assumed() -> None:
    clock: list[ManualClock] = []

    @reserve
    def slow(pod: Pod, node: Node) -> None:
        clock[0].advance(5)

    rule = slow.rule("slow", {}, Remembered())
    world = World(node(), pod("p"), profile=replace(default_profile(), permit=[rule]))
    clock.append(world.clock)
    world.settle()
    assert (world.node_of("p"), world.telemetry.decisions) == ("n", [0.0])


def test_pre_enqueue_is_measured_for_the_sample() -> None:
    world = World(node(), pod("gated").gate("wait"), *(pod(f"p{i}") for i in range(EVERY)))
    points = Counter(each for each in world.telemetry.points if each[0] == "PreEnqueue")
    assert points == {("PreEnqueue", "Unschedulable"): 1, ("PreEnqueue", "Success"): 1}


def node() -> NodeBuilder:
    size = {"cpu": "400", "memory": "16Gi", "pods": "400"}
    return make_node("n").capacity(**size).allocatable(**size)
