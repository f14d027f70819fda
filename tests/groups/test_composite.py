"""A tree of groups: as many child groups as the minimum, each whole within its own minimum, or none."""

from __future__ import annotations

from typing import Any

from extender.groups import GroupStatus, decide_group
from extender.groups.decision import leaf_decisions
from extender.table import Trial
from tests.builders import Object, make_composite_pod_group, make_pod_group
from tests.framework.cluster import table_of
from tests.groups.deciding import BY_PLACEMENTS, decided, deciding, failing, members, node, nodes_of, tree

IN_RACK: Object = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


def child(name: str, count: int, parent: str = "root", **spec: Any) -> Object:
    return make_pod_group(name, count, parentCompositePodGroupName=parent, **spec)


def test_children_are_placed_beside_each_other() -> None:
    objects = (node("a", 2), node("b", 2), make_composite_pod_group("root", 2), child("x", 2), child("y", 2))
    decision = decided(*objects, *members("x", 2), *members("y", 2), rules=BY_PLACEMENTS)
    assert decision.is_success
    assert len(nodes_of(decision)) == 4


def test_too_few_children_fit() -> None:
    objects = (node("a", 3), make_composite_pod_group("root", 2), child("x", 2), child("y", 2))
    decision = decided(*objects, *members("x", 2), *members("y", 2), rules=BY_PLACEMENTS)
    assert decision.status is GroupStatus.UNSCHEDULABLE
    assert decision.text == (
        "pod group is unschedulable, 0/1 placements are available, first placement status: "
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    )
    assert nodes_of(decision) == {}
    assert [leaf.status for leaf in leaf_decisions(decision)] == [GroupStatus.UNSCHEDULABLE] * 2


def test_a_child_that_fails_leaves_its_room_to_the_next() -> None:
    objects = (node("a", 3), make_composite_pod_group("root", 1), child("x", 4), child("y", 3))
    decision = decided(*objects, *members("x", 4), *members("y", 3), rules=BY_PLACEMENTS)
    assert decision.is_success
    assert set(nodes_of(decision)) == {"y-0", "y-1", "y-2"}


def test_children_have_racks_of_their_own_within_the_zone_of_the_root() -> None:
    nodes = [
        node("a1", 2, rack="r1", zone="z1"),
        node("a2", 1, rack="r2", zone="z1"),
        node("b1", 2, rack="r3", zone="z2"),
        node("b2", 2, rack="r4", zone="z2"),
    ]
    root = make_composite_pod_group("root", 2, schedulingConstraints={"topology": [{"key": "zone"}]})
    objects = (*nodes, root, child("x", 2, **IN_RACK), child("y", 2, **IN_RACK))
    decision = decided(*objects, *members("x", 2), *members("y", 2), rules=BY_PLACEMENTS)
    assert decision.placement == "z2"
    assert {child.placement for child in decision.children.values()} == {"r3", "r4"}


def test_groups_below_a_group_that_fails_fail_with_it() -> None:
    middle = make_composite_pod_group("middle", 2, parentCompositePodGroupName="root")
    root = make_composite_pod_group("root", 1)
    objects = (node("a", 2), root, middle, child("x", 2, "middle"), child("y", 2, "middle"))
    decision = decided(*objects, *members("x", 2), *members("y", 2), rules=BY_PLACEMENTS)
    first, second = leaf_decisions(decision)
    assert "0/1 placements" in first.text, "it fitted, but its parent failed"
    assert second.text.endswith("minCount (2) cannot be satisfied: 0 scheduled, 1 remaining")


def test_an_error_below_ends_the_attempt() -> None:
    objects = (node("a", 4), make_composite_pod_group("root", 1), child("x", 1), child("y", 1))
    pods = (*members("x", 1), *members("y", 1))
    table = table_of(*objects, *pods)
    decide_one = failing("pod-default-x-0", deciding(table))
    decision = decide_group(tree(*objects, *pods), Trial(table), decide_one, BY_PLACEMENTS)
    assert decision.text == (
        "composite pod group evaluation failed due to child error: failed to schedule other pod from a pod group: boom"
    )
    assert [leaf.status for leaf in leaf_decisions(decision)] == [GroupStatus.ERROR] * 2
