"""`extender schedule` in the place of kube-scheduler, on the real API server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import Scene, asking, events, placed, sized
from tests.end_to_end.workload import nodes, pods, violations
from tests.running import SCHEDULER_NAME, RunningScheduler
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


def test_pods_of_many_shapes_find_lawful_places(scene: Scene) -> None:
    random, client, scheduler = Random(7), scene.client, scene.scheduler
    attempts = f'scheduler_schedule_attempts_total{{profile="{SCHEDULER_NAME}",result="scheduled"}}'
    before = scheduler.metric(attempts)
    scene.given(*nodes(50, random))
    scene.create(*pods(200, random))
    assert wait_until(lambda: len(scene.placed()) == 200, 180)
    assert violations(client.list("Node"), client.list("Pod")) == []
    assert wait_until(lambda: scheduler.metric(attempts) == before + 200)
    names = scene.pods()
    assert wait_until(
        lambda: sorted(name for name in pods_of_events(scene, "Scheduled") if name in names) == sorted(names)
    )
    assert wait_until(lambda: not json.loads(scheduler.get("/debug/pods")[1])["assumed"])
    assert scheduler.metric('scheduler_pending_pods{queue="active"}') == 0


def pods_of_events(scene: Scene, reason: str) -> list[str]:
    """Returns the pod of each event with this reason; the last events of another test may come late."""
    return [event["involvedObject"]["name"] for event in events(scene.control_plane, reason)]


def test_a_pod_without_room_shows_why_and_is_placed_once_there_is_room(scene: Scene) -> None:
    scene.given(sized("small", "1"))
    scene.create(asking("big", "2"), asking("theirs", "1").scheduler("another"))
    assert scene.refusal_of("big").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert wait_until(lambda: "big" in pods_of_events(scene, "FailedScheduling"))
    (waiting,) = wait_until(lambda: json.loads(scene.scheduler.get("/debug/pods")[1])["unschedulable"])
    assert (waiting["name"], waiting["refusedBy"]) == ("big", ["NodeResourcesFit"])
    scene.create(sized("large", "4"))
    assert wait_until(lambda: scene.placed() == {"big": "large"})


def test_the_cache_is_compared_at_sigusr2_and_on_demand_and_dumped(scene: Scene) -> None:
    scheduler = scene.scheduler
    scene.given(sized("n1", "4"), asking("p", "1"))
    assert scene.place_of("p") == "n1"
    before = scheduler.process.log.read_text().count("cache compared ")
    os.kill(scheduler.process.pid, signal.SIGUSR2)
    assert wait_until(lambda: scheduler.process.log.read_text().count("cache compared ") > before)
    assert wait_until(lambda: not json.loads(scheduler.get("/debug/pods")[1])["assumed"])
    dumped = json.loads(scheduler.get("/debug/cache/dump")[1])
    assert [(pod["key"], pod["node"]) for pod in dumped["pods"]] == [("default/p", "n1")]
    status, report = scheduler.get("/debug/cache/compare", "POST")
    assert (status, json.loads(report)["differences"]) == (200, [])
    assert scheduler.get("/readyz?verbose")[1].count("watches") == 1


def test_its_threads_keep_to_one_cpu(scene: Scene) -> None:
    scene.given(sized("n1", "4"), asking("p", "1"))
    assert scene.place_of("p") == "n1"
    allowed = list(cpus_of_threads(scene.scheduler.process.pid))
    assert len(allowed) > 1
    assert set(allowed) == {1}


def cpus_of_threads(pid: int) -> Iterator[int]:
    """Yields for each thread of a process on how many CPUs it may run."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has just ended
            yield len(os.sched_getaffinity(int(thread.name)))


def test_of_two_only_the_leader_schedules_and_the_other_takes_over_when_it_ends_at_sigterm(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    client, flags = control_plane.client, ("--leader-elect", "--scheduler-name", "elected")
    client.create(sized("n1", "4").obj())
    with start_scheduler(*flags, named=False) as first:
        assert wait_until(lambda: leads(first) == 1)
        with start_scheduler(*flags, named=False) as second:
            client.create(asking("a", "1").scheduler("elected").obj())
            assert wait_until(lambda: "a" in placed(control_plane))
            assert [leads(each) for each in (first, second)] == [1, 0]
            assert second.ready()  # so that roll-outs settle; no other process calls a scheduler
            assert first.process.stop() == 0
            assert wait_until(lambda: leads(second) == 1)
            client.create(asking("b", "1").scheduler("elected").obj())
            assert wait_until(lambda: "b" in placed(control_plane))


def leads(scheduler: RunningScheduler) -> float:
    return scheduler.metric('extender_leader{name="extender-scheduler"}')
