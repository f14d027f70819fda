"""One PodGroup: all members are placed, as many as its minimum at least, or none."""

from __future__ import annotations

import pytest

from extender.groups import GroupRules, GroupStatus, decide_group, member_failure
from extender.groups.decision import leaf_decisions
from extender.table import Trial
from tests.builders import Object, make_pod, make_pod_group
from tests.framework.cluster import table_of
from tests.groups.deciding import decided, deciding, failing, members, node, nodes_of, tree

FULL = "0/2 nodes are available: 2 Insufficient cpu."


def cluster(cpu: int = 2) -> list[Object]:
    return [node("a", cpu), node("b", cpu)]


def test_a_gang_that_fits_is_placed_whole() -> None:
    decision = decided(*cluster(), make_pod_group("g", 4), *members("g", 4))
    assert (decision.status, decision.text) == (GroupStatus.SCHEDULED, "")
    assert sorted(nodes_of(decision).values()) == ["a", "a", "b", "b"]


def test_members_beyond_the_minimum_are_placed_as_far_as_they_fit() -> None:
    decision = decided(*cluster(), make_pod_group("g", 3), *members("g", 6))
    assert decision.is_success
    assert len(nodes_of(decision)) == 4
    assert [member.message for member in decision.members.values()][4:] == [FULL, FULL]


def test_a_gang_is_refused_as_soon_as_its_minimum_is_out_of_reach() -> None:
    decision = decided(*cluster(), make_pod_group("g", 6), *members("g", 7))
    assert decision.status is GroupStatus.UNSCHEDULABLE
    assert decision.text == "minCount (6) cannot be satisfied: 4 scheduled, 1 remaining"
    assert len(decision.members) == 6, "the seventh is not tried"
    assert nodes_of(decision) == {}


def test_the_texts_of_the_members_of_a_gang_without_room() -> None:
    decision = decided(*cluster(), make_pod_group("g", 6), *members("g", 7))
    (group,) = leaf_decisions(decision)
    texts = [member_failure(group, member) for member in group.members.values()]
    lost = "minCount (6) cannot be satisfied: 4 scheduled, 1 remaining"
    assert texts == [*[f"pod group is unschedulable, {lost}"] * 4, FULL, FULL, lost]


def test_a_gang_that_is_short_of_pods_tries_none() -> None:
    decision = decided(*cluster(), make_pod_group("g", 3), *members("g", 2))
    assert decision.status is GroupStatus.UNSCHEDULABLE
    assert decision.text == ("pod group is unschedulable, minCount (3) cannot be satisfied: 0 scheduled, 2 remaining")
    assert decision.members == {}


def test_a_basic_group_needs_one_member() -> None:
    decision = decided(*cluster(1), make_pod_group("g"), *members("g", 3))
    assert decision.is_success
    assert len(nodes_of(decision)) == 2


def test_a_basic_group_of_which_nothing_fits_is_refused() -> None:
    decision = decided(*cluster(), make_pod_group("g"), *members("g", 2, cpu="3"))
    assert decision.text == "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"


def test_scheduled_members_count_and_the_rest_may_be_few() -> None:
    running = [make_pod(f"g-{i}").group("g").req(cpu="1").node("a").obj() for i in range(2)]
    decision = decided(*cluster(), make_pod_group("g", 3), *running, *members("g", 1, first=2))
    assert nodes_of(decision) == {"g-2": "b"}


def test_a_gang_of_which_nothing_more_fits_is_refused_though_it_runs() -> None:
    running = [make_pod(f"g-{i}").group("g").req(cpu="2").node(name).obj() for i, name in enumerate("ab")]
    decision = decided(*cluster(), make_pod_group("g", 2), *running, *members("g", 1, first=2))
    assert (decision.status, decision.text) == (GroupStatus.UNSCHEDULABLE, "pod group is unschedulable")


def test_without_gang_scheduling_there_is_no_minimum() -> None:
    objects = (*cluster(), make_pod_group("g", 9), *members("g", 5))
    assert len(nodes_of(decided(*objects, rules=GroupRules(enforces_gangs=False)))) == 4


def test_an_error_of_one_member_ends_the_attempt_of_all() -> None:
    objects = (*cluster(), make_pod_group("g", 2), *members("g", 3))
    table = table_of(*objects)
    decision = decide_group(tree(*objects), Trial(table), failing("pod-default-g-1", deciding(table)))
    assert decision.status is GroupStatus.ERROR
    assert decision.text == "failed to schedule other pod from a pod group: boom"
    (group,) = leaf_decisions(decision)
    texts = [member_failure(group, member) for member in group.members.values()]
    assert texts == [decision.text, "boom", decision.text]


@pytest.mark.parametrize("minimum", [2, 5])
def test_the_table_is_as_before(minimum: int) -> None:
    objects = (*cluster(), make_pod_group("g", minimum), *members("g", 5))
    table = table_of(*objects)
    before = table.nodes.requested.copy()
    decide_group(tree(*objects), Trial(table), deciding(table))
    assert (table.nodes.requested == before).all()
    assert not table.pods.slot_of


def test_siblings_are_seen_by_rules_about_other_pods() -> None:
    apart = [
        make_pod(f"g-{i}").group("g").label(app="g").anti_affinity("kubernetes.io/hostname", labels={"app": "g"}).obj()
        for i in range(3)
    ]
    decision = decided(*cluster(), make_pod_group("g", 2), *apart)
    assert sorted(nodes_of(decision).values()) == ["a", "b"]
    assert decided(*cluster(), make_pod_group("g", 3), *apart).status is GroupStatus.UNSCHEDULABLE


def test_the_nominations_of_siblings_take_no_room() -> None:
    nominated = make_pod("g-1").group("g").req(cpu="2").nominated("a").obj()
    decision = decided(node("a", 2), make_pod_group("g", 1), *members("g", 1, cpu="2"), nominated)
    assert nodes_of(decision) == {"g-0": "a"}


def test_a_gang_whose_volume_is_missing_is_refused_without_an_error() -> None:
    waiting = make_pod("g-0").group("g").pvc("data").obj()
    decision = decided(*cluster(), make_pod_group("g", 1), waiting)
    assert decision.status is GroupStatus.UNSCHEDULABLE
    assert [member.message for member in decision.members.values()] == [
        '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    ]
