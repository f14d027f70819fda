"""Pods that wait at Permit, on a real API server: what ends a wait besides the rule, in the loop and the webhook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import PodBuilder, make_pod, make_priority_class
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import events, placed, sized
from tests.running import SCHEDULER_NAME, RunningExtender
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]
RULES = """
from pathlib import Path

from extender import NodeInfo, Pod, Wait, permit, predicate, reserve


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete"})
def one_painter(pod: Pod, node: NodeInfo):
    return "node(s) had a painter" if node.pods.count({"paint": "yes"}) else None


def note(file, text):
    with Path(file).open("a") as lines:
        lines.write(text + "\\n")


@reserve
def take(pod: Pod, node, *, file: str):
    note(file, f"reserve {pod.name}")


@take.unreserve
def give_back(pod: Pod, node, *, file: str):
    note(file, f"unreserve {pod.name}")


@permit
def hold(pod: Pod, node):
    return Wait(60) if "hold" in pod.labels else None
"""
PAINTERS = {"filter": "one_painter", "reserve": "take", "permit": "hold"}


@pytest.fixture
def policy(tmp_path: Path) -> str:
    (tmp_path / "painters.py").write_text(RULES)
    profile = {
        "schedulerName": SCHEDULER_NAME,
        "plugins": {point: {"enabled": [{"name": f"painters:{rule}"}]} for point, rule in PAINTERS.items()},
        "pluginConfig": [{"name": "painters:take", "args": {"file": str(tmp_path / "notes")}}],
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "policy.yaml").write_text(json.dumps({**header, "profiles": [profile]}))
    return str(tmp_path / "policy.yaml")


def painter(name: str, **labels: str) -> PodBuilder:
    return make_pod(name).req(cpu="1").label(paint="yes", **labels).grace(60)


def patient(extender: RunningExtender) -> dict[str, Any]:
    """Makes kube-scheduler wait for a bind longer than `--permit-seconds`."""
    configuration = extender.configuration()
    (entry,) = configuration["extenders"]
    return {**configuration, "extenders": [{**entry, "httpTimeout": "60s"}]}


def notes(folder: Path) -> list[str]:
    file = folder / "notes"
    return file.read_text().splitlines() if file.exists() else []


def test_the_bind_of_a_deleted_pod_ends(
    control_plane: ControlPlane, start_extender: StartExtender, policy: str, tmp_path: Path
) -> None:
    client = control_plane.client
    with start_extender("--policy", policy, "--permit-seconds", "50") as extender:
        client.create(sized("n", "4").obj())
        with control_plane.scheduler(patient(extender)):
            client.create(painter("held", hold="yes").grace(0).obj())
            assert wait_until(lambda: notes(tmp_path) == ["reserve held"])
            client.delete("Pod", "held")
            assert wait_until(lambda: notes(tmp_path) == ["reserve held", "unreserve held"])
            (call,) = wait_until(lambda: extender.calls("bind"))
            assert (call["error"], call["ms"] < 40_000) == ("pod default/held no longer exists", True)


def preempt_the_waiting_pod(control_plane: ControlPlane, folder: Path) -> None:
    """A pod takes the place of one that waits at Permit, which is rejected and not deleted."""
    client = control_plane.client
    client.create(make_priority_class("high", 1000), sized("n", "4").obj(), painter("held", hold="yes").obj())
    assert wait_until(lambda: notes(folder) == ["reserve held"])
    client.create(painter("p").priority_class("high").obj())
    assert wait_until(lambda: placed(control_plane) == {"p": "n"})
    assert notes(folder)[:2] == ["reserve held", "unreserve held"]
    assert "deletionTimestamp" not in client.get("Pod", "held")["metadata"]
    (event,) = wait_until(lambda: events(control_plane, "Preempted"))
    assert event["involvedObject"]["name"] == "held"
    assert event["message"].endswith("on node n before it was bound")


def test_a_preemptor_rejects_it_in_the_loop(
    control_plane: ControlPlane, start_scheduler: StartScheduler, policy: str, tmp_path: Path
) -> None:
    with start_scheduler("--policy", policy):
        preempt_the_waiting_pod(control_plane, tmp_path)


def test_a_preemptor_rejects_it_in_the_webhook(
    control_plane: ControlPlane, start_extender: StartExtender, policy: str, tmp_path: Path
) -> None:
    flags = ("--policy", policy, "--permit-seconds", "50", "--preempt-for-rules")
    with start_extender(*flags) as extender, control_plane.scheduler(patient(extender)):
        preempt_the_waiting_pod(control_plane, tmp_path)
