"""Gangs over a resource that only a user's rule knows, while scheduler, extender, API server or leaders come to an end.

kube-scheduler's own filters see room everywhere, so it is the webhook alone that keeps gangs together.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.builders import Object, make_node, make_pod, make_pod_group
from tests.end_to_end.group_plane import FLAGS, GATES, GroupControlPlane
from tests.end_to_end.service import Service
from tests.faults.client import Request
from tests.faults.contender import Contender
from tests.faults.injection import FAULTS, Call, Fault, Injector, Severity
from tests.faults.mortal import MortalExtender
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.faults.sizes import GANGS, SEED, SETTLE_SECONDS, SOAKING
from tests.faults.test_two_leaders import ELECTION, killed, terminated
from tests.running import SCHEDULER_NAME, RunningExtender
from tests.stock.build import Binaries
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(14400 if SOAKING else 300), pytest.mark.slow]

NODES, PLACES = 16, 5
IN_ROUND = 12
"""The gangs that compete in one round: they have some 108 members for 80 places."""
QUIET_SECONDS = 3.0
TAKE_OVER_SECONDS = 60.0
SLOW_BINDS = Severity(
    {Call.BIND: 1.0},
    hang_seconds=(0.05, 0.6),
    faults={**FAULTS, Call.BIND: (*[Fault.DELAYED] * 6, Fault.HUNG, Fault.THROTTLED)},
)
"""Binding a gang takes a while, and of eight Bindings two are lost: one without an answer, one with a refusal."""
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

    def __init__(self, plane: GroupControlPlane, configuration: dict[str, Any]) -> None:
        self._plane = plane
        self._configuration = {**configuration, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 3}
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


def flags(kubeconfig: Path, directory: Path) -> list[str]:
    """Writes the rule and its policy; returns the flags of an extender that uses them."""
    (directory / "places.py").write_text(RULE)
    (directory / "policy.yaml").write_text(json.dumps(POLICY))
    quick = ("--settle-seconds", "2", "--activate-after-seconds", "2")
    return ["--kubeconfig", str(kubeconfig), "--policy", str(directory / "policy.yaml"), *FLAGS, *quick]


@contextmanager
def cluster(plane: GroupControlPlane, directory: Path) -> Iterator[tuple[MortalExtender, MortalScheduler]]:
    with (
        MortalExtender(directory, *flags(plane.kubeconfig, directory)) as extender,
        closing(MortalScheduler(plane, extender.running.configuration())) as scheduler,
    ):
        yield extender, scheduler


@dataclass(frozen=True)
class Replicas:
    """Two replicas behind a Service, which kube-scheduler calls, and a proxy before the API server."""

    both: tuple[Contender, Contender]
    proxy: FaultyProxy
    plane: GroupControlPlane

    def leader_and_other(self) -> tuple[Contender, Contender]:
        assert wait_until(lambda: any(each.ready() for each in self.both), TAKE_OVER_SECONDS)
        leader, other = sorted(self.both, key=lambda each: not each.ready())
        return leader, other

    def depose(self, _: Contender, other: Contender) -> None:
        """Loses the leader's renewals until the other leads; then the old leader lives on as the standby."""
        holder = self.plane.client.get("Lease", "extender")["spec"]["holderIdentity"].encode()

        def is_renewal(request: Request) -> bool:
            return request.name.startswith("PUT ") and "/leases/" in request.name and holder in request.data

        self.proxy.hold(is_renewal, resets=True)
        assert wait_until(other.ready, TAKE_OVER_SECONDS)
        self.proxy.let_pass()

    def end_a_leader(self, end: Callable[[Contender, Contender], None], gangs: list[Gang], random: Random) -> bool:
        """Ends a leader that has bound pods, at a random moment; returns True if a gang is partly bound then."""
        leader, other = self.leader_and_other()
        before = places(self.plane)
        wait_until(lambda: places(self.plane) != before, 5.0)
        time.sleep(random.uniform(0.0, 0.6))
        is_split = bool(partly_bound(places(self.plane), gangs))
        end(leader, other)
        return is_split


@contextmanager
def two_replicas(plane: GroupControlPlane, directory: Path) -> Iterator[Replicas]:
    with proxy_before(plane, Injector(SEED, SLOW_BINDS)) as proxy:
        options = [*flags(kubeconfig_through(proxy, plane, directory), directory), *ELECTION]
        with (
            Contender(directory, *options) as one,
            Contender(directory, *options) as two,
            Service([(each.port, each.ready) for each in (one, two)]) as service,
            closing(MortalScheduler(plane, RunningExtender(one.running.process, service.port).configuration())),
        ):
            yield Replicas((one, two), proxy, plane)


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


def create_nodes(plane: GroupControlPlane) -> None:
    nodes = [
        make_node(f"n{i}").label(places=str(PLACES)).capacity(cpu="64", memory="64Gi", pods="110") for i in range(NODES)
    ]
    plane.client.create(*(node.obj() for node in nodes))


def rounds(random: Random, number: int) -> Iterator[list[Gang]]:
    """Yields so many gangs, in rounds."""
    for begin in range(0, number, IN_ROUND):
        yield [Gang(f"gang{begin + i}", random.randint(2, 16)) for i in range(min(IN_ROUND, number - begin))]


class Settling:
    """Checks how each round ends."""

    def __init__(self, plane: GroupControlPlane) -> None:
        self._plane = plane
        self._whole = self._gangs = 0
        self._slowest = 0.0

    def check(self, gangs: list[Gang]) -> None:
        """Waits until all is done; checks that all gangs are whole that can be; deletes the pods."""
        began_at = time.monotonic()
        bound = settle(self._plane, gangs)
        self._slowest = max(self._slowest, time.monotonic() - began_at)
        assert (partly_bound(bound, gangs), fitting(bound, gangs)) == ({}, [])
        self._gangs += len(gangs)
        self._whole += len({pod.rpartition("-")[0] for pod in bound})
        clean_up_pods(self._plane)

    def __str__(self) -> str:
        return f"{self._whole} of {self._gangs} gangs bound whole, settled after {self._slowest:.0f} s at most"


def test_no_gang_is_partly_bound_after_any_death(plane: GroupControlPlane, tmp_path: Path) -> None:
    random, settling, deaths = Random(SEED), Settling(plane), 0
    create_nodes(plane)
    with cluster(plane, tmp_path) as (extender, scheduler):
        kills: list[Callable[[], object]] = [
            lambda: extender.kill(worker_only=False),
            lambda: extender.kill(worker_only=True),
            scheduler.kill,
            lambda: restart_api_server(plane),
        ]
        for gangs in rounds(random, GANGS):
            for part in (gangs[turn::4] for turn in range(4)):
                plane.client.create_many(obj for gang in part for obj in gang.objects())
                time.sleep(random.uniform(0.02, 0.8))
                random.choice(kills)()
                deaths += 1
            settling.check(gangs)
        print(f"\n{settling}, {deaths} deaths")
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("extender-*.log"))


def test_no_gang_is_partly_bound_after_any_change_of_leader(plane: GroupControlPlane, tmp_path: Path) -> None:
    random, settling = Random(SEED), Settling(plane)
    splits: list[bool] = []
    create_nodes(plane)
    with two_replicas(plane, tmp_path) as replicas:
        ends = (replicas.depose, killed, terminated)
        for gangs in rounds(random, GANGS // 2):  # a change of leader takes long
            for turn, end in enumerate(ends):
                plane.client.create_many(obj for gang in gangs[turn :: len(ends)] for obj in gang.objects())
                splits.append(replicas.end_a_leader(end, gangs, random))
            settling.check(gangs)
        transitions = plane.client.get("Lease", "extender")["spec"]["leaseTransitions"]
        print(f"\n{settling}, {len(splits)} leaders ended, {sum(splits)} while a gang was partly bound;", end=" ")
        print(f"the lease changed hands {transitions} times")
        assert any(splits)
        assert "Traceback" not in "".join(path.read_text() for path in tmp_path.glob("extender-*.log"))


def clean_up_pods(plane: GroupControlPlane) -> None:
    for kind in ("Pod", "PodGroup"):
        for obj in plane.client.list(kind, "default"):
            name = obj["metadata"]["name"]
            if kind == "PodGroup" and obj["metadata"].get("finalizers"):
                plane.client.patch(kind, name, {"metadata": {"finalizers": None}})
            plane.client.delete(kind, name)
