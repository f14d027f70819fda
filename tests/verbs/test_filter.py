"""filter: every node that is turned down carries its reason, in the right list."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.errors import MalformedInput
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Refusal, unschedulable
from extender.model.node import Node
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.runtime.ports import Telemetry
from extender.table import PodInfo, Table
from extender.verbs.filter import Filter
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, answer, args, cache_of

NODES = [
    make_node("roomy").allocatable(cpu="8", memory="16Gi", pods="110").obj(),
    make_node("full").allocatable(cpu="2", memory="16Gi", pods="110").obj(),
    make_node("tiny").allocatable(cpu="500m", memory="16Gi", pods="110").obj(),
    make_node("tainted").allocatable(cpu="8", memory="16Gi", pods="110").taint("dedicated", "gpu").obj(),
    make_node("cordoned").allocatable(cpu="8", memory="16Gi", pods="110").unschedulable().obj(),
]
NAMES = [node["metadata"]["name"] for node in NODES]
POD = make_pod("p").req(cpu="1").obj()
FILLER = make_pod("filler").req(cpu="2").node("full").obj()


def filter_of(*objects: dict[str, Any]) -> Filter:
    return Filter(cache_of(*objects), PROFILES, Telemetry())


def test_names_in_names_out() -> None:
    result = answer(filter_of(*NODES, FILLER), args(POD, names=NAMES))
    assert result == {
        "Nodes": None,
        "NodeNames": ["roomy"],
        "FailedNodes": {"full": "Insufficient cpu"},
        "FailedAndUnresolvableNodes": {
            "tiny": "Insufficient cpu",
            "tainted": "node(s) had untolerated taint(s)",
            "cordoned": "node(s) were unschedulable",
        },
        "Error": "",
    }


def test_whole_nodes_come_back_byte_for_byte() -> None:
    strange = {**NODES[0], "spec": {"unknownField": {"kept": [1, 2.50, "ü"]}}}
    verb = filter_of(*NODES)
    request = verb.decode(args(POD, nodes=[strange, NODES[2]]))
    body = verb.encode(request, verb.decide(request))
    assert request.nodes is not None
    assert bytes(request.nodes[0].raw) in body
    result = answer(verb, args(POD, nodes=[strange, NODES[2]]))
    assert result["Nodes"]["items"] == [strange]
    assert result["NodeNames"] is None


def test_the_table_is_lent_again_after_a_pod_that_is_malformed() -> None:
    """Hostile calls would else have a table built each, which takes a second of a large cluster."""
    cache = cache_of(*NODES)
    verb = Filter(cache, PROFILES, Telemetry())
    with cache.snapshot("before") as table:
        before = table
    with pytest.raises(MalformedInput, match="'1Kii' is not a quantity"):
        verb.decide(verb.decode(args(make_pod("bad").req(memory="1Kii").obj(), names=NAMES)))
    with cache.snapshot("after") as table:
        assert table is before


def test_an_unknown_node_is_refused_by_name() -> None:
    result = answer(filter_of(*NODES), args(POD, names=["roomy", "ghost"]))
    assert result["NodeNames"] == ["roomy"]
    assert result["FailedAndUnresolvableNodes"] == {"ghost": "node(s) unknown to the extender"}


@pytest.mark.parametrize("others", [[], ["ghost"]], ids=["alone", "beside an unknown name"])
def test_a_deleted_node_that_still_has_pods_is_refused_by_name(others: list[str]) -> None:
    cache = cache_of(*NODES, make_pod("small").node("full").obj())
    cache.deleted("Node", msgspec.convert(NODES[1], Node))
    result = answer(Filter(cache, PROFILES, Telemetry()), args(POD, names=["roomy", "full", *others]))
    assert result["NodeNames"] == ["roomy"]
    assert result["FailedAndUnresolvableNodes"] == dict.fromkeys(["full", *others], "node(s) unknown to the extender")


def test_unknown_whole_nodes_are_judged_by_the_request_and_leave_no_trace() -> None:
    cache = cache_of(*NODES)
    verb = Filter(cache, PROFILES, Telemetry())
    templates = [make_node("template-big").obj(), make_node("template-tiny").allocatable(cpu="1m", pods="110").obj()]
    result = answer(verb, args(POD, nodes=[*templates, NODES[0]]))
    assert [node["metadata"]["name"] for node in result["Nodes"]["items"]] == ["template-big", "roomy"]
    assert result["FailedAndUnresolvableNodes"] == {"template-tiny": "Insufficient cpu"}
    assert cache.size().nodes == len(NODES)
    with cache.snapshot("test") as table:
        assert "template-big" not in table.nodes.row_of


def test_known_nodes_are_judged_as_the_cache_knows_them() -> None:
    stale = make_node("full").allocatable(cpu="64", pods="110").obj()
    assert answer(filter_of(*NODES, FILLER), args(POD, nodes=[stale]))["FailedNodes"] == {"full": "Insufficient cpu"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], {"NodeNames": [], "FailedNodes": {}}, id="no names is an empty list, not null"),
        pytest.param(["roomy", "roomy"], {"NodeNames": ["roomy", "roomy"], "FailedNodes": {}}, id="a name twice"),
    ],
)
def test_edge_cases(names: list[str], expected: dict[str, Any]) -> None:
    result = answer(filter_of(*NODES), args(POD, names=names))
    assert {key: result[key] for key in expected} == expected


def test_victims_that_still_leave_make_no_node_hopeless() -> None:
    leaving = make_pod("leaving").req(cpu="1").node("tiny").deleted().obj()
    preemptor = make_pod("p").req(cpu="1").priority(10).nominated("tiny").obj()
    result = answer(filter_of(*NODES, leaving), args(preemptor, names=["tiny", "tainted"]))
    assert result["FailedNodes"] == {"tiny": "Insufficient cpu"}
    assert result["FailedAndUnresolvableNodes"].keys() == {"tainted"}


def test_room_is_kept_for_pods_nominated_to_a_node() -> None:
    expected = make_pod("expected").req(cpu="8").priority(10).nominated("roomy").obj()
    lesser = make_pod("lesser").req(cpu="8").priority(-1).nominated("roomy").obj()
    assert answer(filter_of(*NODES, expected), args(POD, names=["roomy"]))["FailedNodes"] == {
        "roomy": "Insufficient cpu"
    }
    assert answer(filter_of(*NODES, lesser), args(POD, names=["roomy"]))["NodeNames"] == ["roomy"]


def test_passed_and_failed_answers() -> None:
    verb = filter_of(*NODES)
    request = verb.decode(args(POD, names=NAMES))
    assert verb.allow_all(request).node_names == NAMES
    assert verb.failed(request, "why").error == "why"
    assert verb.summary(request, verb.decide(request)).nodes_out == 2


def test_a_reason_that_names_thousands_of_resources_is_cut() -> None:
    greedy = make_pod("greedy").req({f"example.com/{number}": "1" for number in range(3000)}).obj()
    failed = answer(filter_of(*NODES), args(greedy, names=NAMES))["FailedAndUnresolvableNodes"]
    assert failed["roomy"].startswith("Insufficient example.com/0, Insufficient example.com/1, ")
    assert failed["roomy"].endswith("...")
    assert len(failed["roomy"]) == 1024


def test_a_refusal_without_reasons_names_its_rule() -> None:
    class Silent:
        name = "Silent"

        def prepare(self, pod: PodInfo, table: Table) -> Refusal:
            return unschedulable(self.name)

    verb = Filter(cache_of(*NODES), Profiles([Profile(DEFAULT_SCHEDULER, [Silent()], ())]), Telemetry())
    assert answer(verb, args(POD, names=["roomy"]))["FailedNodes"] == {"roomy": "refused by Silent"}
