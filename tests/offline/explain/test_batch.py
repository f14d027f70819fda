"""Cases in, answers out, line by line."""

from __future__ import annotations

import json

import pytest

from extender import Cluster
from extender.offline.explain.overview import answers
from tests.builders import ZONE, Object, make_device_class, make_node, make_pod, make_resource_claim, with_allocation


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


SPREAD = make_pod("p").spread(ZONE, labelSelector={}).obj()
ZONES = [make_node(zone).label({ZONE: zone}).obj() for zone in "ab"]
SHARE = "00000000-0000-4000-9000-000000000001"
PLACED = [make_pod(name).node("a").obj() for name in ("one", "two")]


def test_a_case_follows_the_version_of_its_cluster() -> None:
    case = json.loads(line("case", SPREAD, *ZONES, *PLACED))
    of_1_38 = {**case, "cluster": {**case["cluster"], "kubernetesVersion": "v1.38.0"}}
    first, second = answers(json.dumps(each).encode() for each in (case, of_1_38))
    assert (first["feasible"], second["feasible"]) == (["a", "b"], ["b"])


def test_an_error_that_ends_the_attempt_is_named() -> None:
    device = {"request": "device", "driver": "d", "pool": "p", "device": "x", "shareID": SHARE}
    held = with_allocation(make_resource_claim("held", "gpu"), {**device, "consumedCapacity": {"memory": "-5Gi"}})
    objects = [*NODES, make_device_class("gpu"), held, make_resource_claim("wanted", "gpu")]
    case = json.loads(line("case", make_pod("p").resource_claim("wanted").obj(), *objects))
    case["cluster"]["kubernetesVersion"] = "v1.38.0"
    (answer,) = answers([json.dumps(case).encode()])
    text = 'device d/p/x: consumed capacity "memory" must not be negative, got -5Gi'
    assert answer["error"].endswith(f"gather allocation state: claim default/held, {text}")
    assert (answer["pod"], answer["feasible"]) == ("default/p", [])


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
