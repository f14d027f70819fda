"""Objects that a tenant may create on a real API server, and that must not hold up the scheduler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_claim, make_composite_pod_group, make_node, make_pod, make_pod_group, make_request
from tests.end_to_end.group_plane import TREE_FLAGS, GroupControlPlane, bound
from tests.running import Running, schedule
from tests.stock.build import Binaries
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]
LEVELS = 600
WORKLOAD = {"workloadName": "w", "templateName": "t"}
NESTED = 1400


def chain() -> list[dict[str, Any]]:
    """A tree of groups that is one long branch, with a PodGroup and a pod at its end."""
    parents: list[dict[str, Any]] = [{}, *({"parentCompositePodGroupName": f"c{level}"} for level in range(LEVELS))]
    groups = [
        make_composite_pod_group(f"c{level}", 1, workloadRef=WORKLOAD, **parents[level]) for level in range(LEVELS)
    ]
    leaf = make_pod_group("leaf", 1, workloadRef=WORKLOAD, **parents[LEVELS])
    return [*groups, leaf, make_pod("chained").group("leaf").req(cpu="100m").obj()]


def deep_claim() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(NESTED):
        value = {"a": value}
    claim = make_claim("deep", make_request("device", "gpu"))
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": value}}]
    return claim


@pytest.fixture
def deep_json() -> Iterator[None]:
    """Lets the test's own client write and read nested JSON."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


def relists_of(scheduler: Running) -> list[str]:
    """Returns the samples of all kinds that were listed again."""
    return [line for line in scheduler.get("/metrics")[1].splitlines() if line.startswith("extender_relists_total{")]


@pytest.mark.usefixtures("deep_json")
def test_deep_objects_hold_up_no_other_pod(stock_binaries: Binaries, tmp_path: Path) -> None:
    with GroupControlPlane(stock_binaries, tmp_path / "plane") as plane:
        client = plane.client
        client.create(make_node("n").capacity(cpu="64", memory="64Gi", pods="110").obj(), *chain())
        with schedule(plane.kubeconfig, tmp_path, *TREE_FLAGS) as scheduler:
            relists = relists_of(scheduler)
            client.create(deep_claim(), *(make_pod(f"p{number}").req(cpu="100m").obj() for number in range(5)))
            assert wait_until(lambda: len(bound(plane)) == 5)
            assert "chained" not in bound(plane)
            client.create(make_pod("later").req(cpu="100m").obj())
            assert wait_until(lambda: "later" in bound(plane))
            assert relists_of(scheduler) == relists
            assert scheduler.ready()
