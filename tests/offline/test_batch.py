"""Cases in, answers out, line by line."""

from __future__ import annotations

import json

import pytest

from extender import Cluster
from extender.offline.batch import answers
from tests.builders import Object, make_node, make_pod


def line(name: str, pod: Object, *items: Object) -> bytes:
    return json.dumps(
        {"name": name, "cluster": {"apiVersion": "v1", "kind": "List", "items": items}, "pod": pod}
    ).encode()


NODES = [make_node("free").obj(), make_node("full").obj()]
FILLER = make_pod("filler").req(cpu="3").priority(0).node("full").obj()
POD = make_pod("p").req(cpu="2").priority(1).obj()


def test_an_answer_has_all_that_was_decided() -> None:
    (answer,) = answers([line("case", POD, *NODES, FILLER)])
    assert (answer["name"], answer["feasible"]) == ("case", ["free"])
    assert answer["nodes"] == {
        "full": {"plugin": "NodeResourcesFit", "code": "Unschedulable", "reasons": ["Insufficient cpu"]}
    }
    assert answer["total"]["free"] == sum(answer["scores"]["free"].values()) > 0
    assert answer["preemption"]["candidates"] == {}


def test_preemption_is_answered() -> None:
    (answer,) = answers([line("case", POD, NODES[1], FILLER)])
    assert answer["preemption"]["candidates"] == {"full": {"victims": ["default/filler"], "numPDBViolations": 0}}
    assert answer["preemption"]["nominatedNode"] == "full"


def test_an_answer_has_the_form_of_an_explanation() -> None:
    (answer,) = answers([line("case", POD, *NODES, FILLER)])
    cluster = Cluster.from_objects([*NODES, FILLER, POD])
    explanation = cluster.explain(cluster.pod("default/p"))
    assert answer == {"name": "case", **explanation.to_dict()}


def test_cases_do_not_touch_each_other() -> None:
    first, second = answers([line("a", POD, *NODES, FILLER), line("b", POD, *NODES)])
    assert (first["feasible"], second["feasible"]) == (["free"], ["free", "full"])


def test_a_case_may_have_its_own_policy() -> None:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    off = {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}
    config = {**kind, "profiles": [{"schedulerName": "default-scheduler", "plugins": off}]}
    case = json.loads(line("case", POD, *NODES, FILLER))
    own, usual, wrong = answers(
        json.dumps({**case, **more}).encode() for more in ({"config": config}, {}, {"config": kind | {"x": 1}})
    )
    assert own["feasible"] == ["free", "full"]
    assert usual["feasible"] == ["free"]
    assert "x" in wrong["error"]


@pytest.mark.parametrize(
    ("bad", "name", "fault"),
    [
        pytest.param(b"{", "line 2", "truncated", id="no JSON"),
        pytest.param(b"\xff", "line 2", "line 2: ", id="no text"),
        pytest.param(b"[" * 100_000, "line 2", "line 2: ", id="too deep"),
        pytest.param(b"7", "line 2", "Expected `object`", id="no object"),
        pytest.param(b'{"name": "x"}', "x", "missing required field `cluster`", id="no cluster"),
        pytest.param(b'{"name": "x", "cluster": {}}', "x", "missing required field `pod`", id="no pod"),
        pytest.param(line("x", {"metadata": {}}, *NODES), "x", "pod: metadata.name is missing", id="no name"),
        pytest.param(line("x", POD, {"kind": "Node"}), "x", "items[0]: metadata.name is missing", id="no node"),
        pytest.param(line("x", make_pod("p").req(cpu="x").obj(), *NODES), "x", "'x' is not a quantity", id="quantity"),
    ],
)
def test_a_bad_line_is_answered_and_the_next_ones_too(bad: bytes, name: str, fault: str) -> None:
    good = line("good", POD, *NODES)
    before, answer, after = answers([good, bad, b"\n", good])
    assert answer["name"] == name
    assert fault in answer["error"]
    assert "line 2" in answer["error"]
    assert before["feasible"] == after["feasible"] == ["free", "full"]
