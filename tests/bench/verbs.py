"""The verbs of `extender serve` over HTTP on loopback, as a scheduler with nodeCacheCapable calls them.

Behind it stands a real API server, which a bind is written to. Each pod is another, its names come in another order,
and it is bound before the next is asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import Any

from tests.bench.workloads import PLAIN, PREEMPTION, VARIED, large_cluster, node_name, pods_to_decide, tainted
from tests.builders import Object
from tests.running import serve
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane

PODS = 50
SETTLING_SECONDS = 5.0  # in the first seconds a thread of its own makes the tables that calls at one time need
CANDIDATES = 100  # of DefaultPreemption's dry run, at the least


def measured(binaries: Binaries, nodes: int, directory: Path) -> Iterator[tuple[str, float]]:
    """Yields (call, median in milliseconds); client, server and API server share this machine."""
    with ControlPlane(binaries, directory) as plane:
        created = plane.client.create_many(large_cluster(nodes).objects)
        pods = [*pods_to_decide(VARIED, 2 * PODS), *pods_to_decide(PLAIN, PODS)]
        waiting = plane.client.create_many(pod.obj() for pod in pods)
        with serve(plane.kubeconfig, directory, "--log-level=error", timeout_seconds=120) as extender:
            sleep(SETTLING_SECONDS)
            session = _Session(extender.port, nodes)
            bound_pods = [item for item in created if item["kind"] == "Pod"]
            yield from session.run(waiting, bound_pods)


class _Session:
    """One connection, as kube-scheduler's client keeps it; `times` holds the seconds of each call by its title."""

    def __init__(self, port: int, nodes: int) -> None:
        self.times: dict[str, list[float]] = {}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._nodes, self._random = nodes, Random(1)

    def run(self, waiting: list[Object], bound_pods: list[Object]) -> Iterator[tuple[str, float]]:
        few, many = min(500, self._nodes), self._nodes
        for names, pods in ((few, waiting[:PODS]), (many, waiting[PODS : 2 * PODS])):
            for pod in pods:
                self._schedule(pod, names)
        preemptors = pods_to_decide(PREEMPTION, PODS)
        for preemptor, pod in zip(preemptors, waiting[2 * PODS :], strict=True):
            self._preempt(preemptor.obj(), bound_pods)
            self._bind(pod, node_name(self._random.choice(self._untainted())))
        for title, times in self.times.items():
            yield title, median(times) * 1000

    def _schedule(self, pod: Object, names: int) -> None:
        """A scheduling cycle and its binding: filter, prioritize on the nodes that are left, bind to the best."""
        sampled = self._random.sample(range(self._nodes), names)
        args = {"Pod": pod, "Nodes": None, "NodeNames": [node_name(number) for number in sampled]}
        feasible = self._call(f"filter, {names} names", "filter", args)["NodeNames"]
        scored = self._call(f"prioritize, the feasible of {names}", "prioritize", {**args, "NodeNames": feasible})
        self._bind(pod, max(scored, key=lambda host: int(host["Score"]))["Host"])

    def _preempt(self, pod: Object, bound_pods: list[Object]) -> None:
        """On every candidate all of its pods: the scheduler's own choice for a pod that needs a whole node."""
        nodes = self._untainted()
        chosen = self._random.sample(nodes, min(CANDIDATES, len(nodes)))
        victims: dict[str, Any] = {node_name(number): {"Pods": [], "NumPDBViolations": 0} for number in chosen}
        for bound in bound_pods:
            if bound["spec"]["nodeName"] in victims:
                victims[bound["spec"]["nodeName"]]["Pods"].append({"UID": bound["metadata"]["uid"]})
        args = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        self._call(f"preempt, {len(victims)} candidates", "preempt", args)

    def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        self._call("bind", "bind", {**named, "Node": node})

    def _untainted(self) -> list[int]:
        return [number for number in range(self._nodes) if not tainted(number)]

    def _call(self, title: str, verb: str, args: Mapping[str, Any]) -> Any:
        body = json.dumps(args)
        begin = perf_counter()
        self._connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        text = response.read()
        self.times.setdefault(title, []).append(perf_counter() - begin)
        assert response.status == 200, text
        answer = json.loads(text)
        assert verb == "prioritize" or not answer.get("Error"), text
        return answer
