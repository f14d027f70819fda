"""NodeName, NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit: verdicts in stock words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.framework.status import unresolvable, unschedulable
from extender.model.meta import NodeSelector
from extender.plugins.node_affinity.predicate import NodeAffinity
from extender.plugins.node_name import NodeName
from extender.plugins.node_ports import NodePorts
from extender.plugins.node_resources.fit import NodeResourcesFit
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.plugins.taint_toleration.predicate import TaintToleration
from tests.builders import ZONE, expression, make_node, make_pod, node_term
from tests.framework.cluster import pod_info, refusals, table_of

AFFINITY = unresolvable("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
ZONED = [make_node(f"z{i}").zone(f"z{i}").label({"rank": str(i)}).obj() for i in range(3)] + [make_node("bare").obj()]


def names_field(*names: str, operator: str = "In") -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [*names]}


def test_node_name() -> None:
    nodes = [make_node("a").obj(), make_node("b").obj()]
    refusal = unresolvable("", "node(s) didn't satisfy plugin(s) [NodeName]")
    assert refusals(NodeName(), make_pod("p").node("a").obj(), *nodes) == {"b": refusal}
    assert refusals(NodeName(), make_pod("p").node("ghost").obj(), *nodes) == {"a": refusal, "b": refusal}
    assert refusals(NodeName(), make_pod("p").obj(), *nodes) == {}
    table = table_of(*nodes)
    check = NodeName().prepare(pod_info(make_pod("p").node("a").obj()), table)
    assert check is not None
    [(mask, by_filter)] = check.refuse(table.nodes.rows)
    assert (mask.tolist(), by_filter.reasons) == ([False, True], ("node(s) didn't match the requested node name",))


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        pytest.param(make_pod("p").obj(), True, id="cordoned"),
        pytest.param(
            make_pod("p").toleration("node.kubernetes.io/unschedulable", operator="Exists").obj(), False, id="tolerated"
        ),
        pytest.param(make_pod("p").toleration("other", operator="Exists").obj(), True, id="something else tolerated"),
    ],
)
def test_node_unschedulable(pod: dict[str, Any], refused: bool) -> None:
    found = refusals(NodeUnschedulable(), pod, make_node("open").obj(), make_node("cordoned").unschedulable().obj())
    assert found == ({"cordoned": unresolvable("NodeUnschedulable", "node(s) were unschedulable")} if refused else {})


@pytest.mark.parametrize(
    ("effect", "tolerated", "refused"),
    [
        pytest.param("NoSchedule", False, True, id="NoSchedule"),
        pytest.param("NoExecute", False, True, id="NoExecute"),
        pytest.param("PreferNoSchedule", False, False, id="PreferNoSchedule is no matter of fit"),
        pytest.param("NoSchedule", True, False, id="tolerated"),
    ],
)
def test_taint_toleration(effect: str, tolerated: bool, refused: bool) -> None:
    pod = make_pod("p").toleration("k", operator="Exists").obj() if tolerated else make_pod("p").obj()
    found = refusals(TaintToleration(), pod, make_node("clean").obj(), make_node("n").taint("k", "v", effect).obj())
    assert found == ({"n": unresolvable("TaintToleration", "node(s) had untolerated taint(s)")} if refused else {})


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        pytest.param(make_pod("p").node_selector({ZONE: "z1"}), {"z1"}, id="nodeSelector"),
        pytest.param(make_pod("p").node_selector({ZONE: "z1", "rank": "0"}), set(), id="nodeSelector wants all labels"),
        pytest.param(make_pod("p").require_node(node_term(expression(ZONE, "In", "z0", "z2"))), {"z0", "z2"}, id="In"),
        pytest.param(
            make_pod("p").require_node(node_term(expression(ZONE, "NotIn", "z0"))), {"z1", "z2", "bare"}, id="NotIn"
        ),
        pytest.param(make_pod("p").require_node(node_term(expression("rank", "Gt", "0"))), {"z1", "z2"}, id="Gt"),
        pytest.param(make_pod("p").require_node(node_term(expression("rank", "Lt", "1"))), {"z0"}, id="Lt"),
        pytest.param(
            make_pod("p").require_node(
                node_term(expression("rank", "Gt", "1")), node_term(expression("rank", "Lt", "1"))
            ),
            {"z0", "z2"},
            id="any term will do",
        ),
        pytest.param(
            make_pod("p").require_node(node_term(expression("rank", "Exists"), expression(ZONE, "In", "z2"))),
            {"z2"},
            id="every requirement of a term",
        ),
        pytest.param(make_pod("p").require_node(node_term()), set(), id="an empty term matches nothing"),
        pytest.param(make_pod("p").require_node(), set(), id="no terms match nothing"),
        pytest.param(
            make_pod("p").require_node(node_term(fields=[names_field("z0", operator="NotIn")])),
            {"z1", "z2", "bare"},
            id="a field, NotIn",
        ),
        pytest.param(
            make_pod("p").node_selector({"rank": "1"}).require_node(node_term(expression(ZONE, "Exists"))),
            {"z1"},
            id="selector and affinity",
        ),
    ],
)
def test_node_affinity(pod: Any, fits: set[str]) -> None:
    found = refusals(NodeAffinity(), pod.obj(), *ZONED)
    assert found == dict.fromkeys({"z0", "z1", "z2", "bare"} - fits, AFFINITY)


def test_node_affinity_that_names_its_nodes_refuses_the_others_unseen() -> None:
    pod = make_pod("p").require_node(node_term(expression("rank", "Exists"), fields=[names_field("z1", "bare")])).obj()
    found = refusals(NodeAffinity(), pod, *ZONED)
    assert found["bare"] == AFFINITY
    assert found["z0"] == found["z2"] == unresolvable("", "node(s) didn't satisfy plugin(s) [NodeAffinity]")


def test_node_affinity_terms_that_contradict_themselves() -> None:
    pod = make_pod("p").require_node(node_term(fields=[names_field("z0"), names_field("z1")])).obj()
    assert set(refusals(NodeAffinity(), pod, *ZONED).values()) == {
        unresolvable("NodeAffinity", "pod affinity terms conflict")
    }


def test_node_affinity_that_the_policy_adds_is_told_apart() -> None:
    added = msgspec.convert({"nodeSelectorTerms": [node_term(expression("rank", "Exists"))]}, NodeSelector)
    found = refusals(NodeAffinity(added), make_pod("p").node_selector({ZONE: "z0"}).obj(), *ZONED)
    assert found["bare"] == unresolvable("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity")
    assert found["z1"] == AFFINITY


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [
        pytest.param(("TCP", None), ("TCP", None), True, id="the same port"),
        pytest.param(("TCP", None), ("UDP", None), False, id="another protocol"),
        pytest.param(("TCP", "10.0.0.1"), ("TCP", "10.0.0.2"), False, id="another address"),
        pytest.param(("TCP", "10.0.0.1"), ("TCP", "10.0.0.1"), True, id="the same address"),
        pytest.param(("TCP", "10.0.0.1"), ("TCP", "0.0.0.0"), True, id="every address wanted"),
        pytest.param(("TCP", None), ("TCP", "10.0.0.1"), True, id="every address taken"),
    ],
)
def test_node_ports(taken: tuple[str, str | None], wanted: tuple[str, str | None], conflict: bool) -> None:
    there = make_pod("there").host_port(80, taken[0], taken[1]).node("n").obj()
    pod = make_pod("p").host_port(80, wanted[0], wanted[1]).obj()
    found = refusals(NodePorts(), pod, make_node("n").obj(), make_node("free").obj(), there)
    reason = "node(s) didn't have free ports for the requested pod ports"
    assert found == ({"n": unschedulable("NodePorts", reason)} if conflict else {})


def capacity(**resources: str) -> dict[str, Any]:
    return make_node("n").allocatable(**{"cpu": "4", "memory": "4Gi", "pods": "10", **resources}).obj()


USED = make_pod("used").req(cpu="3", memory="3Gi").node("n").obj()


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param(make_pod("p").req(cpu="1", memory="1Gi"), capacity(), None, id="just fits"),
        pytest.param(
            make_pod("p").req(cpu="1001m"),
            capacity(),
            unschedulable("NodeResourcesFit", "Insufficient cpu"),
            id="a milli too much",
        ),
        pytest.param(
            make_pod("p").req(cpu="5"),
            capacity(),
            unresolvable("NodeResourcesFit", "Insufficient cpu"),
            id="more than there is in all",
        ),
        pytest.param(
            make_pod("p").req(cpu="2", memory="2Gi"),
            capacity(),
            unschedulable("NodeResourcesFit", "Insufficient cpu", "Insufficient memory"),
            id="every reason is told",
        ),
        pytest.param(
            make_pod("p"), capacity(pods="1"), unschedulable("NodeResourcesFit", "Too many pods"), id="too many pods"
        ),
        pytest.param(
            make_pod("p").req({"example.com/gpu": "1"}),
            capacity(),
            unresolvable("NodeResourcesFit", "Insufficient example.com/gpu"),
            id="a resource nobody has",
        ),
        pytest.param(make_pod("p").req({"example.com/gpu": "0"}), capacity(), None, id="none of it is no request"),
        pytest.param(make_pod("p").req({"unknown": "1"}), capacity(), None, id="a name that is no resource"),
    ],
)
def test_node_resources_fit(pod: Any, node: dict[str, Any], expected: Any) -> None:
    assert refusals(NodeResourcesFit(), pod.obj(), node, USED) == ({"n": expected} if expected else {})


def test_ignored_resources_are_not_looked_at() -> None:
    pod = make_pod("p").req({"example.com/gpu": "1", "other.org/nic": "1"}).obj()
    rule = NodeResourcesFit(frozenset({"example.com/gpu"}), frozenset({"other.org"}))
    assert refusals(rule, pod, capacity()) == {}
    assert refusals(NodeResourcesFit(frozenset({"cpu"})), make_pod("p").req(cpu="5").obj(), capacity()).keys() == {"n"}
