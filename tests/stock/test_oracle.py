"""The oracle's answers: each field means what it says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_device_class, make_node, make_pdb, make_pod, make_resource_slice
from tests.stock.build import Binaries
from tests.stock.oracle import Oracle, OracleError, TimedOracle

pytestmark = pytest.mark.stock


def profile(**fields: Any) -> dict[str, Any]:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**kind, "profiles": [{"schedulerName": "default-scheduler", **fields}]}


def strategy(name: str) -> dict[str, Any]:
    args = {"scoringStrategy": {"type": name, "resources": [{"name": "cpu", "weight": 1}]}}
    return profile(pluginConfig=[{"name": "NodeResourcesFit", "args": args}])


def test_a_node_is_feasible_or_says_why_not(oracle: Oracle) -> None:
    objects = [
        make_node("ok").obj(),
        make_node("full").obj(),
        make_pod("bound").req(cpu="3").node("full").obj(),
        make_node("small").capacity(cpu="1").obj(),
        make_node("tainted").taint("k").obj(),
    ]
    answer = oracle.answer(objects, make_pod("p").req(cpu="2").obj())
    assert answer["feasible"] == ["ok"]
    unresolvable = "UnschedulableAndUnresolvable"
    assert answer["filter"] == {
        "ok": {"code": "Success"},
        "full": {"code": "Unschedulable", "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]},
        "small": {"code": unresolvable, "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]},
        "tainted": {"code": unresolvable, "plugin": "TaintToleration", "reasons": ["node(s) had untolerated taint(s)"]},
    }
    assert answer["byPlugin"]["TaintToleration"].keys() == {"tainted"}


def test_bound_pods_take_their_room(oracle: Oracle) -> None:
    pods = [make_pod("bound").req(cpu="3").node("n").obj()]
    assert not oracle.answer([make_node("n").obj(), *pods], make_pod("p").req(cpu="2").obj())["feasible"]
    assert oracle.answer([make_node("n").obj()], make_pod("p").req(cpu="2").obj())["feasible"] == ["n"]


@pytest.mark.parametrize(
    ("name", "preferred"),
    [pytest.param("LeastAllocated", "empty", id="least"), pytest.param("MostAllocated", "used", id="most")],
)
def test_plugin_arguments_count(oracle: Oracle, name: str, preferred: str) -> None:
    objects = [make_node("empty").obj(), make_node("used").obj(), make_pod("bound").req(cpu="2").node("used").obj()]
    answer = oracle.answer(objects, make_pod("p").req(cpu="1").obj(), strategy(name))
    scores = {node: by_plugin["NodeResourcesFit"] for node, by_plugin in answer["scores"].items()}
    assert max(scores, key=lambda node: scores[node]) == preferred


def test_enabled_plugins_and_weights_count(oracle: Oracle) -> None:
    plugins: dict[str, Any] = {
        "multiPoint": {"disabled": [{"name": "TaintToleration"}, {"name": "NodeResourcesBalancedAllocation"}]}
    }
    plugins["score"] = {
        "disabled": [{"name": "NodeResourcesFit"}],
        "enabled": [{"name": "NodeResourcesFit", "weight": 7}],
    }
    tainted = [make_node("n").taint("k").obj()]
    answer = oracle.answer(tainted, make_pod("p").req(cpu="1").obj(), profile(plugins=plugins))
    assert answer["feasible"] == ["n"]
    assert answer["scores"]["n"]["NodeResourcesFit"] == 7 * answer["raw"]["n"]["NodeResourcesFit"] > 0
    assert "NodeResourcesBalancedAllocation" not in answer["scores"]["n"]


def test_preemption_tries_every_node_and_picks_one(oracle: Oracle) -> None:
    objects = [
        *(make_node(name).obj() for name in ("protected", "cheap", "equal")),
        make_pod("guarded").label(app="db").req(cpu="3").priority(1).node("protected").phase("Running").obj(),
        make_pod("victim").req(cpu="3").priority(1).node("cheap").phase("Running").obj(),
        make_pod("peer").req(cpu="3").priority(9).node("equal").phase("Running").obj(),
        {**make_pdb("db", {"app": "db"}, minAvailable=1), "status": {"disruptionsAllowed": 0}},
    ]
    answer = oracle.answer(objects, make_pod("p").req(cpu="2").priority(9).obj())
    assert answer["candidates"] == {
        "protected": {"pods": ["default/guarded"], "numPDBViolations": 1},
        "cheap": {"pods": ["default/victim"], "numPDBViolations": 0},
    }
    assert answer["nominated"] == "cheap"


@pytest.mark.parametrize(
    ("objects", "config", "fault"),
    [
        pytest.param([{"apiVersion": "v1", "kind": "X"}], None, "cluster.items[0]", id="unknown kind"),
        pytest.param([], strategy("Nonesuch"), "scoringStrategy", id="wrong argument"),
        pytest.param([], profile(plugins={"nonesuch": {}}), "nonesuch", id="unknown field"),
    ],
)
def test_a_case_that_cannot_be_answered_says_why(
    oracle: Oracle, objects: list[dict[str, Any]], config: dict[str, Any] | None, fault: str
) -> None:
    assert fault in oracle.answer(objects, make_pod("p").obj(), config)["error"]


def test_bench_decides_each_pod_on_the_cluster_that_the_binds_before_it_have_left(stock_binaries: Binaries) -> None:
    pod, large = make_pod("p").req(cpu="3"), make_pod("large").req(cpu="3").priority(1)
    bound = make_pod("q").req(cpu="3").node("n").priority(0).phase("Running")
    with TimedOracle(stock_binaries["oracle"], [make_node("n").obj(), make_node("m").taint("k").obj()]) as stock:
        fits = stock.step(pod.obj(), bound.obj())
        preempts = stock.step(large.obj(), make_pod("r").req(cpu="1").node("n").priority(1).phase("Running").obj())
        evicts_one = stock.step(large.obj(), make_pod("s").node("n").obj())
    assert fits["total"].keys() == {"n"}
    assert "candidates" not in fits
    assert "total" not in preempts
    assert preempts["candidates"] == evicts_one["candidates"] == {"n": {"pods": ["default/q"], "numPDBViolations": 0}}
    assert min(timing["ns"] for timing in (fits, preempts, evicts_one)) > 0


def test_bench_says_what_is_wrong(stock_binaries: Binaries) -> None:
    bound = make_pod("q").node("n").obj()
    stock = TimedOracle(stock_binaries["oracle"], [make_node("n").obj(), bound])
    with stock, pytest.raises(OracleError, match="already"):
        stock.step(make_pod("p").obj(), bound)


def test_a_case_that_kube_scheduler_crashes_on_does_not_end_it(oracle: Oracle) -> None:
    resources = [{"name": "cpu", "weight": 1}, {"name": "example.com/gpu", "weight": 1}]
    balanced = profile(pluginConfig=[{"name": "NodeResourcesBalancedAllocation", "args": {"resources": resources}}])
    device_class = make_device_class("gpu", 'device.driver == "gpu.example.com"', extended_resource="example.com/gpu")
    slices = [make_resource_slice(node, "gpu.example.com", "gpu-0") for node in ("a", "b")]
    objects = [make_node("a").obj(), make_node("b").obj(), device_class, *slices]
    pod = make_pod("p").req({"cpu": "1", "example.com/gpu": "1"}).obj()
    assert oracle.answer(objects, pod, balanced) == {"error": "the plugins crashed"}
    assert oracle.answer([make_node("n").obj()], make_pod("p").obj())["feasible"] == ["n"]


@pytest.mark.parametrize("last_words", ["", '{"error": "cut o', '{"error": "panic: no such device"}\n'])
def test_a_question_is_not_lost_to_the_crash_of_the_one_before(tmp_path: Path, last_words: str) -> None:
    """A goroutine may bring the program down after it has answered; here it does so after every answer."""
    program = tmp_path / "oracle"
    answer_and_die = f"import sys; sys.stdin.readline(); print('{{\"name\": \"n1\"}}'); print({last_words!r}, end='')"
    program.write_text(f"#!{sys.executable}\n{answer_and_die}\n")
    program.chmod(0o755)
    with Oracle(program) as oracle:
        assert [oracle.answer([], {}) for _ in range(3)] == [{"name": "n1"}] * 3
