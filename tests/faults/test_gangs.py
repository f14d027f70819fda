"""The loop is killed while it binds gangs, and the API server restarted: no gang stays partly bound.

`make test-gangs` has 1,000 gangs; `make test` has 20.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
import yaml

from tests.builders import Object, make_node, make_pod, make_pod_group
from tests.end_to_end.group_plane import FLAGS, GroupControlPlane
from tests.end_to_end.workload import violations
from tests.faults.sizes import SEED
from tests.running import SCHEDULER_NAME, RunningScheduler, schedule
from tests.stock.build import Binaries
from tests.stock.waiting import wait_until

GANGS = int(os.environ.get("GANGS", "20"))
FULL_LENGTH = GANGS >= 1000
BATCHES = 5 if FULL_LENGTH else 2
RESTARTS = 3 if FULL_LENGTH else 1
KILLS_PER_BATCH = 4 if FULL_LENGTH else 1
PLACES = 16
HOPELESS = "hopeless"
SETTLE_SECONDS = 120 + GANGS
P99_SECONDS = 10.0

pytestmark = [pytest.mark.stock, pytest.mark.timeout(4 * SETTLE_SECONDS), pytest.mark.slow]

RULES = """
from extender import Node, NodeInfo, Pod, predicate, reserve

attempts: dict[str, int] = {}


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete"})
def place_left(pod: Pod, node: NodeInfo):
    \"\"\"Places are a resource that only this rule knows: the node's label says how many it has.\"\"\"
    taken = node.requested.get("pods", 0)
    return True if taken < int(node.node.labels["places"]) else "node(s) had no place left"


@reserve
def place(pod: Pod, node: Node):
    \"\"\"Refuses the first try of one pod in nine, so that gangs are given back half reserved.\"\"\"
    attempts[pod.uid] = attempts.get(pod.uid, 0) + 1
    return "the place was taken" if attempts[pod.uid] == 1 and int(pod.uid[:4], 16) % 9 == 0 else True
"""


class Outage(NamedTuple):
    """When the loop or the API server was away, in seconds since the epoch."""

    begin: float
    end: float


class MortalLoop:
    """`extender schedule`, which is killed and started again."""

    def __init__(self, plane: GroupControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._policy = _policy(folder)
        self._stack = ExitStack()
        self._running = self._start(wait=True)

    def _start(self, *, wait: bool) -> RunningScheduler:
        flags = (*FLAGS, "--policy", str(self._policy))
        running = schedule(self._plane.kubeconfig, self._folder, *flags, wait=wait)
        return self._stack.enter_context(running)

    def kill(self) -> Outage:
        """SIGKILL, and a new process; the outage ends when it is ready."""
        begin = time.time()
        self._running.process.kill()
        self._running = self._start(wait=True)
        return Outage(begin, time.time())

    def await_ready(self) -> None:
        assert wait_until(self._running.ready)

    def stop(self) -> None:
        self._stack.close()


def _policy(folder: Path) -> Path:
    (folder / "places.py").write_text(RULES)
    plugins = {
        "filter": {"enabled": [{"name": "places:place_left"}]},
        "reserve": {"enabled": [{"name": "places:place"}]},
    }
    policy = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": plugins}],
    }
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return folder / "policy.yaml"


class GangPlane(GroupControlPlane):
    """An API server that can be restarted with what it has stored."""

    def restart(self) -> Outage:
        begin = time.time()
        for process in self.processes:
            process.kill()
        self.start_again()
        return Outage(begin, time.time())


@pytest.fixture
def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[GangPlane]:
    with GangPlane(stock_binaries, tmp_path / "plane") as running:
        yield running


def a_node(name: str, pool: str, places: int) -> Object:
    return make_node(name).capacity(cpu="64", memory="256Gi", pods="110").label(pool=pool, places=str(places)).obj()


def a_gang(number: int, size: int, pool: str) -> list[Object]:
    name = f"gang-{number:04}"
    pods = [
        make_pod(f"{name}-{i}").req(cpu="1").label(gang=name).group(name).node_selector(pool=pool).obj()
        for i in range(size)
    ]
    return [make_pod_group(name, size), *pods]


def create_nodes(plane: GangPlane, places: int) -> None:
    """Creates room for all gangs in one pool, and too little for any gang in the other."""
    nodes = [a_node(f"node-{i:03}", "all", PLACES) for i in range(-(-places // (PLACES - 1)))]
    plane.client.create_many([*nodes, *(a_node(f"small-{i}", HOPELESS, 1) for i in range(4))])


def live_through(plane: GangPlane, loop: MortalLoop, gangs: list[list[Object]], random: Random) -> list[Outage]:
    """Creates the gangs in batches, while the loop dies at random moments and the API server is restarted."""
    outages = []
    share = -(-len(gangs) // BATCHES)
    for turn in range(BATCHES):
        batch = gangs[turn * share : (turn + 1) * share]
        plane.client.create_many(obj for gang in batch for obj in gang)
        for _ in range(KILLS_PER_BATCH):
            time.sleep(random.uniform(0.0, 1.5))
            outages.append(loop.kill())
        if turn < RESTARTS:
            time.sleep(random.uniform(0.0, 1.0))
            outages.append(plane.restart())
            loop.await_ready()
    return outages


def test_no_gang_stays_partly_bound_whenever_the_loop_dies(plane: GangPlane, tmp_path: Path) -> None:
    random = Random(SEED)
    sizes = [random.randint(2, 16) for _ in range(GANGS)]
    gangs = [a_gang(number, size, "all") for number, size in enumerate(sizes)]
    hopeless = [a_gang(GANGS + number, 5, HOPELESS) for number in range(3)]
    create_nodes(plane, sum(sizes))
    loop = MortalLoop(plane, tmp_path)
    try:
        plane.client.create_many(obj for gang in hopeless for obj in gang)
        outages = live_through(plane, loop, gangs, random)
        assert wait_until(lambda: _unbound(plane) == 15, SETTLE_SECONDS)
    finally:
        loop.stop()
    pods = plane.client.list("Pod", "default")
    bound: dict[str, int] = defaultdict(int)
    for pod in pods:
        bound[pod["metadata"]["labels"]["gang"]] += "nodeName" in pod["spec"]
    assert [bound[f"gang-{number:04}"] for number in range(GANGS + 3)] == [*sizes, 0, 0, 0]
    assert violations(plane.client.list("Node"), pods) == []
    assert _overfull(plane.client.list("Node"), pods) == []
    _report(pods, outages)


def _unbound(plane: GangPlane) -> int:
    return sum("nodeName" not in pod["spec"] for pod in plane.client.list("Pod", "default"))


def _overfull(nodes: list[Object], pods: list[Object]) -> list[str]:
    """Returns the nodes that have more pods than places."""
    places = {node["metadata"]["name"]: int(node["metadata"]["labels"]["places"]) for node in nodes}
    for pod in pods:
        if "nodeName" in pod["spec"]:
            places[pod["spec"]["nodeName"]] -= 1
    return [name for name, free in places.items() if free < 0]


def _report(pods: list[Object], outages: list[Outage]) -> None:
    """Prints how long gangs took to be bound, for those that no outage concerned; the stamps are whole seconds."""
    spans: dict[str, list[Outage]] = defaultdict(list)
    for pod in pods:
        if "nodeName" in pod["spec"]:
            spans[pod["metadata"]["labels"]["gang"]].append(Outage(_seconds(pod), _bound_at(pod)))
    times = []
    for members in spans.values():
        begin, end = max(span.begin for span in members), max(span.end for span in members)
        if not any(outage.begin - 1 <= end and begin <= outage.end + 1 for outage in outages):
            times.append(end - begin)
    times.sort()
    p99 = times[int(len(times) * 0.99)] if times else 0.0
    print(f"\n{len(spans)} gangs, {len(outages)} outages; {len(times)} gangs outside them, p99 to bound {p99:.0f} s")
    assert not FULL_LENGTH or p99 < P99_SECONDS


def _seconds(pod: Object) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


def _bound_at(pod: Object) -> float:
    conditions = {each["type"]: each for each in pod["status"]["conditions"]}
    return datetime.fromisoformat(conditions["PodScheduled"]["lastTransitionTime"]).timestamp()
