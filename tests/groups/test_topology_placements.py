"""A topology constraint keeps a group in one domain: the one with the most members, then the fullest."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import DeadlineExceeded
from extender.groups import DecideOne, GroupStatus, MemberDecision, decide_group
from extender.groups.group_tree import waiting_members
from extender.groups.topology_placements import DEFAULT_SCORING, TopologyPlacement, total_scores
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows
from tests.builders import Object, make_pod, make_pod_group
from tests.framework.cluster import table_of
from tests.groups.deciding import BY_PLACEMENTS, decided, deciding, members, node, nodes_of, tree

RACK = "rack"


def racks(**cpus: int) -> list[Object]:
    """Builds one node in each rack."""
    return [node(f"n-{rack}", cpu, rack=rack) for rack, cpu in cpus.items()]


def gang(count: int | None, **spec: Any) -> Object:
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


def test_no_rack_is_tried_after_the_fullest_that_takes_all_members() -> None:
    objects = [*racks(r1=8, r2=2, r3=3, r4=4), gang(3), *members("g", 3)]
    table = table_of(*objects)
    decide_one, tried = deciding(table), []

    def noting(info: PodInfo, rows: Rows | None) -> MemberDecision:
        assert rows is not None
        tried.append(table.nodes.names_of(rows))
        return decide_one(info, rows)

    decision = decide_group(tree(*objects), Trial(table), noting, BY_PLACEMENTS)
    assert decision.placement == "r3"
    assert tried == [["n-r2"]] * 3 + [["n-r3"]] * 3  # r2 would be fuller, but takes two


def test_a_domain_that_is_too_small_by_a_sum_is_not_tried() -> None:
    objects = [*racks(r1=8, r2=2, r3=3, r4=4), gang(3), *members("g", 3)]
    table = table_of(*objects)
    decide_one, tried = deciding(table), []

    def noting(info: PodInfo, rows: Rows | None) -> MemberDecision:
        assert rows is not None
        tried.append(table.nodes.names_of(rows))
        return decide_one(info, rows)

    rules = replace(BY_PLACEMENTS, checks_requests=True)
    decision = decide_group(tree(*objects), Trial(table), noting, rules)
    assert (decision.placement, tried) == ("r3", [["n-r3"]] * 3)


def test_if_every_domain_is_too_small_one_says_why_and_all_are_counted() -> None:
    objects = [*racks(r1=1, r2=2), gang(3), *members("g", 3)]
    table = table_of(*objects)
    rules = replace(BY_PLACEMENTS, checks_requests=True)
    decision = decide_group(tree(*objects), Trial(table), deciding(table), rules)
    assert decision.text.startswith("pod group is unschedulable, 0/2 placements are available, ")
    assert decision.members


def test_if_the_time_is_out_the_best_domain_so_far_is_taken() -> None:
    objects = [*racks(r1=4, r2=4), gang(2), *members("g", 5)]
    table = table_of(*objects)
    decide_one, left = deciding(table), [6]

    def until_the_time_is_out(info: PodInfo, rows: Rows | None) -> MemberDecision:
        left[0] -= 1
        if not left[0]:
            raise DeadlineExceeded("no decision within 4 s")
        return decide_one(info, rows)

    decision = decide_group(tree(*objects), Trial(table), until_the_time_is_out, BY_PLACEMENTS)
    assert (decision.placement, len(decision.placed)) == ("r1", 4)


def test_racks_that_tie_are_chosen_at_random_though_a_fuller_one_is_too_small() -> None:
    objects = [*racks(r0=2, a=4, b=4, c=4), gang(3), *members("g", 3)]
    table, choose = table_of(*objects), Random(1).choice
    decisions = [decide_group(tree(*objects), Trial(table), deciding(table), BY_PLACEMENTS, choose) for _ in range(30)]
    assert {decision.placement for decision in decisions} == {"a", "b", "c"}


@given(
    cpus=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    used=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    size=st.integers(1, 6),
    minimum=st.none() | st.integers(1, 6),
)
def test_no_rack_has_a_higher_total_than_the_chosen_one(
    cpus: list[int], used: list[int], size: int, minimum: int | None
) -> None:
    names = [f"r{number}" for number in range(len(cpus))]
    standing = [
        make_pod(f"s-{name}").req(cpu=str(cpu)).node(f"n-{name}").obj() for name, cpu in zip(names, used, strict=False)
    ]
    objects = [*racks(**dict(zip(names, cpus, strict=True))), *standing, *members("g", size)]
    table, group, free = table_of(*objects), tree(gang(minimum), *objects), tree(make_pod_group("g", minimum), *objects)
    decision = decide_group(group, Trial(table), deciding(table), BY_PLACEMENTS)
    proposed = []
    for name in names:
        alone = decide_group(free, Trial(table), within(table, f"n-{name}"))
        if alone.is_success:
            infos = [info for info in waiting_members(free) if info.uid in alone.placed]
            proposed.append((TopologyPlacement(name, table.nodes.rows_of([f"n-{name}"])), infos))
    totals = total_scores(free, proposed, table, DEFAULT_SCORING) if proposed else []
    best = {placement.name for (placement, _), total in zip(proposed, totals, strict=True) if total == max(totals)}
    assert decision.placement in best if best else not decision.is_success


def within(table: Table, node_name: str) -> DecideOne:
    """Decides about members on this node alone."""
    decide_one, rows = deciding(table), table.nodes.rows_of([node_name])
    return lambda info, _: decide_one(info, rows)


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
