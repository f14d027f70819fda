"""A decision in words and as JSON."""

from __future__ import annotations

import json

from extender import Cluster
from extender.offline import explanation
from tests.builders import Object, make_node, make_pod

NODES = [
    make_node("big").capacity(cpu="8").obj(),
    make_node("small").capacity(cpu="2").obj(),
    make_node("tainted").taint("dedicated").obj(),
]
FILLER = make_pod("filler").req(cpu="1500m").priority(0).node("small").obj()


def text(pod: Object, *objects: Object) -> list[str]:
    return list(explanation.as_text(Cluster.from_objects(objects).decide(pod)))


def test_feasible_nodes_come_best_first_with_every_score() -> None:
    head, _, titles, first, second, *_ = text(make_pod("p").req(cpu="1").obj(), *NODES)
    assert head == "pod default/p: 2 of 3 nodes can take it"
    assert titles.split()[:3] == ["NODE", "TOTAL", "TaintToleration"]
    assert [line.split()[0] for line in (first, second)] == ["big", "small"]
    _, total, *scores = first.split()
    assert int(total) == sum(map(int, scores))


def test_refused_nodes_say_why_and_whether_evictions_may_help() -> None:
    lines = text(make_pod("p").req(cpu="1").obj(), *NODES, FILLER)
    at = next(number for number, line in enumerate(lines) if "REFUSED BY" in line)
    assert [line.split(maxsplit=4) for line in lines[at + 1 : at + 3]] == [
        ["small", "NodeResourcesFit", "may", "help", "Insufficient cpu"],
        ["tainted", "TaintToleration", "cannot", "help", "node(s) had untolerated taint(s)"],
    ]


def test_preemption_names_its_victims() -> None:
    lines = text(make_pod("p").req(cpu="1").priority(5).obj(), NODES[1], FILLER)
    at = lines.index("CANDIDATE  PDB VIOLATIONS  VICTIMS")
    assert lines[at + 1].split() == ["small", "0", "default/filler"]
    assert lines[-1] == "preemption would choose small"


def test_a_pod_that_nothing_helps_is_told_why() -> None:
    lines = text(make_pod("p").req(cpu="99").obj(), NODES[1])
    assert lines[-1].startswith("no preemption: ")


def test_names_cannot_steer_the_terminal() -> None:
    lines = text(make_pod("p").req(cpu="99").obj(), make_node("n\x1b[2J").obj())
    assert not any("\x1b" in line for line in lines)
    assert any(r"n\x1b[2J" in line for line in lines)


def test_json_holds_the_whole_decision() -> None:
    decision = Cluster.from_objects([*NODES, FILLER]).decide(make_pod("p").req(cpu="1").obj())
    told = json.loads(json.dumps(explanation.as_json(decision)))
    assert told["pod"] == "default/p"
    assert told["feasible"] == told["best"] == ["big"]
    assert told["refusals"]["small"] == {
        "plugin": "NodeResourcesFit",
        "code": "Unschedulable",
        "reasons": ["Insufficient cpu"],
    }
    scores = told["scores"]["big"]
    assert all(score["weighted"] == score["normalised"] * score["weight"] for score in scores.values())
    assert told["total"]["big"] == sum(score["weighted"] for score in scores.values())
    assert told["preemption"] == {"candidates": {}, "nominatedNode": None}
