"""Processes that record while a real cluster changes under them: whatever threads did, a replay decides the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from extender.offline.recording.replay import UNJUDGED, replay
from tests.builders import make_node, make_pod, make_pod_group, make_priority_class
from tests.end_to_end.group_plane import FLAGS, GATES, GroupControlPlane
from tests.end_to_end.group_plane import bound as bound_members
from tests.end_to_end.workload import nodes, pods
from tests.running import ONLY_EXTENDER, schedule, serve
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]
PODS = 150


def bound(control_plane: ControlPlane) -> int:
    listed = control_plane.client.list("Pod", "default")
    return sum(bool(pod["spec"].get("nodeName")) for pod in listed)


@pytest.mark.parametrize("names", [pytest.param(True, id="names"), pytest.param(False, id="full")])
def test_every_call_of_the_stock_scheduler_is_decided_again_as_it_was(
    control_plane: ControlPlane, tmp_path: Path, names: bool
) -> None:
    random, path = Random(11), tmp_path / "recording.jsonl.gz"
    control_plane.client.create(*nodes(20, random))
    with (
        serve(control_plane.kubeconfig, tmp_path, "--record", str(path)) as extender,
        control_plane.scheduler(extender.configuration(names=names, plugins=ONLY_EXTENDER)),
    ):
        control_plane.client.create(*pods(PODS, random))
        assert wait_until(lambda: bound(control_plane) == PODS)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["bind"] >= PODS
    assert result.decided["filter"] >= PODS
    assert set(result.left_out) <= {UNJUDGED}


def test_every_attempt_of_the_loop_is_decided_again_as_it_was(control_plane: ControlPlane, tmp_path: Path) -> None:
    random, path = Random(12), tmp_path / "recording.jsonl.gz"
    control_plane.client.create(*nodes(20, random))
    with schedule(control_plane.kubeconfig, tmp_path, "--record", str(path)):
        control_plane.client.create(*pods(PODS, random))
        assert wait_until(lambda: bound(control_plane) == PODS)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["attempt"] >= PODS


def test_members_of_gangs_are_decided_again_as_they_were(stock_binaries: Binaries, tmp_path: Path) -> None:
    """Gangs that fit, one that never fits, and one that evicts pods."""
    path = tmp_path / "recording.jsonl.gz"
    with (
        GroupControlPlane(stock_binaries, tmp_path / "plane") as plane,
        serve(plane.kubeconfig, tmp_path, *FLAGS, "--record", str(path)) as extender,
        plane.scheduler(extender.configuration(), gates=GATES[:1]),
    ):
        plane.client.create(make_priority_class("high", 100))
        plane.client.create(*(make_node(f"n{i}").capacity(cpu="4", memory="64Gi", pods="110").obj() for i in range(8)))
        create_gang(plane, "endless", 40, "1")
        for number in range(5):
            create_gang(plane, f"g{number}", 4, "1")
        assert wait_until(lambda: len(bound_members(plane)) == 20)
        create_gang(plane, "high", 4, "4", "high")
        assert wait_until(lambda: {f"high-{i}" for i in range(4)} <= bound_members(plane).keys())
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["plan"] >= 7
    assert set(result.left_out) <= {UNJUDGED}


def create_gang(plane: GroupControlPlane, name: str, size: int, cpu: str, priority: str = "") -> None:
    fields = {"priorityClassName": priority} if priority else {}
    members = [make_pod(f"{name}-{i}").req(cpu=cpu).group(name).grace(0).spec(**fields).obj() for i in range(size)]
    plane.client.create(make_pod_group(name, size, **fields), *members)
