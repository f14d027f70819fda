"""Gangs over a resource that only a user's rule knows, while scheduler, extender and API server are killed.

kube-scheduler's own filters see room everywhere, so it is the webhook alone that keeps gangs together.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.builders import Object, make_node, make_pod, make_pod_group
from tests.end_to_end.group_plane import FLAGS, GATES, GroupControlPlane
from tests.faults.mortal import MortalExtender
from tests.faults.sizes import GANGS, SEED, SETTLE_SECONDS, SOAKING
from tests.running import SCHEDULER_NAME
from tests.stock.build import Binaries
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(14400 if SOAKING else 300)]

NODES, PLACES = 16, 5
IN_ROUND = 12
"""The gangs that compete in one round: they have some 108 members for 80 places."""
QUIET_SECONDS = 3.0
RULE = """
from extender import NodeInfo, Pod, predicate


@predicate(sees_pods=True)
def a_place(pod: Pod, node: NodeInfo) -> object:
    return len(node.pods) < int(node.labels["places"]) or "no place is free"
"""
POLICY = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": SCHEDULER_NAME, "plugins": {"filter": {"enabled": [{"name": "places:a_place"}]}}},
    ],
}


@dataclass(frozen=True, slots=True)
class Gang:
    name: str
    size: int

    def objects(self) -> list[Object]:
        pods = [make_pod(f"{self.name}-{i}").req(cpu="10m").group(self.name).obj() for i in range(self.size)]
        return [make_pod_group(self.name, self.size), *pods]


class MortalScheduler:
    """kube-scheduler with the extender, through any number of deaths."""

    def __init__(self, plane: GroupControlPlane, extender: MortalExtender) -> None:
        self._plane = plane
        quick = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 3}
        self._configuration = {**extender.running.configuration(), **quick}
        self._stack = ExitStack()
        self._process: Process
        self.start()

    def start(self) -> None:
        context = self._plane.scheduler(self._configuration, gates=GATES[:1])
        self._process = self._stack.enter_context(context)

    def kill(self) -> None:
        self._process.kill()
        self.start()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[GroupControlPlane]:
    with GroupControlPlane(stock_binaries, tmp_path / "plane") as plane:
        yield plane


@contextmanager
def cluster(plane: GroupControlPlane, directory: Path) -> Iterator[tuple[MortalExtender, MortalScheduler]]:
    (directory / "places.py").write_text(RULE)
    (directory / "policy.yaml").write_text(json.dumps(POLICY))
    flags = ("--kubeconfig", str(plane.kubeconfig), "--policy", str(directory / "policy.yaml"), *FLAGS)
    with MortalExtender(directory, *flags, "--settle-seconds", "2", "--activate-after-seconds", "2") as extender:
        scheduler = MortalScheduler(plane, extender)
        try:
            yield extender, scheduler
        finally:
            scheduler.close()


def restart_api_server(plane: GroupControlPlane) -> None:
    servers = [process for process in plane.processes if process.name in ("etcd", "kube-apiserver")]
    for process in reversed(servers):
        process.kill()
    plane.start_again()


def places(plane: GroupControlPlane) -> dict[str, str]:
    """Pod -> node of each pod that is bound; no node has more than its places."""
    pods = plane.client.list("Pod", "default")
    bound = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
    assert max(Counter(bound.values()).values(), default=0) <= PLACES
    return bound


def partly_bound(bound: dict[str, str], gangs: list[Gang]) -> dict[str, str]:
    counts = Counter(pod.rpartition("-")[0] for pod in bound)
    return {gang.name: f"{counts[gang.name]} of {gang.size}" for gang in gangs if 0 < counts[gang.name] < gang.size}


def fitting(bound: dict[str, str], gangs: list[Gang]) -> list[str]:
    """The gangs that wait although there are places for all their members."""
    free = NODES * PLACES - len(bound)
    return [gang.name for gang in gangs if f"{gang.name}-0" not in bound and gang.size <= free]


def settle(plane: GroupControlPlane, gangs: list[Gang]) -> dict[str, str]:
    """Returns what is bound once nothing is left to do and nothing has changed for a while, or the time is over."""
    last: dict[str, str] = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal last, since
        time.sleep(0.2)
        bound = places(plane)
        if bound != last:
            last, since = bound, time.monotonic()
        is_quiet = time.monotonic() - since > QUIET_SECONDS
        return is_quiet and not partly_bound(bound, gangs) and not fitting(bound, gangs)

    wait_until(is_settled, SETTLE_SECONDS)
    return last


def test_no_gang_is_partly_bound_after_any_death(plane: GroupControlPlane, tmp_path: Path) -> None:
    random = Random(SEED)
    nodes = [
        make_node(f"n{i}").label(places=str(PLACES)).capacity(cpu="64", memory="64Gi", pods="110") for i in range(NODES)
    ]
    plane.client.create(*(node.obj() for node in nodes))
    whole = deaths = 0
    slowest = 0.0
    with cluster(plane, tmp_path) as (extender, scheduler):
        kills = [
            lambda: extender.kill(worker_only=False),
            lambda: extender.kill(worker_only=True),
            scheduler.kill,
            lambda: restart_api_server(plane),
        ]
        for begin in range(0, GANGS, IN_ROUND):
            gangs = [Gang(f"gang{begin + i}", random.randint(2, 16)) for i in range(min(IN_ROUND, GANGS - begin))]
            for part in (gangs[turn::4] for turn in range(4)):
                plane.client.create_many(obj for gang in part for obj in gang.objects())
                time.sleep(random.uniform(0.02, 0.8))
                random.choice(kills)()
                deaths += 1
            began_at = time.monotonic()
            bound = settle(plane, gangs)
            slowest = max(slowest, time.monotonic() - began_at)
            assert (partly_bound(bound, gangs), fitting(bound, gangs)) == ({}, [])
            whole += len({pod.rpartition("-")[0] for pod in bound})
            clean_up_pods(plane)
        print(f"\ngangs: {whole} of {GANGS} bound whole, {deaths} deaths, settled after {slowest:.0f} s at most")
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("extender-*.log"))


def clean_up_pods(plane: GroupControlPlane) -> None:
    for kind in ("Pod", "PodGroup"):
        for obj in plane.client.list(kind, "default"):
            name = obj["metadata"]["name"]
            if kind == "PodGroup" and obj["metadata"].get("finalizers"):
                plane.client.patch(kind, name, {"metadata": {"finalizers": None}})
            plane.client.delete(kind, name)
