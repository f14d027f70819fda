"""The verbs of a running server, over HTTP on loopback, as a scheduler with nodeCacheCapable calls them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from itertools import repeat
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from tests.bench.workloads import LargeCluster, large_cluster, node_name, tainted, workloads
from tests.builders import Object, make_pod

NODES = 5000
ROUNDS = 41
SETTLING_SECONDS = 5.0  # in the first seconds a thread of its own makes the tables that calls at one time need
CANDIDATES = 100  # of DefaultPreemption's dry run, at the least


def measured(directory: Path) -> Iterator[tuple[str, float]]:
    """(verb and what it was asked, median in milliseconds), client and server on this machine."""
    cluster = large_cluster(NODES)
    waiting = [make_pod(f"waiting-{i}").req(cpu="100m").priority(0).obj() for i in range(ROUNDS)]
    path = directory / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster.objects, *waiting]}))
    with _serving(path) as connection:
        for title, verb, requests in _calls(cluster, waiting):
            yield title, _median_ms(connection, verb, requests)


@contextmanager
def _serving(path: Path) -> Iterator[HTTPConnection]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ["--cluster", str(path), "--bind", f"127.0.0.1:{port}", "--log-level", "error", "--drain-seconds", "0"]
    with subprocess.Popen([sys.executable, "-m", "tests.bench.serve", "serve", *flags]) as process:
        try:
            yield _connected(process, port)
        finally:
            process.terminate()


def _connected(process: subprocess.Popen[bytes], port: int) -> HTTPConnection:
    while process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        with suppress(ConnectionRefusedError):
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                sleep(SETTLING_SECONDS)
                return connection
        sleep(0.1)
    raise RuntimeError("the server did not start")


def _calls(cluster: LargeCluster, waiting: Sequence[Object]) -> Iterator[tuple[str, str, Iterable[Object]]]:
    """(title, verb, the requests of all rounds)."""
    pod, preemptor = workloads()["spread"], workloads()["preemption"]
    for verb in ("filter", "prioritize"):
        for names in (500, NODES):
            request = {"Pod": pod, "Nodes": None, "NodeNames": [node_name(number) for number in range(names)]}
            yield f"{verb}, {names} names", verb, repeat(request, ROUNDS)
    preemption = {"Pod": preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": _victims(cluster)}
    yield f"preempt, {CANDIDATES} candidates", "preempt", repeat(preemption, ROUNDS)
    free = (node_name(number) for number in range(NODES) if not tainted(number))
    yield "bind", "bind", [_binding(pod, node) for pod, node in zip(waiting, free, strict=False)]


def _victims(cluster: LargeCluster) -> Object:
    """On every candidate all of its pods: the scheduler's own choice for a pod that needs a whole node."""
    victims: dict[str, Any] = {}
    for number in range(NODES):
        if not tainted(number) and len(victims) < CANDIDATES:
            victims[node_name(number)] = {"Pods": [], "NumPDBViolations": 0}
    for pod in cluster.pods:
        if pod["spec"]["nodeName"] in victims:
            victims[pod["spec"]["nodeName"]]["Pods"].append({"UID": pod["metadata"]["uid"]})
    return victims


def _binding(pod: Object, node: str) -> Object:
    metadata = pod["metadata"]
    named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
    return {**named, "Node": node}


def _median_ms(connection: HTTPConnection, verb: str, requests: Iterable[Object]) -> float:
    times = []
    for request in requests:
        body = json.dumps(request)
        begin = perf_counter()
        connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        times.append(perf_counter() - begin)
        assert response.status == 200, answer
        assert verb != "bind" or not json.loads(answer)["Error"], answer
    return median(times) * 1000
