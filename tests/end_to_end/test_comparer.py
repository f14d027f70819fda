"""The comparer against the real API server: silent while all is well, and the cache is right after it was not."""

from __future__ import annotations

import json
import os
import signal
import time
from random import Random
from typing import Any

import pytest

from extender.cache.cache import Cache
from extender.cache.debugger import Comparer
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.cluster.watch.source import ClusterSource
from extender.model.kinds import KINDS
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Telemetry
from tests.builders import make_node, make_pod
from tests.end_to_end.conftest import StartExtender
from tests.end_to_end.workload import nodes, pods
from tests.running import ONLY_EXTENDER, RunningExtender
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]


def compare(extender: RunningExtender) -> dict[str, Any]:
    status, body = extender.get("/debug/cache/compare", "POST")
    assert status == 200, body
    report: dict[str, Any] = json.loads(body)
    return report


def test_it_finds_nothing_while_the_scheduler_binds(control_plane: ControlPlane, start_extender: StartExtender) -> None:
    random = Random(3)
    client = control_plane.client
    client.create(*nodes(20, random))
    with start_extender() as extender:
        with control_plane.scheduler(extender.configuration(plugins=ONLY_EXTENDER)):
            client.create(*pods(100, random))
            reports = [compare(extender)]
            while sum(bool(pod["spec"].get("nodeName")) for pod in client.list("Pod", "default")) < 100:
                reports.append(compare(extender))
        reports.append(compare(extender))
        assert [report["differences"] for report in reports] == [[]] * len(reports)
        assert [report["unlisted"] for report in reports] == [{}] * len(reports)
        assert reports[-1]["compared"]["Pod"] == 100
        assert reports[-1]["compared"]["Node"] == 20
        assert reports[-1]["compared"]["Table"] > 0
        dumped = json.loads(extender.get("/debug/cache/dump")[1])
        assert len(dumped["nodes"]) == 20
        assert {pod["state"] for pod in dumped["pods"]} == {"added"}


def test_sigusr2_compares_and_does_not_end_or_double_the_server(
    control_plane: ControlPlane, start_extender: StartExtender
) -> None:
    control_plane.client.create(make_node("n").obj())
    with start_extender() as extender:
        os.kill(extender.process.pid, signal.SIGUSR2)
        assert wait_until(lambda: "cache compared " in extender.process.log.read_text())
        os.kill(extender.process.pid, signal.SIGUSR2)
        assert wait_until(lambda: extender.process.log.read_text().count("cache compared ") == 2)
        assert extender.get("/readyz")[0] == 200


def test_what_was_lost_comes_back(control_plane: ControlPlane) -> None:
    client = control_plane.client
    client.create(*(make_node(f"n{i}").obj() for i in range(3)))
    client.create(make_pod("placed").node("n0").obj(), make_pod("waits").obj())
    cache = Cache(SystemClock(), Telemetry())
    connection = KubeClient(Kubeconfig(control_plane.kubeconfig))
    source = ClusterSource(connection, KINDS.values(), cache, Telemetry(), SystemClock(), Random(1))
    source.start()
    try:
        assert wait_until(lambda: not source.unsynced())
        comparer = Comparer(cache, source, Telemetry(), time.sleep)
        assert comparer.compare().differences == []
        uid = cache._pods.uid_of["default/placed"]
        placed = cache._placements._placements
        placed[uid] = placed[uid]._replace(node_name="n2")
        del cache._objects._observed["Node"]["n1"]
        assert {(found.kind, found.key) for found in comparer.compare().differences} == {
            ("Node", "n1"),
            ("Pod", "default/placed"),
        }
        placement = cache.placement(uid)
        assert placement is not None
        assert placement.node_name == "n0"
        assert comparer.compare().differences == []
    finally:
        source.stop()
