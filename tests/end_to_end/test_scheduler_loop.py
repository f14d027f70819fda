"""`extender schedule` in the place of kube-scheduler, on the real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import asking, condition, events, placed, sized
from tests.end_to_end.workload import nodes, pods, violations
from tests.running import EXTENDER, SCHEDULER_NAME, RunningScheduler
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def test_pods_of_many_shapes_find_lawful_places(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    random, client = Random(7), control_plane.client
    client.create(*nodes(50, random))
    client.create(*pods(200, random))
    with start_scheduler() as scheduler:
        assert wait_until(lambda: len(placed(control_plane)) == 200, 180)
        assert violations(client.list("Node"), client.list("Pod")) == []
        attempts = f'scheduler_schedule_attempts_total{{profile="{SCHEDULER_NAME}",result="scheduled"}}'
        assert wait_until(lambda: scheduler.metric(attempts) == 200)
        assert wait_until(lambda: len(events(control_plane, "Scheduled")) == 200)
        assert wait_until(lambda: not json.loads(scheduler.get("/debug/pods")[1])["assumed"])
        assert scheduler.metric('scheduler_pending_pods{queue="active"}') == 0


def test_a_pod_without_room_shows_why_and_is_placed_once_there_is_room(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client = control_plane.client
    client.create(sized("small", "1").obj(), asking("big", "2").obj(), asking("theirs", "1").scheduler("another").obj())
    with start_scheduler() as scheduler:
        assert wait_until(lambda: condition(control_plane, "big"))
        assert condition(control_plane, "big")["reason"] == "Unschedulable"
        assert condition(control_plane, "big")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert wait_until(lambda: events(control_plane, "FailedScheduling"))
        (waiting,) = wait_until(lambda: json.loads(scheduler.get("/debug/pods")[1])["unschedulable"])
        assert (waiting["name"], waiting["refusedBy"]) == ("big", ["NodeResourcesFit"])
        client.create(sized("large", "4").obj())
        assert wait_until(lambda: placed(control_plane) == {"big": "large"})


def test_the_cache_is_compared_at_sigusr2_and_on_demand_and_dumped(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    control_plane.client.create(sized("n1", "4").obj(), asking("p", "1").obj())
    with start_scheduler() as scheduler:
        assert wait_until(lambda: placed(control_plane) == {"p": "n1"})
        os.kill(scheduler.process.pid, signal.SIGUSR2)
        assert wait_until(lambda: "cache compared " in scheduler.process.log.read_text())
        assert wait_until(lambda: not json.loads(scheduler.get("/debug/pods")[1])["assumed"])
        dumped = json.loads(scheduler.get("/debug/cache/dump")[1])
        assert [(pod["key"], pod["node"]) for pod in dumped["pods"]] == [("default/p", "n1")]
        status, report = scheduler.get("/debug/cache/compare", "POST")
        assert (status, json.loads(report)["differences"]) == (200, [])
        assert scheduler.get("/readyz?verbose")[1].count("watches") == 1


def test_of_two_only_the_leader_schedules_and_the_other_takes_over(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client = control_plane.client
    client.create(sized("n1", "4").obj())
    with start_scheduler("--leader-elect") as first:
        assert wait_until(lambda: leads(first) == 1)
        with start_scheduler("--leader-elect") as second:
            client.create(asking("a", "1").obj())
            assert wait_until(lambda: "a" in placed(control_plane))
            assert [leads(each) for each in (first, second)] == [1, 0]
            assert second.ready()  # so that roll-outs settle; no other process calls a scheduler
            first.process.stop()
            assert wait_until(lambda: leads(second) == 1)
            client.create(asking("b", "1").obj())
            assert wait_until(lambda: "b" in placed(control_plane))


def leads(scheduler: RunningScheduler) -> float:
    return scheduler.metric('extender_leader{name="extender-scheduler"}')


def test_its_threads_keep_to_one_cpu(control_plane: ControlPlane, start_scheduler: StartScheduler) -> None:
    control_plane.client.create(sized("n1", "4").obj(), asking("p", "1").obj())
    with start_scheduler() as scheduler:
        assert wait_until(lambda: placed(control_plane) == {"p": "n1"})
        allowed = list(cpus_of_threads(scheduler.process.pid))
        assert len(allowed) > 1
        assert set(allowed) == {1}


def cpus_of_threads(pid: int) -> Iterator[int]:
    """Yields for each thread of a process on how many CPUs it may run."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has just ended
            yield len(os.sched_getaffinity(int(thread.name)))


def test_it_ends_at_sigterm(start_scheduler: StartScheduler) -> None:
    with start_scheduler() as scheduler:
        assert scheduler.process.stop() == 0


def test_a_name_that_no_profile_has_is_an_error(control_plane: ControlPlane, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    profiles = [{"schedulerName": "one"}, {"schedulerName": "two"}]
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy.write_text(json.dumps({**header, "profiles": profiles}))
    command: list[str | Path] = [EXTENDER, "schedule", "--kubeconfig", control_plane.kubeconfig, "--policy", policy]
    recorded = subprocess.run([*command, "--scheduler-name", "three"], capture_output=True, text=True, check=False)
    assert (recorded.returncode, recorded.stderr) == (
        2,
        "error: --scheduler-name three: the policy has profiles for one, two\n",
    )
