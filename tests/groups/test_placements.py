"""A topology constraint keeps a group in one domain: the one with the most members, then the fullest."""

from __future__ import annotations

import pytest

from extender.groups import GroupStatus
from tests.builders import Object, make_pod, make_pod_group
from tests.groups.deciding import BY_PLACEMENTS, decided, members, node, nodes_of

RACK = "rack"


def racks(**cpus: int) -> list[Object]:
    """Builds one node in each rack."""
    return [node(f"n-{rack}", cpu, rack=rack) for rack, cpu in cpus.items()]


def gang(count: int, **spec: object) -> Object:
    return make_pod_group("g", count, schedulingConstraints={"topology": [{"key": RACK}]}, **spec)


def test_a_gang_goes_to_the_only_rack_that_takes_it() -> None:
    decision = decided(*racks(r1=2, r2=4, r3=1), gang(3), *members("g", 3), rules=BY_PLACEMENTS)
    assert set(nodes_of(decision).values()) == {"n-r2"}
    assert decision.placement == "r2"


def test_the_rack_that_takes_more_members_wins() -> None:
    decision = decided(*racks(r1=3, r2=4), gang(2), *members("g", 4), rules=BY_PLACEMENTS)
    assert decision.placement == "r2"


def test_of_racks_that_take_as_many_the_fuller_one_wins() -> None:
    decision = decided(*racks(r1=8, r2=3), gang(2), *members("g", 2), rules=BY_PLACEMENTS)
    assert decision.placement == "r2"


def test_no_rack_takes_the_gang() -> None:
    decision = decided(*racks(r1=2, r2=2), gang(3), *members("g", 3), rules=BY_PLACEMENTS)
    assert decision.status is GroupStatus.UNSCHEDULABLE
    assert decision.text == (
        "pod group is unschedulable, 0/2 placements are available, first placement status: "
        "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    )


def test_nodes_without_the_label_are_in_no_rack() -> None:
    decision = decided(node("plain"), gang(1), *members("g", 1), rules=BY_PLACEMENTS)
    assert decision.text == "no feasible placements found"


def test_an_unconstrained_group_has_one_placement() -> None:
    decision = decided(*racks(r1=1, r2=1), make_pod_group("g", 3), *members("g", 3), rules=BY_PLACEMENTS)
    assert "0/1 placements are available" in decision.text


def test_running_members_decide_the_rack() -> None:
    running = make_pod("g-9").group("g").req(cpu="1").node("n-r1").obj()
    decision = decided(*racks(r1=2, r2=8), gang(2), running, *members("g", 1), rules=BY_PLACEMENTS)
    assert decision.placement == "r1"


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (("n-r1", "n-r2"), "more than 1 domain found for pod group: r1, r2"),
        (("plain",), "no topology domain found for pod default/g-9"),
        (("gone",), 'getting node for pod default/g-9: nodeinfo not found for node name "gone"'),
    ],
)
def test_running_members_that_are_in_no_single_rack_are_an_error(nodes: tuple[str, ...], text: str) -> None:
    running = [make_pod(f"g-{9 - i}").group("g").node(name).obj() for i, name in enumerate(nodes)]
    decision = decided(*racks(r1=2, r2=2), node("plain"), gang(2), *running, *members("g", 2), rules=BY_PLACEMENTS)
    assert decision.status is GroupStatus.ERROR
    assert decision.text == f"cannot determine domain for already scheduled pods: {text}"
