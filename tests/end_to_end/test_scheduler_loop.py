"""`extender schedule` in the place of kube-scheduler, on the real API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.builders import PodBuilder, make_node, make_pod, make_priority_class
from tests.builders.storage import make_pvc, make_storage_class
from tests.end_to_end.conftest import EXTENDER, Running
from tests.end_to_end.workload import nodes, pods, violations
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

NAME = "default-scheduler"


class RunningScheduler(Running):
    """`extender schedule`, its pages on a free port."""

    def ready(self) -> bool:
        return self.readiness()[0] == 200

    def readiness(self) -> tuple[int, str]:
        """What /readyz says; 0 while nobody listens yet."""
        try:
            return self.get("/readyz")
        except OSError:
            return 0, ""


StartScheduler = Callable[..., AbstractContextManager[RunningScheduler]]


@pytest.fixture
def start_scheduler(control_plane: ControlPlane, tmp_path: Path) -> StartScheduler:
    """`with start_scheduler("--flag") as scheduler:` runs one until the block ends."""

    @contextmanager
    def start(*flags: str, wait: bool = True) -> Iterator[RunningScheduler]:
        port = free_port()
        chosen: list[str | Path] = ["--kubeconfig", control_plane.kubeconfig, "--bind", f"127.0.0.1:{port}"]
        elect = [] if "--leader-elect" in flags else ["--no-leader-elect"]
        chosen += ["--scheduler-name", NAME, *elect, *flags]
        process = Process("schedule", [EXTENDER, "schedule", *chosen], tmp_path / f"{port}.log")
        scheduler = RunningScheduler(process, port)
        try:
            if wait:
                process.wait_until(scheduler.ready, timeout_seconds=30)
            yield scheduler
        finally:
            process.stop()

    return start


def placed(control_plane: ControlPlane) -> dict[str, str]:
    listed = control_plane.client.list("Pod", "default")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName")}


def condition(control_plane: ControlPlane, name: str, kind: str = "PodScheduled") -> dict[str, Any]:
    conditions = control_plane.client.get("Pod", name)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def events(control_plane: ControlPlane, reason: str) -> list[Any]:
    return [event for event in control_plane.client.list("Event", "default") if event["reason"] == reason]


def sized(name: str, cpu: str) -> Any:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110").obj()


def asking(name: str, cpu: str) -> PodBuilder:
    return make_pod(name).req(cpu=cpu).grace(0)


def test_500_pods_of_many_shapes_find_lawful_places(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    random, client = Random(7), control_plane.client
    client.create(*nodes(50, random))
    client.create(*pods(500, random))
    with start_scheduler() as scheduler:
        assert wait_until(lambda: len(placed(control_plane)) == 500, 60)
        assert violations(client.list("Node"), client.list("Pod")) == []
        attempts = f'scheduler_schedule_attempts_total{{profile="{NAME}",result="scheduled"}}'
        assert wait_until(lambda: scheduler.metric(attempts) == 500)
        assert wait_until(lambda: len(events(control_plane, "Scheduled")) == 500)
        assert wait_until(lambda: not json.loads(scheduler.get("/debug/pods")[1])["assumed"])
        assert scheduler.metric('scheduler_pending_pods{queue="active"}') == 0


def test_a_pod_without_room_is_told_why_and_placed_once_there_is(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client = control_plane.client
    client.create(sized("small", "1"), asking("big", "2").obj(), asking("theirs", "1").scheduler("another").obj())
    with start_scheduler() as scheduler:
        assert wait_until(lambda: condition(control_plane, "big"))
        assert condition(control_plane, "big")["reason"] == "Unschedulable"
        assert condition(control_plane, "big")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert wait_until(lambda: events(control_plane, "FailedScheduling"))
        assert json.loads(scheduler.get("/debug/pods")[1])["unschedulable"] == ["default/big"]
        client.create(sized("large", "4"))
        assert wait_until(lambda: placed(control_plane) == {"big": "large"})


def test_preemption(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    client = control_plane.client
    client.create(*(sized(f"n{i}", "2") for i in range(3)))
    client.create(make_priority_class("high", 1000), make_priority_class("low", 1))
    with start_scheduler() as scheduler:
        client.create(*(asking(f"low-{i}", "2").priority_class("low").obj() for i in range(3)))
        assert wait_until(lambda: len(placed(control_plane)) == 3)
        client.create(asking("high", "2").priority_class("high").obj())
        assert wait_until(lambda: "high" in placed(control_plane))
        assert len(placed(control_plane)) == 3
        assert scheduler.metric("scheduler_preemption_attempts_total") == 1
        assert wait_until(lambda: events(control_plane, "Preempted"))


def test_a_victim_with_grace_is_waited_for(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    client = control_plane.client
    client.create(sized("n1", "2"), sized("n2", "2"))
    client.create(make_priority_class("high", 1000), make_priority_class("low", 1))
    with start_scheduler():
        client.create(*(asking(f"low-{i}", "2").grace(60).priority_class("low").obj() for i in range(2)))
        assert wait_until(lambda: len(placed(control_plane)) == 2)
        client.create(asking("high", "2").priority_class("high").obj())
        terminating = wait_until(
            lambda: [pod for pod in client.list("Pod", "default") if "deletionTimestamp" in pod["metadata"]]
        )
        assert len(terminating) == 1
        victim = terminating[0]["metadata"]["name"]
        assert condition(control_plane, victim, "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        node = placed(control_plane)[victim]
        assert wait_until(lambda: client.get("Pod", "high")["status"].get("nominatedNodeName")) == node
        client.patch("Node", "n1", {"metadata": {"labels": {"wake": "up"}}})
        client.delete("Pod", victim)
        assert wait_until(lambda: placed(control_plane).get("high")) == node
        assert len(placed(control_plane)) == 2


def test_a_pod_whose_volumes_are_to_be_bound_is_left_waiting(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client = control_plane.client
    client.create(sized("n1", "2"), make_storage_class("late"), make_pvc("c", storage_class="late"))
    client.create(asking("p", "1").pvc("c").obj())
    with start_scheduler():
        assert wait_until(lambda: condition(control_plane, "p"))
        assert "does not bind them" in condition(control_plane, "p")["message"]
        assert placed(control_plane) == {}


def test_of_two_only_the_leader_schedules_and_the_other_takes_over(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client = control_plane.client
    client.create(sized("n1", "4"))
    with start_scheduler("--leader-elect") as first, start_scheduler("--leader-elect", wait=False) as second:
        client.create(asking("a", "1").obj())
        assert wait_until(lambda: "a" in placed(control_plane))
        assert wait_until(lambda: "held by" in second.readiness()[1])
        first.process.stop()
        second.process.wait_until(second.ready, timeout_seconds=30)
        client.create(asking("b", "1").obj())
        assert wait_until(lambda: "b" in placed(control_plane))


def test_it_ends_at_sigterm(start_scheduler: StartScheduler) -> None:
    with start_scheduler() as scheduler:
        assert scheduler.process.stop() == 0


def test_a_name_that_no_profile_has_is_an_error(control_plane: ControlPlane, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    profiles = [{"schedulerName": "one"}, {"schedulerName": "two"}]
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy.write_text(json.dumps({**header, "profiles": profiles}))
    command: list[str | Path] = [EXTENDER, "schedule", "--kubeconfig", control_plane.kubeconfig, "--policy", policy]
    told = subprocess.run([*command, "--scheduler-name", "three"], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (
        2,
        "error: --scheduler-name three: the policy has profiles for one, two\n",
    )
