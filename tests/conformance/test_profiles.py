"""Profiles and limits of preemption that random cases do not have, judged by the stock scheduler's own plugins."""

from __future__ import annotations

from typing import Any

import pytest

from extender.policy.loading import read
from tests.builders import Object, make_node, make_pod
from tests.conformance.deciding import disagreements
from tests.conformance.stock import ask
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.stock

NAMES = [f"n{number:02}" for number in range(12)]
NODES = [make_node(name).allocatable(cpu="2", pods="10").obj() for name in NAMES]
LESSER = [make_pod(f"on-{name}").node(name).req(cpu="2").obj() for name in NAMES]


def configuration(*profiles: Object, **fields: Any) -> Object:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**kind, **fields, "profiles": list(profiles)}


def fit(name: str, strategy: str) -> Object:
    scored = {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}
    return {"schedulerName": name, "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": scored}}]}


def preempting(**limits: int) -> Object:
    args = [{"name": "DefaultPreemption", "args": limits}]
    return configuration({"schedulerName": "default-scheduler", "pluginConfig": args}, parallelism=1)


@pytest.mark.parametrize("name", ["packing", "spreading"])
def test_a_pod_is_decided_by_its_own_profile(name: str, oracle: Oracle) -> None:
    config = configuration(fit("packing", "MostAllocated"), fit("spreading", "LeastAllocated"))
    used = make_pod("used").node("n00").req(cpu="1").obj()
    pod = make_pod("p").scheduler(name).req(cpu="500m").obj()
    case = {"cluster": {"items": [*NODES, used]}, "pod": pod, "config": config}
    stock = ask(oracle, case)
    assert (max(stock["total"], key=stock["total"].__getitem__) == "n00") is (name == "packing")
    assert disagreements(case, stock) == []


@pytest.mark.parametrize(
    ("limits", "candidates"),
    [
        pytest.param({"minCandidateNodesPercentage": 25, "minCandidateNodesAbsolute": 0}, 3, id="a quarter"),
        pytest.param({"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 5}, 5, id="five at least"),
        pytest.param({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 50}, 12, id="all there are"),
    ],
)
def test_preemption_finds_as_many_candidates(limits: dict[str, int], candidates: int, oracle: Oracle) -> None:
    """Only their number is compared: stock begins where it likes, and offline decisions look at all nodes."""
    case = {"cluster": {"items": [*NODES, *LESSER]}, "pod": make_pod("p").priority(9).req(cpu="2").obj()}
    config = preempting(**limits)
    found = read(config).profiles[0].preemption
    assert found is not None
    assert found.enough(len(NODES)) == len(ask(oracle, {**case, "config": config})["candidates"]) == candidates
