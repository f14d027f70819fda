"""What groups do as in Kubernetes 1.38: the words of failures, and the choice among topology domains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.groups import GroupDecision, GroupRules, GroupStatus, Tree, decide_group, member_failure
from extender.groups.algorithm import PlacementObserver
from extender.groups.decision import group_decisions, leaf_decisions
from extender.table import Trial
from extender.table.features import VERSIONS
from tests.builders import Object, make_composite_pod_group, make_pod_group
from tests.framework.cluster import table_of
from tests.groups.deciding import BY_PLACEMENTS, deciding, failing, members, node, tree

FEATURES = replace(
    VERSIONS["1.38"].features,
    generic_workload=True,
    topology_aware_workload_scheduling=True,
    composite_pod_group=True,
)
BY_RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


class Counted(PlacementObserver):
    def __init__(self) -> None:
        self.counts: list[int] = []

    def generated(self, tree: Tree, count: int) -> None:
        self.counts.append(count)


def decided(
    *objects: Object,
    rules: GroupRules = BY_PLACEMENTS,
    fails: str = "",
    version: str = "1.38",
    observer: PlacementObserver | None = None,
) -> GroupDecision:
    table = table_of(*objects)
    table.features = (
        FEATURES if version == "1.38" else replace(FEATURES, behaviours=VERSIONS[version].features.behaviours)
    )
    decide_one = deciding(table)
    decide_one = failing(fails, decide_one) if fails else decide_one
    return decide_group(tree(*objects), Trial(table), decide_one, rules, observer=observer or PlacementObserver())


def failures(decision: GroupDecision) -> dict[str, str | None]:
    """Returns the failure of each waiting member, by name."""
    return {
        info.pod.name: member_failure(leaf, leaf.members[info.uid])
        for leaf in leaf_decisions(decision)
        for info in leaf.tree.waiting  # type: ignore[union-attr]  # it is a leaf
    }


def texts(decision: GroupDecision) -> dict[str, tuple[str, str]]:
    return {each.tree.group.name: (each.status.value, each.text) for each in group_decisions(decision)}


def child(name: str, minimum: int | None, parent: str = "tree", **spec: Any) -> Object:
    return make_pod_group(name, minimum, parentCompositePodGroupName=parent, **spec)


def test_the_members_of_a_gang_that_does_not_fit_name_the_gang() -> None:
    decision = decided(node("n1", 2), make_pod_group("g", 3), *members("g", 3), rules=GroupRules())
    threshold = (
        "scheduling policy's minimum threshold (3) cannot be satisfied: 2 scheduled, 1 unschedulable, 0 not-evaluated"
    )
    assert texts(decision) == {"g": ("Unschedulable", threshold)}
    assert failures(decision) == {
        "g-0": 'parent pod group "g" is unschedulable',
        "g-1": 'parent pod group "g" is unschedulable',
        "g-2": "0/1 nodes are available: 1 Insufficient cpu.",
    }


def test_an_error_of_a_member_is_not_repeated_for_the_others() -> None:
    decision = decided(
        node("n1"), make_pod_group("g", 3), *members("g", 3), rules=GroupRules(), fails="pod-default-g-1"
    )
    error = "failed to schedule other pod from a pod group: boom"
    assert texts(decision) == {"g": ("SchedulerError", error)}
    others = 'parent pod group "g" encountered an error'
    assert failures(decision) == {"g-0": others, "g-1": "boom", "g-2": others}


def test_groups_below_a_group_that_failed_name_it_unless_they_failed_themselves() -> None:
    objects = [
        node("n1", 2),
        make_composite_pod_group("tree", 3),
        child("fits", 1), *members("fits", 1),
        child("large", 2), *members("large", 2),
        child("untried", 1), *members("untried", 1),
    ]  # fmt: skip
    decision = decided(*objects, rules=BY_PLACEMENTS)
    lost = "scheduling policy's minimum threshold"
    of_large = f"0/1 placements are available, first placement status: {lost} (2) cannot be satisfied"
    assert texts(decision) == {
        "tree": (
            "Unschedulable",
            f"0/1 placements are available, first placement status: {lost} (3) cannot be satisfied: "
            "1 scheduled, 1 unschedulable, 1 not-evaluated",
        ),
        "fits": ("Unschedulable", 'ancestor composite pod group "tree" is unschedulable'),
        "large": ("Unschedulable", f"{of_large}: 1 scheduled, 1 unschedulable, 0 not-evaluated"),
        "untried": ("Unschedulable", 'ancestor composite pod group "tree" is unschedulable'),
    }
    assert failures(decision)["fits-0"] == 'parent pod group "fits" is unschedulable'
    assert failures(decision)["untried-0"] == 'parent pod group "untried" is unschedulable'


def test_an_error_below_a_composite_group_names_the_child() -> None:
    objects = [node("n1"), make_composite_pod_group("tree", 1), child("x", 1), *members("x", 1)]
    decision = decided(*objects, fails="pod-default-x-0")
    of_child = "failed to schedule other pod from a pod group: boom"
    assert texts(decision) == {
        "tree": ("SchedulerError", f'composite pod group "tree" evaluation failed due to child "x" error: {of_child}'),
        "x": ("SchedulerError", of_child),
    }
    assert failures(decision) == {"x-0": "boom"}


def test_a_group_whose_members_fit_nowhere_but_are_not_needed_says_so() -> None:
    placed = members("g", 1)
    placed[0]["spec"]["nodeName"] = "n1"
    decision = decided(node("n1", 1), make_pod_group("g", 1), *placed, *members("g", 1, first=1), rules=GroupRules())
    assert texts(decision) == {"g": ("Unschedulable", "no pods were schedulable")}


def nominated(group: str, count: int, node_name: str) -> list[Object]:
    return [{**each, "status": {"nominatedNodeName": node_name}} for each in members(group, count)]


@pytest.mark.parametrize(("version", "domain"), [("1.37", "r2"), ("1.38", "r1")])
def test_a_gang_goes_to_the_domain_that_it_is_nominated_to(version: str, domain: str) -> None:
    racks = [node("n1", 2, rack="r1"), node("n2", 4, rack="r2")]
    decision = decided(*racks, make_pod_group("g", 1, **BY_RACK), *nominated("g", 3, "n1"), version=version)
    assert decision.placement == domain


def test_a_nominated_domain_that_takes_no_member_is_named_only_if_no_other_takes_one() -> None:
    racks = [node("n1", 1, rack="r1"), node("n2", 1, rack="r2")]
    gang = make_pod_group("g", 2, **BY_RACK)
    decision = decided(*racks, gang, *nominated("g", 2, "n2"))
    lost = (
        "scheduling policy's minimum threshold (2) cannot be satisfied: 1 scheduled, 1 unschedulable, 0 not-evaluated"
    )
    assert decision.text == f"0/2 placements are available, first placement status: {lost}"
    assert decision.placement == "r2"
    assert decided(*racks, node("n3", 2, rack="r3"), gang, *nominated("g", 2, "n2")).placement == "r3"


def test_a_nominated_domain_with_enough_running_members_takes_none() -> None:
    running = members("g", 1)
    running[0]["spec"]["nodeName"] = "n1"
    waiting = [{**each, "status": {"nominatedNodeName": "n1"}} for each in members("g", 1, first=1)]
    decision = decided(node("n1", 1, rack="r1"), make_pod_group("g", 1, **BY_RACK), *running, *waiting)
    none = "nominated placement is feasible but no pending pod was scheduled"
    assert (decision.status, decision.text) == (
        GroupStatus.UNSCHEDULABLE, f"0/1 placements are available, first placement status: {none}"
    )  # fmt: skip


def tried_domains(percentage: int, version: str = "1.38") -> int:
    """Returns in how many of 60 domains a group is tried, each of which takes 1 of 2 members."""
    racks = [node(f"n{number}", 1, rack=f"r{number}") for number in range(60)]
    objects = [*racks, make_pod_group("g", 1, **BY_RACK), *members("g", 2)]
    table = table_of(*objects)
    table.features = (
        FEATURES if version == "1.38" else replace(FEATURES, behaviours=VERSIONS[version].features.behaviours)
    )
    counted = Evaluated()
    rules = replace(BY_PLACEMENTS, percentage_of_placements_to_score=percentage)
    decide_group(tree(*objects), Trial(table), deciding(table), rules, observer=counted)
    return counted.number


class Evaluated(PlacementObserver):
    number = 0

    def evaluate(self, tree: Tree, decide: Any) -> GroupDecision:
        self.number += 1
        decision: GroupDecision = decide()
        return decision


@pytest.mark.parametrize(
    ("percentage", "version", "tried"), [(0, "1.38", 59), (30, "1.38", 18), (1, "1.38", 1), (30, "1.37", 60)]
)
def test_the_search_ends_after_a_percentage_of_the_domains(percentage: int, version: str, tried: int) -> None:
    """By default it is 99 % of 60 domains with 60 nodes, rounded down."""
    assert tried_domains(percentage, version) == tried


@pytest.mark.parametrize(("version", "domain"), [("1.37", ""), ("1.38", "r2")])
def test_nodes_with_an_empty_label_are_in_no_domain(version: str, domain: str) -> None:
    racks = [node("n1", 4, rack=""), node("n2", 3, rack="r2")]
    assert decided(*racks, make_pod_group("g", 1, **BY_RACK), *members("g", 4), version=version).placement == domain


def test_a_running_member_on_a_node_with_an_empty_label_is_an_error() -> None:
    running = members("g", 1)
    running[0]["spec"]["nodeName"] = "n1"
    decision = decided(node("n1", rack=""), make_pod_group("g", 2, **BY_RACK), *running, *members("g", 1, first=1))
    error = "empty topology domain found for pod default/g-0"
    assert decision.text == f"cannot determine domain for already scheduled pods: {error}"


@pytest.mark.parametrize(("version", "counts"), [("1.37", [1]), ("1.38", [2, 1])])
def test_the_placements_of_composite_groups_are_counted(version: str, counts: list[int]) -> None:
    racks = [node("n1", 4, rack="r1"), node("n2", 1, rack="r2")]
    objects = [*racks, make_composite_pod_group("tree", 1, **BY_RACK), child("x", 2), *members("x", 2)]
    observer = Counted()
    decided(*objects, version=version, observer=observer)
    assert observer.counts[: len(counts)] == counts
