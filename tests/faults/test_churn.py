"""Pods come, are bound and go, for as long as it takes: memory and latency at the end as at the beginning."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from statistics import median

import pytest

from tests.builders import Object, make_pod
from tests.end_to_end.workload import nodes, pods
from tests.faults.mortal import MortalExtender
from tests.faults.sizes import CHURN_SECONDS, SEED, SOAKING
from tests.stock.api_client import ApiClient
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(3600 if SOAKING else 300), pytest.mark.slow]

MIB = 2**20
NODE_COUNT, WAVE = 50, 25
_SHARES = 5  # the run in fifths: the first fills caches, the second is the beginning, the last is the end


class Probe:
    """Asks the extender about one pod and all nodes, as the scheduler does."""

    def __init__(self, port: int, names: list[str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        pod = make_pod("probe").req(cpu="100m", memory="64Mi").obj()
        self._body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})

    def milliseconds(self) -> float:
        begin = time.perf_counter()
        self._connection.request("POST", "/scheduler/filter", self._body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        return (time.perf_counter() - begin) * 1e3


def waves(random: Random) -> Iterator[list[Object]]:
    """Pods of many shapes, each wave with names and labels of its own: what is interned for them must go with them."""
    number = 0
    while True:
        number += 1
        wave = pods(WAVE, random)
        for pod in wave:
            pod["metadata"]["name"] += f"-{number}"
            pod["metadata"]["labels"] = {"wave": str(number), "app": pod["metadata"]["name"]}
            pod["spec"]["containers"][0].pop("ports", None)
        yield wave


def pass_one(client: ApiClient, wave: list[Object]) -> None:
    """Creates a wave, waits until it is bound, deletes it and its events."""
    client.create(*wave)
    selector = {"labelSelector": f"wave={wave[0]['metadata']['labels']['wave']}"}
    assert wait_until(lambda: all(pod["spec"].get("nodeName") for pod in client.list("Pod", "default", **selector)))
    client.delete_all("Pod", "default", **selector)
    client.delete_all("Event", "default")  # ten minutes' worth could not be deleted in one call for the next test


def test_memory_and_latency_stay_as_they_are(control_plane: ControlPlane, tmp_path: Path) -> None:
    client, random = control_plane.client, Random(SEED)
    made = nodes(NODE_COUNT, random)
    client.create(*made)
    with (
        MortalExtender(tmp_path, "--kubeconfig", str(control_plane.kubeconfig), "--log-level=warning") as extender,
        control_plane.scheduler(extender.running.configuration()) as scheduler,
    ):
        probe = Probe(extender.port, [node["metadata"]["name"] for node in made])
        coming, passed = waves(random), 0
        resident: list[int] = []
        latencies: list[float] = []
        for _ in range(_SHARES):
            times: list[float] = []
            until = time.monotonic() + CHURN_SECONDS / _SHARES
            while time.monotonic() < until:
                pass_one(client, next(coming))
                passed += WAVE
                times += [probe.milliseconds() for _ in range(10)]
            resident.append(extender.resident_bytes())
            latencies.append(median(times))
        print(f"\nchurn: {passed} pods through in {CHURN_SECONDS} s; by fifths:")
        print(f"  resident MiB {[size // MIB for size in resident]}")
        print(f"  median ms of a filter {[round(value, 2) for value in latencies]}")
        assert extender.running.metric('extender_cache_size{type="nodes"}') == NODE_COUNT
        assert wait_until(lambda: extender.running.metric('extender_cache_size{type="pods"}') == 0)
        assert extender.running.metric('extender_cache_size{type="assumed_pods"}') == 0
        assert scheduler.running
        assert resident[-1] < 1.5 * resident[1] + 32 * MIB
        assert latencies[-1] < 5 * latencies[1] + 20
