"""NodePorts: two pods on a node do not use the same port."""

from __future__ import annotations

import pytest

from extender.framework.status import unschedulable
from extender.plugins.node_ports import NodePorts
from tests.builders import PodBuilder, make_node, make_pod
from tests.framework.cluster import refusals
from tests.plugins.hint_case import pod_change_helps


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


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(other().host_port(80), True, id="the same port"),
        pytest.param(other().host_port(81), False, id="another port"),
        pytest.param(other().host_port(80, "UDP"), False, id="another protocol"),
        pytest.param(other(), False, id="no ports"),
        pytest.param(make_pod("other").host_port(80), False, id="held no place"),
    ],
)
def test_ports_are_freed(left: PodBuilder, expected: bool) -> None:
    assert pod_change_helps("NodePorts", make_pod("p").host_port(80), left, None) is expected
