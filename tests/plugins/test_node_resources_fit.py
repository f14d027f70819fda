"""NodeResourcesFit, Filter: verdicts, with reasons in upstream's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from extender.framework.status import unresolvable, unschedulable
from extender.plugins.node_resources import FIT, NodeResourcesFitArgs
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.table import HypotheticalRemovals
from tests.builders import make_node, make_pod
from tests.builders.devices import make_device_class
from tests.framework.cluster import pod_info, refusals, table_of


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
            id="every reason is reported",
        ),
        pytest.param(
            make_pod("p"), capacity(pods="1"), unschedulable("NodeResourcesFit", "Too many pods"), id="too many pods"
        ),
        pytest.param(
            make_pod("p").req({"example.com/gpu": "1"}),
            capacity(),
            unresolvable("NodeResourcesFit", "Insufficient example.com/gpu"),
            id="a resource that no node has",
        ),
        pytest.param(make_pod("p").req({"example.com/gpu": "0"}), capacity(), None, id="none of it is no request"),
        pytest.param(make_pod("p").req({"unknown": "1"}), capacity(), None, id="a name that is no resource"),
    ],
)
def test_node_resources_fit(pod: Any, node: dict[str, Any], expected: Any) -> None:
    assert refusals(NodeResourcesFitFilter(), pod.obj(), node, USED) == ({"n": expected} if expected else {})


def test_ignored_resources_do_not_count() -> None:
    pod = make_pod("p").req({"example.com/gpu": "1", "other.org/nic": "1"}).obj()
    rule = NodeResourcesFitFilter(frozenset({"example.com/gpu"}), frozenset({"other.org"}))
    assert refusals(rule, pod, capacity()) == {}
    assert refusals(
        NodeResourcesFitFilter(frozenset({"cpu"})), make_pod("p").req(cpu="5").obj(), capacity()
    ).keys() == {"n"}


def test_any_number_of_lacking_resources_is_reported() -> None:
    kinds = [f"example.com/{number}" for number in range(100)]
    offers = {"all": kinds, "none": [], "first": kinds[1:], "last": kinds[:-1]}
    nodes = [
        make_node(name).allocatable({"cpu": "1", "pods": "9"} | dict.fromkeys(offered, "1")).obj()
        for name, offered in offers.items()
    ]
    pod = make_pod("p").req(dict.fromkeys(kinds, "1")).obj()
    assert refusals(NodeResourcesFitFilter(), pod, *nodes) == {
        "none": unresolvable("NodeResourcesFit", *(f"Insufficient {kind}" for kind in kinds)),
        "first": unresolvable("NodeResourcesFit", "Insufficient example.com/0"),
        "last": unresolvable("NodeResourcesFit", "Insufficient example.com/99"),
    }


def test_a_configured_group_of_resources_is_ignored() -> None:
    rule = FIT.predicate and FIT.predicate(
        NodeResourcesFitArgs.model_validate({"ignoredResourceGroups": ("other.org",)})
    )
    assert rule is not None
    assert refusals(rule, make_pod("p").req({"other.org/nic": "1"}).obj(), capacity()) == {}
    assert refusals(rule, make_pod("p").req({"example.com/gpu": "1"}).obj(), capacity()).keys() == {"n"}


GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("node", "has_class", "fits"),
    [
        pytest.param(capacity(), False, False, id="no node offers the resource"),
        pytest.param(capacity(), True, True, id="only devices provide the resource"),
        pytest.param(capacity(**{GPU: "0"}), True, True, id="the node offers 0, and devices provide the resource"),
        pytest.param(capacity(**{GPU: "1"}), True, False, id="the node offers too few"),
        pytest.param(capacity(**{GPU: "2"}), True, True, id="the node offers enough"),
        pytest.param(capacity(**{GPU: "0"}), False, False, id="the node offers 0"),
    ],
)
def test_eviction_makes_no_room_for_a_resource_that_the_node_lacks(
    node: dict[str, Any], has_class: bool, fits: bool
) -> None:
    table = table_of(node, USED, *([make_device_class("gpu", extended_resource=GPU)] if has_class else []))
    check = NodeResourcesFitFilter().prepare(pod_info(make_pod("p").req({"cpu": "4", GPU: "2"}).obj()), table)
    gone = HypotheticalRemovals(table, np.array([0], np.intp))
    answers = check.filter_with_pods_removed(table.nodes.rows, gone)
    assert answers is not None
    (refused, _), *others = answers
    assert (refused.tolist(), others) == ([not fits], [])
