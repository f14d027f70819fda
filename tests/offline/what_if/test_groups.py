"""Simulations place pod groups as a whole, or not at all."""

from __future__ import annotations

from extender import Cluster
from extender.offline.what_if.result import SimulationResult
from extender.offline.what_if.scenario import Scenario
from tests.builders import Object, make_composite_pod_group, make_pod, make_pod_group
from tests.groups.deciding import members, node


def simulated(*objects: Object, **scenario: object) -> SimulationResult:
    return Cluster.from_objects(objects).simulate(Scenario(**scenario))  # type: ignore[arg-type]  # by its fields


def placed(result: SimulationResult) -> set[str]:
    return {placement.pod.partition("/")[2] for placement in result.placements}


def test_a_gang_that_fits_is_placed_whole() -> None:
    result = simulated(node("a"), node("b"), make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert placed(result) == {"g-0", "g-1", "g-2", "g-3"}
    assert result.complete


def test_no_member_of_a_gang_that_does_not_fit_is_placed() -> None:
    result = simulated(node("a"), node("b"), make_pod_group("g", 5), *members("g", 5, cpu="2"))
    assert placed(result) == set()
    lost = "pod group is unschedulable, minCount (5) cannot be satisfied: 4 scheduled, 0 remaining"
    assert result.remaining["default/g-0"] == lost
    assert result.remaining["default/g-4"] == "0/2 nodes are available: 2 Insufficient cpu."


def test_a_gang_takes_no_room_from_others_while_it_waits() -> None:
    gang = (make_pod_group("g", 3), *members("g", 3, cpu="2"))
    result = simulated(node("a"), *gang, make_pod("single").req(cpu="4").obj())
    assert placed(result) == {"single"}


def test_a_basic_group_is_placed_as_far_as_it_fits() -> None:
    result = simulated(node("a"), make_pod_group("g"), *members("g", 3, cpu="2"))
    assert len(placed(result)) == 2
    assert list(result.remaining.values()) == ["0/1 nodes are available: 1 Insufficient cpu."]


def test_a_gang_is_placed_once_a_node_is_added() -> None:
    gang = (make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert placed(simulated(node("a"), *gang)) == set()
    assert len(placed(simulated(node("a"), *gang, add_nodes=[("a", 1)]))) == 4


def test_a_topology_constraint_keeps_a_gang_in_one_rack() -> None:
    racks = [node("a", 2, rack="r1"), node("b", 4, rack="r2")]
    constraint = {"topology": [{"key": "rack"}]}
    gang = (make_pod_group("g", 2, schedulingConstraints=constraint), *members("g", 2, cpu="2"))
    assert {placement.node for placement in simulated(*racks, *gang).placements} == {"b"}


def test_a_gang_evicts_pods_of_lower_priority() -> None:
    running = make_pod("low").req(cpu="4").node("a").priority(-1).obj()
    result = simulated(node("a"), running, make_pod_group("g", 2), *members("g", 2, cpu="2"))
    assert [(eviction.pod, eviction.cause) for eviction in result.evictions] == [
        ("default/low", "preemption by PodGroup default/g")
    ]
    assert placed(result) == {"g-0", "g-1"}


def test_members_wait_for_their_group_and_for_each_other() -> None:
    result = simulated(node("a"), *members("nowhere", 1), make_pod_group("g", 3), *members("g", 2))
    assert "PodGroup default/nowhere does not exist" in result.remaining["default/nowhere-0"]
    assert "2 of 3 pods exist" in result.remaining["default/g-0"]


def test_trees_of_groups_are_refused_with_the_reason() -> None:
    tree = (make_composite_pod_group("t", 1), make_pod_group("g", 1, parentCompositePodGroupName="t"))
    result = simulated(node("a"), *tree, *members("g", 1))
    assert "trees of groups are not simulated" in result.remaining["default/g-0"]


# ---- how many more gangs


def more(*objects: Object, pod: Object) -> tuple[int, list[str], list[str]]:
    answer = Cluster.from_objects(objects).capacity([pod])
    (reasons,) = answer.exhausted.values()
    return answer.total, [reason.reason for reason in reasons], list(answer.notes)


WORKER = make_pod("worker").group("g").req(cpu="2").obj()


def test_a_gang_is_counted_whole() -> None:
    counted = more(node("a", 10), node("b", 4), make_pod_group("g", 3), pod=WORKER)
    note = "Pod default/worker: its pods are counted in whole gangs of 3"
    assert counted == (6, ["Insufficient cpu"], [note])


def test_pods_of_a_basic_group_are_counted_one_by_one() -> None:
    total, reasons, notes = more(node("a", 10), make_pod_group("g"), pod=WORKER)
    assert (total, reasons) == (5, ["Insufficient cpu"])
    assert notes[0].endswith("so its pods are counted one by one")
