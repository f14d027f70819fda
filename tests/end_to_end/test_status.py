"""`extender status` of a scheduler that has pods in several places, on the real API server."""

from __future__ import annotations

import json

import pytest

from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import placed
from tests.running import RunningScheduler
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def status_of(scheduler: RunningScheduler, *arguments: str) -> str:
    server = f"http://127.0.0.1:{scheduler.port}"
    answered = extender("status", "--server", server, *arguments)
    assert answered.returncode == 0, answered.stderr
    return answered.stdout


def test_where_pods_are_and_why(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    client = control_plane.client
    client.create(make_node("n").capacity(cpu="1", memory="1Gi", pods="10").obj())
    client.create(make_pod("fits").obj(), make_pod("gated").gate("later").obj())
    client.create(make_pod("big").req(cpu="2").obj(), make_pod("picky").node_selector(disk="ssd").obj())
    client.create(make_pod("theirs").scheduler("another").obj())
    with start_scheduler() as scheduler:
        assert wait_until(lambda: "fits" in placed(control_plane))
        assert wait_until(lambda: [line.split()[:4] for line in status_of(scheduler).splitlines()][1:] == [
            ["default", "big", "unschedulable", "1"],
            ["default", "picky", "unschedulable", "1"],
            ["default", "gated", "gated", "0"],
        ])  # fmt: skip
        seen = json.loads(status_of(scheduler, "-o", "json"))
        assert {pod["name"]: pod["refusedBy"] for pod in seen["pods"]} == {
            "big": ["NodeResourcesFit"],
            "picky": ["NodeAffinity"],
            "gated": ["SchedulingGates"],
        }
        assert seen["scheduled"] == 1
        assert all(pod["sinceSeconds"] < 60 for pod in seen["pods"])
        status, page = scheduler.get("/ui/pending.json")
        assert (status, {pod["name"]: pod["cause"] for pod in json.loads(page)["pending"]}) == (200, {
            "big": "Insufficient cpu",
            "picky": "node(s) didn't match Pod's node affinity/selector",
            "gated": "it is gated by later",
            "theirs": "fits on a node now",
        })  # fmt: skip
