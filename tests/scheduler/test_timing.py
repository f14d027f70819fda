"""Timed decisions: every hundredth is, it is decided as the others are, and each point and plugin is told once."""

from __future__ import annotations

from random import Random

import pytest

from extender.policy.providers import provider
from extender.runtime.clock import ManualClock
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle, Unfit
from extender.scheduler.timing import EVERY, ProfileTimer
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of


class Told:
    """A PluginTelemetry that keeps what it is told."""

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
def test_a_decision_tells_its_points_in_order(cpu: str, points: list[tuple[str, str]]) -> None:
    told, (decided,) = decide(cpu)
    assert isinstance(decided, Chosen if cpu == "1" else Unfit)
    assert told.points == points
    assert ("NodeResourcesFit", "Filter", points[1][1]) in told.plugins
    assert ("VolumeBinding", "PreFilter", "Skip") in told.plugins


def decide(*requests: str) -> tuple[Told, list[Chosen | Unfit]]:
    """Decides about pods that request so much CPU; what is asked twice would be answered from a ranking."""
    told, profile = Told(), provider("DefaultProvider")
    cycle = SchedulingCycle(profile, Random(0), timer=ProfileTimer(ManualClock(), told))
    table = table_of(make_node("n1").obj(), make_node("n2").obj())
    pods = [pod_info(make_pod("p").req(cpu=cpu).obj()) for cpu in requests]
    return told, [cycle.schedule_pod(pod, table) for pod in pods]


def test_one_of_a_hundred_is_timed() -> None:
    told, _ = decide(*(f"{1000 + i}m" for i in range(2 * EVERY + 1)))
    assert told.points.count(("Filter", "Success")) == 3
