"""The memory for the last decisions: what it returns, and that it is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extender.app.observation import PastDecision, PastDecisions
from extender.errors import UnknownPod
from extender.extender_v1.messages import ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult, decode_args
from extender.runtime.clock import ManualClock
from tests.builders import make_node, make_pod, make_pod_group
from tests.offline.recording.recorded import RecordedServer
from tests.scheduler.test_pod_groups import ON, member, node
from tests.scheduler.world import NAME, World
from tests.verbs.cluster import args
from tests.verbs.test_recordings import in_order_of_cause


def remembered(path: Path, entries: int) -> PastDecisions:
    """What is remembered of the first entries of a timeline."""
    server = RecordedServer(path)
    past = PastDecisions(server.clock, 1 << 20, 3600.0)
    server.observers[:] = [past]
    for entry in list(in_order_of_cause("names"))[:entries]:
        server.take(entry)
    return past


def bind(past: PastDecisions, name: str, error: str = "") -> None:
    past.called("bind", "decided", ExtenderBindingArgs(name, "shop", name, "n1"), ExtenderBindingResult(error))


def outcomes(decisions: list[PastDecision]) -> list[tuple[str, str]]:
    return [(each.what, each.outcome) for each in decisions]


def test_a_pods_decisions_are_returned_in_their_order(tmp_path: Path) -> None:
    past = remembered(tmp_path / "recording", 1000)
    decisions = past.about("default/tolerates")
    assert [each.what for each in decisions] == ["filter", "prioritize", "bind"]
    assert decisions[0].outcome == "8 of 8 nodes remain"
    assert decisions[1].outcome.startswith("node-0 is the best of 8 nodes, with ")
    assert decisions[2].node
    preempted = past.about("default/high-0")
    assert any(each.what == "preempt" and each.victims for each in preempted)


def test_a_filter_that_answers_one_node_is_remembered_with_it() -> None:
    past = PastDecisions(ManualClock(), 1 << 20, 3600.0)
    request = decode_args(args(make_pod("web").obj(), names=["n1", "n2", "n3"]))
    past.called("filter", "decided", request, ExtenderFilterResult(failed_nodes={"n1": "full"}, best="n2"))
    (decision,) = past.about("default/web")
    assert (decision.outcome, decision.node) == ("2 of 3 nodes remain, n2 is best", "n2")


def test_attempts_of_the_loop_are_remembered_failed_ones_too() -> None:
    world = World(make_node("n1").allocatable({"cpu": "1", "memory": "1Gi", "pods": "9"}))
    past = PastDecisions(world.clock, 1 << 20, 3600.0)
    world.observed.observers.append(past)
    world.put(make_pod("big").scheduler(NAME).req(cpu="4"))
    world.put(make_pod("fits").scheduler(NAME).req(cpu="500m"))
    world.settle()
    assert outcomes(past.about("default/fits"))[0] == ("attempt", "chose n1")
    (failed,) = past.about("default/big")
    assert failed.outcome.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_attempts_of_groups_are_remembered_for_each_member() -> None:
    world = World(node("n1", "1"), make_pod_group("g", 2), member("a", "g"), member("b", "g"), features=ON)
    past = PastDecisions(world.clock, 1 << 20, 3600.0)
    world.observed.observers.append(past)
    world.settle()
    (first,), (second,) = past.about("default/a"), past.about("default/b")
    assert first.outcome.startswith("pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled")
    assert second.outcome == "0/1 nodes are available: 1 Insufficient cpu."
    world.put(node("n2"))
    world.pass_time(5)
    assert ("attempt", "chose n2") in outcomes(past.about("default/b"))


@pytest.mark.parametrize(("error", "outcome"), [("", "to n1"), ("is full", "to n1: is full")])
def test_the_page_answers_json(error: str, outcome: str) -> None:
    past = PastDecisions(ManualClock(), 1 << 20, 60.0)
    bind(past, "web-0", error)
    answer = past.page({"pod": ["shop/web-0"]}, "")
    assert json.loads(answer.body)["decisions"][0]["outcome"] == outcome
    assert json.loads(past.page({}, "").body)["pods"][0]["pod"] == "shop/web-0"
    assert past.page({"pod": ["shop/web-1"]}, "").status == 404


def test_old_decisions_are_dropped() -> None:
    clock = ManualClock()
    past = PastDecisions(clock, 1 << 20, 60.0)
    bind(past, "web-0")
    clock.advance(61)
    bind(past, "web-1")
    with pytest.raises(UnknownPod, match="shop/web-0"):
        past.about("shop/web-0")
    assert list(past.last()) == ["shop/web-1"]


def test_the_pods_decided_on_longest_ago_are_dropped_first() -> None:
    past = PastDecisions(ManualClock(), 20_000, 60.0)
    for number in range(1000):
        bind(past, f"web-{number}")
    kept = list(past.last())
    assert 5 < len(kept) < 40
    assert kept[-1] == "shop/web-999"
    assert kept == [f"shop/web-{1000 - len(kept) + i}" for i in range(len(kept))]


def test_a_pod_keeps_its_last_32_decisions() -> None:
    past = PastDecisions(ManualClock(), 1 << 20, 60.0)
    for _ in range(1000):
        bind(past, "web-0")
    assert 10 < len(past.about("shop/web-0")) < 100


def test_long_outcomes_are_cut() -> None:
    past = PastDecisions(ManualClock(), 1 << 20, 60.0)
    bind(past, "x" * 400)
    bind(past, "web-0", "because " * 1000)
    assert past.last().keys() == {"shop/web-0"}
    (decision,) = past.about("shop/web-0")
    assert decision.outcome.startswith("to n1: because") and decision.outcome.endswith("...")
    assert len(decision.outcome) == 1024
