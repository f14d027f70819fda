"""NodeAffinity, Filter: verdicts, with reasons in upstream's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.framework.status import unresolvable
from extender.model.meta import NodeSelector
from extender.plugins.node_affinity import NodeAffinityFilter
from tests.builders import ZONE, Object, expression, make_node, make_pod, node_term
from tests.framework.cluster import refusals

AFFINITY = unresolvable("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


ZONED = [make_node(f"z{i}").zone(f"z{i}").label({"rank": str(i)}).obj() for i in range(3)] + [make_node("bare").obj()]


def names_field(*names: str, operator: str = "In") -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [*names]}


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
            make_pod("p").require_node(node_term(fields=[names_field("1", operator="Gt")])),
            set(),
            id="a field with an operator that the API does not allow matches nothing",
        ),
        pytest.param(
            make_pod("p").node_selector({"rank": "1"}).require_node(node_term(expression(ZONE, "Exists"))),
            {"z1"},
            id="selector and affinity",
        ),
    ],
)
def test_node_affinity(pod: Any, fits: set[str]) -> None:
    found = refusals(NodeAffinityFilter(), pod.obj(), *ZONED)
    assert found == dict.fromkeys({"z0", "z1", "z2", "bare"} - fits, AFFINITY)


def test_node_affinity_that_names_nodes_refuses_all_others() -> None:
    pod = make_pod("p").require_node(node_term(expression("rank", "Exists"), fields=[names_field("z1", "bare")])).obj()
    found = refusals(NodeAffinityFilter(), pod, *ZONED)
    assert found["bare"] == AFFINITY
    assert found["z0"] == found["z2"] == unresolvable("", "node(s) didn't satisfy plugin(s) [NodeAffinity]")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([names_field("z0"), names_field("z1")], id="two nodes at once"),
        pytest.param([expression("metadata.name", "In")], id="no node"),
    ],
)
def test_node_affinity_terms_that_contradict_themselves(fields: list[Object]) -> None:
    pod = make_pod("p").require_node(node_term(fields=fields)).obj()
    assert set(refusals(NodeAffinityFilter(), pod, *ZONED).values()) == {
        unresolvable("NodeAffinity", "pod affinity terms conflict")
    }


def test_added_affinity_has_its_own_reason() -> None:
    added = msgspec.convert({"nodeSelectorTerms": [node_term(expression("rank", "Exists"))]}, NodeSelector)
    found = refusals(NodeAffinityFilter(added), make_pod("p").node_selector({ZONE: "z0"}).obj(), *ZONED)
    assert found["bare"] == unresolvable("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity")
    assert found["z1"] == AFFINITY
