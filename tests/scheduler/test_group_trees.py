"""Trees of pod groups in the loop: a CompositePodGroup is tried with all groups below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.plugins.registry import default_profile
from extender.queue.entries import Tier
from extender.table.features import VERSIONS, FeatureGates
from tests.builders import (
    Object,
    PodBuilder,
    make_composite_pod_group,
    make_pod_group,
    make_pv,
    make_pvc,
    make_storage_class,
)
from tests.scheduler.test_pod_groups import high, leaving, let_victims_go, member, node, placed, waiting
from tests.scheduler.world import World

ON = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True)


def leaf(name: str, minimum: int | None = None, parent: str = "tree", **spec: Any) -> Object:
    return make_pod_group(name, minimum, parentCompositePodGroupName=parent, **spec)


def nodes_of(world: World, names: str) -> list[str]:
    return [world.node_of(name) for name in names]


def pairs(*groups: str) -> list[PodBuilder]:
    """Two members of each group: a and b of the first, c and d of the second, and so on."""
    return [member(name, groups[index // 2]) for index, name in enumerate("abcdef"[: 2 * len(groups)])]


def test_a_tree_is_tried_when_all_its_groups_are_known() -> None:
    world = World(node("n1"), leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    world.pass_time(5)
    assert sorted(waiting(world, Tier.GATED)) == ["a", "b", "c", "d"]
    world.put(make_composite_pod_group("tree", 2))
    world.pass_time(1)
    assert nodes_of(world, "abcd") == ["n1"] * 4
    assert sorted(world.group_conditions) == [("left", "Scheduled", ""), ("right", "Scheduled", "")]


def test_a_tree_is_one_entity_of_the_queue() -> None:
    tree = make_composite_pod_group("tree", 2)
    world = World(node("n1"), tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    assert world.attempt()
    assert waiting(world, Tier.ACTIVE) == []


def test_no_group_is_bound_if_too_few_groups_of_the_tree_fit() -> None:
    tree = make_composite_pod_group("tree", 2)
    world = World(node("n1", cpu="3"), tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    world.settle()
    assert nodes_of(world, "abcd") == [""] * 4
    assert world.cache.overview().assumed == []
    reasons = {name: message for name, reason, message in world.group_conditions}
    assert reasons["left"].startswith(
        "pod group is unschedulable, 0/1 placements are available, first placement status: "
    )
    assert "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining" in reasons["left"]
    world.put(node("n2"))
    world.pass_time(5)
    assert "" not in nodes_of(world, "abcd")


def test_groups_beyond_the_minimum_of_a_tree_may_wait() -> None:
    tree = make_composite_pod_group("tree", 1)
    world = World(node("n1", cpu="3"), tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    world.settle()
    assert nodes_of(world, "abcd") == ["n1", "n1", "", ""]
    world.put(node("n2"))
    world.pass_time(5)
    assert "" not in nodes_of(world, "cd")


def test_a_group_none_of_whose_members_can_be_assumed_is_not_reported_as_scheduled() -> None:
    tree = make_composite_pod_group("tree", 1)
    members = [member("a", "left", cpu="3"), member("b", "right")]
    nodes = [node("n1", cpu="3"), node("n2", cpu="1")]
    world = World(*nodes, tree, leaf("left", 1), leaf("right", 1), *members, features=ON)
    world.watch()
    world.cache.listen(None)
    world.delete_node_at_each_decision("n2")
    assert world.attempt()
    assert [placed.info.pod.name for placed in world.cache.overview().assumed] == ["a"]
    reasons = {name: reason for name, reason, _ in world.group_conditions}
    assert reasons == {"left": "Scheduled", "right": "SchedulerError"}


def test_without_gang_scheduling_a_group_of_a_tree_succeeds_though_no_member_of_it_fits() -> None:
    profile = replace(default_profile(), enforces_gangs=False)
    members = [member("a", "left", cpu="9"), member("b", "right")]
    tree = make_composite_pod_group("tree", 1)
    world = World(node("n1"), tree, leaf("left", 2), leaf("right", 1), *members, profile=profile, features=ON)
    world.attempt()
    assert world.group_conditions == [("left", "Scheduled", ""), ("right", "Scheduled", "")]


def test_a_tree_below_a_tree_counts_as_one_group() -> None:
    world = World(
        node("n1", cpu="4"),
        make_composite_pod_group("tree", 2),
        make_composite_pod_group("inner", 1, parentCompositePodGroupName="tree"),
        leaf("first", 2),
        leaf("middle", 2, parent="inner"),
        leaf("right", 2, parent="inner"),
        *pairs("first", "middle", "right"),
        features=ON,
    )
    world.settle()
    assert sorted(nodes_of(world, "abcdef")) == ["", "", "n1", "n1", "n1", "n1"]


def test_a_tree_waits_until_enough_of_its_groups_have_their_pods() -> None:
    tree = make_composite_pod_group("tree", 2)
    world = World(node("n1"), tree, leaf("left", 2), leaf("right", 1), *map(left, "ab"), features=ON)
    world.pass_time(5)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    world.put(placed("elsewhere", cpu="1").group("right"))
    world.pass_time(2)
    assert nodes_of(world, "ab") == ["n1", "n1"]


def left(name: str) -> PodBuilder:
    return member(name, "left")


def test_members_wait_for_a_tree_that_was_deleted() -> None:
    tree = make_composite_pod_group("tree", 1)
    world = World(node("n1", cpu="1"), tree, leaf("left", 2), *map(left, "ab"), features=ON)
    world.settle()
    world.delete("CompositePodGroup", "default/tree")
    world.put(node("n2"))
    world.pass_time(5)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    world.put(tree)
    world.pass_time(5)
    assert "" not in nodes_of(world, "ab")


@pytest.mark.parametrize(
    ("parents", "leaves"),
    [
        pytest.param({"tree": "tree"}, "tree", id="itself"),
        pytest.param({"tree": "upper", "upper": "tree"}, "tree", id="each other, the parent leaves"),
        pytest.param({"tree": "upper", "upper": "tree"}, "upper", id="each other, the upper leaves"),
    ],
)
def test_a_cycle_of_groups_holds_back_its_own_members_only(parents: dict[str, str], leaves: str) -> None:
    cycle = [make_composite_pod_group(name, 1, parentCompositePodGroupName=up) for name, up in parents.items()]
    world = World(node("n1"), *cycle, leaf("left", 2), *map(left, "ab"), features=ON)
    world.put(make_pod_group("other", 1))
    world.put(member("c", "other"))
    world.pass_time(5)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    assert nodes_of(world, "abc") == ["", "", "n1"]
    assert world.cache.groups.shortage("default/left") == (
        "waiting for CompositePodGroup default/tree: cycle detected in composite pod group hierarchy"
    )
    world.put(make_composite_pod_group(leaves, 1))
    world.pass_time(5)
    assert nodes_of(world, "ab") == ["n1", "n1"]


def test_a_chain_of_600_groups_holds_back_its_own_members_only() -> None:
    above = {f"c{number}": f"c{number - 1}" for number in range(1, 600)}
    chain = [make_composite_pod_group(name, 1, parentCompositePodGroupName=up) for name, up in above.items()]
    deep = [make_composite_pod_group("c0", 1), *chain, leaf("left", 1, parent="c599")]
    world = World(node("n1"), *deep, left("a"), leaf("other", 1, parent=""), member("c", "other"), features=ON)
    world.pass_time(5)
    world.sweep.run()
    world.cache.groups.family("default/left")
    assert waiting(world, Tier.GATED) == ["a"]
    assert nodes_of(world, "ac") == ["", "n1"]
    assert world.cache.groups.shortage("default/left") == (
        "waiting for CompositePodGroup default/c0: "
        "exceeded maximum hierarchy depth at CompositePodGroup default/c4: a tree has at most 4 levels"
    )
    world.put(make_composite_pod_group("c598", 1))
    world.pass_time(5)
    assert nodes_of(world, "a") == ["n1"]


def test_a_tree_that_becomes_a_cycle_while_its_members_are_queued_is_not_tried() -> None:
    world = World(node("n1"), make_composite_pod_group("tree", 1), leaf("left", 2), *map(left, "ab"), features=ON)
    world.watch()
    world.put(make_composite_pod_group("tree", 1, parentCompositePodGroupName="tree"))
    world.pass_time(5)
    assert nodes_of(world, "ab") == ["", ""]
    assert world.cache.groups.tree(world.cache.groups.root_of("default/left"), {}) is None


def test_members_whose_group_is_deleted_while_the_tree_is_decided_come_back() -> None:
    tree = make_composite_pod_group("tree", 1)
    world = World(node("n1"), tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    world.watch()
    look_up = world.cache.groups.tree

    def deletes_a_group(*args: Any, **named: Any) -> Any:
        world.cache.groups.tree = look_up  # type: ignore[method-assign]  # for the next call
        tree = look_up(*args, **named)
        world.delete("PodGroup", "default/right")
        world.watch()
        return tree

    world.cache.groups.tree = deletes_a_group  # type: ignore[method-assign]  # for the first call
    world.attempt()
    world.pass_time(10)
    assert nodes_of(world, "abcd") == ["n1", "n1", "", ""]
    world.put(leaf("right", 2))
    world.pass_time(10)
    assert nodes_of(world, "abcd") == ["n1"] * 4


def test_a_group_that_leaves_its_tree_is_tried_alone() -> None:
    tree = make_composite_pod_group("tree", 2)
    world = World(node("n1"), tree, leaf("left", 2), *map(left, "ab"), features=ON)
    world.pass_time(2)
    world.delete("PodGroup", "default/left")
    world.put(make_pod_group("left", 2))
    world.pass_time(5)
    assert nodes_of(world, "ab") == ["n1", "n1"]


def test_all_groups_of_a_tree_are_placed_in_one_domain() -> None:
    constraints = {"topology": [{"key": "rack"}]}
    tree = make_composite_pod_group("tree", 2, schedulingConstraints=constraints)
    racks = [node(f"n{i}", cpu="2").label(rack=rack) for i, rack in enumerate(("r1", "r2", "r2"))]
    world = World(*racks, tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=ON)
    world.settle()
    assert sorted(nodes_of(world, "abcd")) == ["n1", "n1", "n2", "n2"]
    # r1 is too small by a sum, and is not tried
    assert set(world.telemetry.placements) == {("feasible", "podgroup", 0.0)}


def test_a_member_that_is_nominated_outside_the_domain_does_not_split_its_group() -> None:
    group = make_pod_group("workers", 2, schedulingConstraints={"topology": [{"key": "rack"}]})
    racks = [node(f"n{i}", cpu="1").label(rack=rack) for i, rack in enumerate(("r1", "r2", "r2"))]
    world = World(*racks, group, member("a").nominated("n0"), member("b"), features=ON)
    world.settle()
    assert sorted(nodes_of(world, "ab")) == ["n1", "n2"]


@pytest.mark.parametrize(("claims", "node_name"), [("vw", "n2"), ("vv", "n1")])
def test_groups_that_share_an_unbound_volume_claim_get_the_same_node(claims: str, node_name: str) -> None:
    right = leaf("right", 1, schedulingConstraints={"topology": [{"key": "rack"}]})
    world = World(
        node("n1", cpu="8").label(rack="r1"),
        node("n2", cpu="2").label(rack="r2"),
        make_storage_class("late"),
        *(make_pvc(name, storage_class="late") for name in "vw"),
        *(make_composite_pod_group("tree", 2), leaf("left", 1), right),
        member("a", "left").pvc(claims[0]).node_selector(rack="r1"),
        member("b", "right").pvc(claims[1]),
        features=ON,
    )
    assert world.attempt()
    assert assumed(world) == {"a": "n1", "b": node_name}


@pytest.mark.parametrize(("volumes", "count"), [("vw", 2), ("v", 0)])
def test_groups_do_not_get_the_same_volume(volumes: str, count: int) -> None:
    world = World(
        node("n1"),
        make_storage_class("static", provisioner="kubernetes.io/no-provisioner"),
        *(make_pv(name, storage_class="static") for name in volumes),
        *(make_pvc(name, storage_class="static") for name in "ab"),
        *(make_composite_pod_group("tree", 2), leaf("left", 1), leaf("right", 1)),
        *(member(name, group).pvc(name) for name, group in (("a", "left"), ("b", "right"))),
        features=ON,
    )
    assert world.attempt()
    assert len(assumed(world)) == count


def assumed(world: World) -> dict[str, str]:
    return {each.info.pod.name: each.node_name for each in world.cache.overview().assumed}


def test_a_tree_evicts_for_all_its_groups_at_once() -> None:
    world = World(
        node("n1"),
        node("n2"),
        make_composite_pod_group("tree", 2, priority=5),
        leaf("left", 1, priority=5),
        leaf("right", 1, priority=5),
        *(placed(f"v{i}", f"n{i}", cpu="4") for i in (1, 2)),
        high("a", cpu="4").group("left"),
        high("b", cpu="4").group("right"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"v1", "v2"}
    uid = "compositepodgroup-default-tree"
    assert {note for name, _, note in world.events if name == "v1"} == {
        f"Preempted by compositepodgroup {uid} on node cluster"
    }
    let_victims_go(world)
    assert "" not in nodes_of(world, "ab")


def test_a_tree_evicts_nothing_for_a_group_that_fails() -> None:
    world = World(
        node("n1"),
        node("n2"),
        make_composite_pod_group("tree", 1, priority=5),
        leaf("left", 1, priority=5),
        leaf("right", 2, priority=5),
        *(placed(f"v{i}", f"n{i}", cpu="4") for i in (1, 2)),
        high("a", cpu="4").group("left"),
        *(high(name, cpu="4").group("right") for name in "bc"),
        features=ON,
    )
    world.settle()
    assert len(leaving(world)) == 1


def test_a_tree_that_is_disrupted_whole_is_one_victim() -> None:
    world = World(
        node("n1"),
        node("n2"),
        make_composite_pod_group("victims", 1, priority=1, disruptionMode={"all": {}}),
        leaf("one", 1, parent="victims", priority=1),
        leaf("two", 1, parent="victims", priority=1),
        placed("w1", "n1", cpu="4", priority=1).group("one"),
        placed("w2", "n2", cpu="4", priority=1).group("two"),
        make_pod_group("workers", 1, priority=5),
        high("a"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"w1", "w2"}


SINCE_1_38 = replace(
    VERSIONS["1.38"].features,
    generic_workload=True,
    topology_aware_workload_scheduling=True,
    composite_pod_group=True,
)


def test_an_invalid_tree_is_an_error_of_all_its_groups() -> None:
    tree = make_composite_pod_group("tree", 1)
    world = World(node("n1"), tree, leaf("left", 1), leaf("right"), *pairs("left", "right"), features=SINCE_1_38)
    world.settle()
    message = 'gang parent "compositepodgroup/default/tree" cannot have basic child "podgroup/default/right"'
    assert {condition for condition in world.group_conditions if condition[0] != "tree"} == {
        ("left", "PodGroupError", message),
        ("right", "PodGroupError", message),
    }
    assert {(reason, text) for _, reason, text, _ in world.conditions} == {("SchedulerError", message)}
    world.put(leaf("right", 1))
    world.pass_time(60)
    assert nodes_of(world, "abcd") == ["n1"] * 4


def test_a_tree_with_too_many_levels_is_refused_since_1_38_and_waits_before() -> None:
    levels = [make_composite_pod_group(f"c{n}", parentCompositePodGroupName=f"c{n - 1}") for n in range(1, 4)]
    groups = [make_composite_pod_group("c0"), *levels, leaf("deep", parent="c3")]
    since = World(node("n1"), *groups, member("a", "deep"), features=SINCE_1_38)
    since.settle()
    message = 'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/c3"'
    assert ("deep", "PodGroupError", message) in since.group_conditions
    before = World(node("n1"), *groups, member("a", "deep"), features=ON)
    before.settle()
    assert (before.group_conditions, waiting(before, Tier.GATED)) == ([], ["a"])


AS_1_38 = replace(
    VERSIONS["1.38"].features, generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True
)


def test_each_group_of_a_tree_has_a_condition_since_1_38() -> None:
    tree = make_composite_pod_group("tree", 2)
    world = World(node("n1"), tree, leaf("left", 2), leaf("right", 2), *pairs("left", "right"), features=AS_1_38)
    world.settle()
    assert sorted(world.group_conditions) == [(name, "Scheduled", "") for name in ("left", "right", "tree")]


def test_a_tree_that_does_not_fit_says_so_in_the_condition_of_its_root_since_1_38() -> None:
    tree = make_composite_pod_group("tree", 2)
    leaves = [leaf("left", 2), leaf("right", 2)]
    world = World(node("n1", cpu="3"), tree, *leaves, *pairs("left", "right"), features=AS_1_38)
    world.attempt()
    reasons = {name: reason for name, reason, _ in world.group_conditions}
    assert reasons == dict.fromkeys(("left", "right", "tree"), "Unschedulable")
    (text,) = [message for name, _, message in world.group_conditions if name == "tree"]
    counts = "cannot be satisfied: 1 scheduled, 1 unschedulable, 0 not-evaluated"
    assert f"scheduling policy's minimum threshold (2) {counts}" in text
    below = [message for name, _, message in world.group_conditions if name == "left"]
    assert below[0].startswith('ancestor composite pod group "tree" is unschedulable')


def test_every_group_of_an_invalid_tree_says_so_in_its_condition_since_1_38() -> None:
    tree = make_composite_pod_group("tree", 1, priority=3)
    world = World(node("n1"), tree, leaf("left", 2), *pairs("left"), features=AS_1_38)
    world.attempt()
    assert [(name, reason) for name, reason, _ in world.group_conditions] == [
        ("tree", "CompositePodGroupError"), ("left", "PodGroupError")
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "tries"), [("1.37", 1), ("1.38", 2)])
def test_a_group_that_is_created_again_wakes_its_members_since_1_38(version: str, tries: int) -> None:
    """The watch shows the deletion and the creation as one change."""
    features = replace(VERSIONS[version].features, generic_workload=True)
    members = [member(name, "g", cpu="8") for name in "ab"]
    world = World(node("n1"), make_pod_group("g", 2), *members, features=features)
    world.settle()
    before = len(world.group_conditions)
    again = make_pod_group("g", 2)
    again["metadata"]["uid"] = "another"
    world.put(again)
    world.pass_time(15)
    assert len(world.group_conditions) == before + tries - 1
