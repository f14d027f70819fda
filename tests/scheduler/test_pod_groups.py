"""Pod groups in the loop, step by step and without threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.errors import Refused
from extender.plugins.registry import default_profile
from extender.policy.loading import read
from extender.queue.entries import Tier
from extender.table.features import VERSIONS, FeatureGates
from tests.builders import (
    HOSTNAME,
    ZONE,
    NodeBuilder,
    PodBuilder,
    expression,
    make_node,
    make_pdb,
    make_pod,
    make_pod_group,
    node_term,
)
from tests.policy.configurations import profile as configuration
from tests.scheduler.world import NAME, World

ON = FeatureGates(generic_workload=True)


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def member(name: str, group: str = "workers", cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu).group(group)


def waiting(world: World, tier: Tier) -> list[str]:
    return [info.pod.name for info in world.queue.pods()[tier]]


def test_members_wait_until_their_pod_group_is_seen() -> None:
    world = World(node("n1"), member("a"), member("b"), features=ON)
    world.pass_time(20)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    assert (world.telemetry.results, world.conditions) == ([], [])
    world.put(make_pod_group("other"))
    world.settle()
    assert waiting(world, Tier.GATED) == ["a", "b"]
    world.put(make_pod_group("workers"))
    world.pass_time(1)
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


def test_members_of_a_basic_group_are_placed_as_far_as_they_fit() -> None:
    world = World(make_pod_group("workers"), node("n1", cpu="2"), *map(member, "abc"), features=ON)
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["n1", "n1", ""]
    assert world.group_conditions[0] == ("workers", "Scheduled", "")
    assert world.conditions[-1][:2] == ("c", "Unschedulable")
    world.put(node("n2"))
    world.pass_time(1)
    assert world.node_of("c") == "n2"


def test_the_decision_about_each_member_is_observed() -> None:
    world = World(make_pod_group("workers"), node("n1", cpu="3"), *map(member, "abc"), features=ON)
    world.settle()
    assert world.telemetry.decisions == [0.0] * 3


def test_members_are_measured_by_the_same_sample_as_other_pods() -> None:
    world = World(node("n1"), make_pod("single").uid("single").scheduler(NAME).req(cpu="1"), features=ON)
    world.settle()  # the first decision is in the sample
    world.put(make_pod_group("workers"))
    for name in "abc":
        world.put(member(name))
    world.settle()
    filtered = [plugin for plugin, point, _ in world.telemetry.plugins if point == "Filter"]
    assert (len(world.telemetry.decisions), filtered.count("NodeResourcesFit")) == (4, 1)


def test_members_that_are_bound_do_not_wake_the_rest_of_their_group() -> None:
    world = World(make_pod_group("workers"), node("n1", cpu="3"), *map(member, "abcde"), features=ON)
    while world.attempt():  # the watch shows the binds only after that
        world.watch()
    refused = len(world.conditions)
    world.settle()
    world.pass_time(10)
    assert [world.node_of(name) for name in "abcde"].count("n1") == 3
    assert len(world.conditions) == refused


def test_a_gang_waits_until_enough_of_its_members_exist() -> None:
    world = World(make_pod_group("workers", 3), node("n1"), member("a"), member("b"), features=ON)
    world.pass_time(20)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    assert (world.conditions, world.group_conditions) == ([], [])
    world.put(member("c"))
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["n1", "n1", "n1"]
    assert world.group_conditions == [("workers", "Scheduled", "")]


def test_a_gang_with_too_little_room_is_not_bound_at_all() -> None:
    world = World(make_pod_group("workers", 3), node("n1", cpu="2"), *map(member, "abc"), features=ON)
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["", "", ""]
    assert world.cache.overview().assumed == []
    text = (
        "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, "
        "pod group preemption: No preemption victims found for incoming preemptor"
    )
    assert world.group_conditions == [("workers", "Unschedulable", text)]
    assert world.conditions == [
        ("a", "Unschedulable", f"pod group is unschedulable, {text}", ""),
        ("b", "Unschedulable", f"pod group is unschedulable, {text}", ""),
        ("c", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.", None),
    ]


@pytest.mark.parametrize(
    ("running", "rules"),
    [
        pytest.param("", {"NodeAffinity", "NodeResourcesFit", "GangScheduling"}, id="the gang lacks members"),
        pytest.param("xyz", {"NodeAffinity", "NodeResourcesFit"}, id="the gang runs without them"),
    ],
)
def test_a_gang_is_rejected_by_gang_scheduling_only_while_members_are_missing(running: str, rules: set[str]) -> None:
    world = World(make_pod_group("workers", 3), node("n0"), node("n1", cpu="2"), features=ON)
    for name in running:
        world.put(member(name).node("n0"))
    for name in "abc":
        world.put(member(name, cpu="3" if running else "1").node_selector({HOSTNAME: "n1"}))
    world.settle()
    (rejection, *others) = [pod.rejection for _, pod in world.queue.queued()]
    assert rejection.rules == rules
    assert {other.rules for other in others} <= {rejection.rules}


def test_a_rejected_gang_costs_no_attempt_until_an_event_may_help() -> None:
    world = World(make_pod_group("workers", 3), node("n1", cpu="2"), *map(member, "abc"), features=ON)
    world.pass_time(60)
    assert world.telemetry.results == ["unschedulable"] * 3
    world.put(node("n2"))
    world.settle()
    assert sorted(world.node_of(name) for name in "abc") != ["", "", ""]
    assert len([world.node_of(name) for name in "abc" if world.node_of(name)]) == 3


def test_gangs_that_fit_nowhere_cost_no_attempts_while_nothing_changes() -> None:
    gangs = [make_pod_group(f"g{i}", 2) for i in range(200)]
    members = [member(f"g{i}-{number}", f"g{i}", cpu="2") for i in range(200) for number in (0, 1)]
    world = World(node("n1", cpu="3"), *gangs, *members, features=ON)
    world.settle()
    tried = len(world.telemetry.results)
    assert tried == 400
    world.pass_time(120)
    world.put(placed("elsewhere", "n1", cpu="1"))
    world.pass_time(10)
    assert len(world.telemetry.results) == tried
    world.put(node("n2"))
    world.pass_time(10)
    assert len([pod for pod in members if world.node_of(pod.obj()["metadata"]["name"])]) == 2


def test_a_profile_without_gang_scheduling_enforces_no_gangs() -> None:
    policy = read(configuration(plugins={"multiPoint": {"disabled": [{"name": "GangScheduling"}]}}))
    profile = policy.profiles[0]
    world = World(make_pod_group("workers", 4), node("n1", cpu="2"), *map(member, "abc"), profile=profile, features=ON)
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["n1", "n1", ""]


def test_members_beyond_the_minimum_go_along_and_those_left_come_later() -> None:
    world = World(make_pod_group("workers", 2), node("n1", cpu="3"), *map(member, "abcd"), features=ON)
    world.settle()
    assert [world.node_of(name) for name in "abcd"] == ["n1", "n1", "n1", ""]
    world.put(node("n2"))
    world.pass_time(1)
    assert world.node_of("d") == "n2"


def test_bound_members_count_for_the_minimum() -> None:
    """After a restart, what is left of a partly bound gang is completed."""
    bound = [member(name).node("n1") for name in "ab"]
    world = World(make_pod_group("workers", 3), node("n1"), *bound, member("c"), features=ON)
    world.settle()
    assert world.node_of("c") == "n1"


def test_a_gang_of_another_size_of_members_is_tried_by_priority() -> None:
    world = World(
        make_pod_group("low", 2),
        make_pod_group("high", 2, priority=5),
        node("n1", cpu="2"),
        *(member(name, "low") for name in "ab"),
        *(member(name, "high").priority(5) for name in "cd"),
        features=ON,
    )
    world.settle()
    assert [world.node_of(name) for name in "abcd"] == ["", "", "n1", "n1"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(
            member("b").priority(7),
            "all pods in a single pod group should have the same priority as the pod group's priority, got 7 and 0",
            id="priority",
        ),
        pytest.param(
            member("b").preemption_policy("Never"),
            "all pods in a single pod group should have the same preemption policy, got Never and PreemptLowerPriority",
            id="preemption policy",
        ),
    ],
)
def test_members_that_differ_fail_as_a_group(other: PodBuilder, message: str) -> None:
    world = World(make_pod_group("workers", 2), node("n1"), member("a"), other, features=ON)
    world.settle()
    assert {reason for _, reason, _, _ in world.conditions} == {"SchedulerError"}
    assert world.group_conditions[0] == ("workers", "SchedulerError", message)
    assert [world.node_of(name) for name in "ab"] == ["", ""]


def test_a_member_whose_bind_is_refused_comes_back_alone() -> None:
    world = World(make_pod_group("workers", 2), node("n1"), *map(member, "ab"), features=ON)
    world.faults.append(Refused("no", 403))
    world.settle()
    assert sorted(world.node_of(name) for name in "ab") == ["", "n1"]
    world.pass_time(3)
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


def test_nothing_is_bound_if_the_nodes_of_a_gang_vanish_before_it_is_assumed() -> None:
    world = World(
        make_pod_group("workers", 2), node("n1", cpu="1"), node("n2", cpu="1"), *map(member, "ab"), features=ON
    )
    world.watch()
    world.cache.listen(None)
    world.delete_node_at_each_decision("n2")
    assert world.attempt()
    assert world.cache.overview().assumed == []
    assert [reason for _, reason, _ in world.group_conditions] == ["SchedulerError"]
    assert world.telemetry.group_results == ["error"]


def test_a_running_gang_stays_scheduled_if_a_further_member_cannot_be_reserved() -> None:
    running = [member(name).node("n1") for name in "ab"]
    world = World(make_pod_group("workers", 2), node("n1", cpu="2"), node("n2"), *running, member("c"), features=ON)
    world.watch()
    world.cache.listen(None)
    world.delete_node_at_each_decision("n2")
    assert world.attempt()
    assert world.group_conditions == [("workers", "Scheduled", "")]
    assert [(name, reason, text) for name, reason, text, _ in world.conditions] == [
        ("c", "SchedulerError", "assume: node n2 is not in the cache")
    ]


def test_a_deleted_pod_group_holds_its_members_back() -> None:
    world = World(make_pod_group("workers", 2), node("n1", cpu="1"), *map(member, "ab"), features=ON)
    world.settle()
    world.delete("PodGroup", "default/workers")
    world.put(node("n2"))
    world.pass_time(5)
    assert waiting(world, Tier.GATED) == ["a", "b"]
    world.put(make_pod_group("workers", 2))
    world.pass_time(5)
    assert "" not in [world.node_of(name) for name in "ab"]


def placed(name: str, on: str = "n1", cpu: str = "2", priority: int = 0) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu).node(on).priority(priority)


def high(name: str, cpu: str = "2") -> PodBuilder:
    return member(name, cpu=cpu).priority(5)


def leaving(world: World) -> set[str]:
    """Returns the names of the pods that are being evicted."""
    return {name.partition("/")[2] for (kind, name), obj in world.objects.items() if kind == "Pod" and obj.terminating}


def let_victims_go(world: World) -> None:
    for name in leaving(world):
        world.delete("Pod", f"default/{name}")
    world.pass_time(5)


def test_a_gang_evicts_no_more_than_it_needs_and_then_runs() -> None:
    world = World(
        make_pod_group("workers", 2, priority=5),
        node("n1"),
        node("n2"),
        *(placed(f"v{i}", on) for i, on in enumerate(("n1", "n1", "n2"))),
        *map(high, "ab"),
        features=ON,
    )
    world.settle()
    assert len(leaving(world)) == 1
    text = (
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, "
        "pod group preemption: found a placement for podgroup, preempting 1 victims"
    )
    assert world.group_conditions[0] == ("workers", "Unschedulable", text)
    assert ("a", "Unschedulable", text) in [condition[:3] for condition in world.conditions]
    (victim,) = leaving(world)
    assert (victim, "Preempted", "Preempted by podgroup podgroup-default-workers on node cluster") in world.events
    let_victims_go(world)
    assert "" not in [world.node_of(name) for name in "ab"]
    assert world.group_conditions[-1] == ("workers", "Scheduled", "")
    assert world.telemetry.group_results == ["waiting_on_preemption", "scheduled"]
    assert world.telemetry.group_preemptions == [("Success", 0.0)]


def test_a_gang_that_does_not_fit_anyhow_evicts_nothing() -> None:
    world = World(make_pod_group("workers", 3, priority=5), node("n1"), placed("v"), *map(high, "abc"), features=ON)
    world.settle()
    assert leaving(world) == set()
    assert world.group_conditions[0][2] == (
        "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, "
        "deallocation and deletion of ResourceClaims completed, "
        "pod group preemption: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    )


def test_a_group_that_is_disrupted_whole_loses_all_its_pods_or_none() -> None:
    world = World(
        make_pod_group("workers", 2, priority=5),
        make_pod_group("whole", 2, priority=1, disruptionMode={"all": {}}),
        node("n1"),
        node("n2"),
        placed("w1", "n1", priority=1).group("whole"),
        placed("w2", "n2", priority=1).group("whole"),
        placed("single", "n1", priority=2),
        placed("other", "n2", priority=2),
        *map(high, "ab"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"w1", "w2"}
    assert (world.telemetry.victims, world.telemetry.disruptions) == ([2], [{"podgroup": 1}])
    let_victims_go(world)
    assert "" not in [world.node_of(name) for name in "ab"]


def test_pods_that_a_budget_protects_are_evicted_last() -> None:
    world = World(
        make_pod_group("workers", 1, priority=5),
        node("n1"),
        make_pdb("keep", {"app": "db"}, minAvailable=1),
        placed("db", priority=0).label(app="db"),
        placed("web", priority=1).label(app="web"),
        high("a"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"web"}


def test_an_empty_selector_counts_no_pod_that_is_spared() -> None:
    world = World(
        make_pod_group("workers", 1, priority=5),
        node("n1").zone("a"),
        node("n2").zone("b"),
        *(placed(f"v{i}", "n1") for i in range(2)),
        placed("important", "n2", cpu="4", priority=9),
        high("a").spread(ZONE, labelSelector={}),
        features=ON,
    )
    world.settle()
    assert len(leaving(world)) == 1


def test_a_pod_whose_anti_affinity_keeps_a_group_out_is_evicted() -> None:
    guard = placed("guard", cpu="1").anti_affinity(HOSTNAME, labels={"app": "web"})
    waiting = high("a", cpu="1").label(app="web")
    world = World(make_pod_group("workers", 1, priority=5), node("n1"), guard, waiting, features=ON)
    world.settle()
    assert leaving(world) == {"guard"}


def test_the_priority_of_its_group_says_if_a_pod_can_be_evicted() -> None:
    world = World(
        make_pod_group("workers", 1, priority=5),
        make_pod_group("lower", 1, priority=1),
        node("n1"),
        placed("v", cpu="4", priority=9).group("lower"),
        high("a"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"v"}


def test_siblings_that_are_nominated_take_no_place() -> None:
    one_pod = make_node("n1").capacity(cpu="4", memory="16Gi", pods="1")
    members = [member(name).nominated("n1") for name in "ab"]
    world = World(make_pod_group("workers", 1), one_pod, *members, features=ON)
    world.settle()
    assert sorted(world.node_of(name) for name in "ab") == ["", "n1"]


def test_a_group_that_preempts_is_nominated_to_nodes_with_its_image() -> None:
    names = ["n1", "n2", "n3"]
    world = World(
        make_pod_group("workers", 1, priority=5),
        *(node(name) for name in names[:2]),
        node("n3").image("app:v1", size_bytes=900_000_000),
        *(placed(f"v-{name}", name, cpu="4") for name in names),
        high("a").image("app:v1"),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"v-n3"}


def test_a_gang_that_must_not_preempt_evicts_nothing() -> None:
    members = [high(name).preemption_policy("Never") for name in "ab"]
    world = World(make_pod_group("workers", 2, priority=5), node("n1"), placed("v"), *members, features=ON)
    world.settle()
    assert leaving(world) == set()
    assert world.group_conditions[0][2].endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


def test_a_gang_of_a_profile_without_preemption_evicts_nothing() -> None:
    gang, pods = make_pod_group("workers", 2, priority=5), (placed("v", cpu="4"), *map(high, "ab"))
    profile = replace(default_profile(), preemption=None)
    world = World(gang, node("n1"), *pods, features=ON, profile=profile)
    world.settle()
    assert (leaving(world), world.telemetry.group_preemptions) == (set(), [])
    assert world.telemetry.group_results == ["unschedulable"]


def test_a_gang_whose_victims_are_leaving_evicts_no_others() -> None:
    world = World(
        make_pod_group("workers", 2, priority=5),
        node("n1"),
        node("n2"),
        *(placed(f"v{i}", f"n{i}", cpu="4") for i in (1, 2)),
        *map(high, "ab"),
        features=ON,
    )
    world.settle()
    before = leaving(world)
    assert before
    world.put(node("n3", cpu="1"))
    world.pass_time(10)
    assert leaving(world) == before


def test_members_of_a_basic_group_preempt_too() -> None:
    world = World(
        make_pod_group("workers", priority=5), node("n1"), placed("v1"), placed("v2"), *map(high, "ab"), features=ON
    )
    world.settle()
    assert leaving(world) == {"v1", "v2"}
    let_victims_go(world)
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, id="topology"),
        pytest.param({"parentCompositePodGroupName": "tree"}, id="parent"),
        pytest.param({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, id="claims"),
    ],
)
def test_fields_whose_gate_is_off_are_ignored(spec: dict[str, Any]) -> None:
    world = World(make_pod_group("workers", 2, **spec), node("n1"), *map(member, "ab"), features=ON)
    world.settle()
    assert [world.node_of(name) for name in "ab"] == ["n1", "n1"]


def test_without_the_gate_members_are_placed_alone() -> None:
    world = World(make_pod_group("workers", 3), node("n1"), member("a"))
    world.settle()
    assert world.node_of("a") == "n1"


def test_a_group_is_evicted_as_a_whole_for_a_single_pod() -> None:
    world = World(
        make_pod_group("whole", 2, priority=1, disruptionMode={"all": {}}),
        node("n1", cpu="2"),
        node("n2", cpu="4"),
        placed("w1", "n1", priority=1).group("whole"),
        placed("w2", "n2", priority=1).group("whole"),
        placed("stays", "n2", priority=1),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="2").priority(5).node_selector(only="n1"),
        features=ON,
    )
    world.put(node("n1", cpu="2").label(only="n1"))
    world.settle()
    assert leaving(world) == {"w1", "w2"}
    let_victims_go(world)
    assert world.node_of("preemptor") == "n1"


def test_a_whole_group_is_spared_if_a_single_pod_suffices() -> None:
    world = World(
        make_pod_group("whole", 2, priority=1, disruptionMode={"all": {}}),
        node("n1"),
        node("n2", cpu="2"),
        placed("w1", "n1", priority=1).group("whole"),
        placed("w2", "n2", priority=1).group("whole"),
        placed("single", "n1", priority=1),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="2").priority(5),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"single"}


def test_the_priority_of_the_group_protects_its_pods() -> None:
    world = World(
        make_pod_group("important", 1, priority=9),
        node("n1"),
        placed("a", priority=1, cpu="4").group("important"),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="2").priority(5),
        features=ON,
    )
    world.settle()
    assert leaving(world) == set()


def test_the_lower_priority_of_the_group_lets_its_pods_be_evicted_for_a_single_pod() -> None:
    world = World(
        make_pod_group("lower", 1, priority=1),
        node("n1"),
        placed("a", priority=9, cpu="4").group("lower"),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="2").priority(5),
        features=ON,
    )
    world.settle()
    assert leaving(world) == {"a"}
    world.pass_time(10)
    let_victims_go(world)
    assert world.node_of("preemptor") == "n1"


@pytest.mark.parametrize(("priority", "of_group"), [(9, 1), (1, 9)], ids=["a group below", "a group above"])
def test_the_message_counts_the_nodes_without_victims_by_the_priority_of_groups(priority: int, of_group: int) -> None:
    world = World(
        make_pod_group("others", 1, priority=of_group),
        node("n1"),
        placed("a", priority=priority, cpu="3").group("others"),
        placed("b", priority=9, cpu="1"),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="4").priority(5),
        features=ON,
    )
    world.settle()
    reason = "Insufficient cpu" if of_group == 1 else "No preemption victims found for incoming pod"
    assert world.conditions[-1][2].endswith(f"preemption: 0/1 nodes are available: 1 {reason}.")


BY_GROUP = FeatureGates(generic_workload=True, pod_group_preemption_policy=True)


def test_the_policy_of_the_group_says_if_it_preempts() -> None:
    never = make_pod_group("workers", 2, priority=5, preemptionPolicy="Never")
    members = [high(name).preemption_policy("Never") for name in "ab"]
    world = World(never, node("n1"), placed("v"), *members, features=BY_GROUP)
    world.settle()
    assert leaving(world) == set()
    assert world.group_conditions[0][2].endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


def test_members_must_have_the_preemption_policy_of_their_group() -> None:
    members = [member(name).preemption_policy("Never") for name in "ab"]
    world = World(make_pod_group("workers", 2), node("n1"), *members, features=BY_GROUP)
    world.settle()
    assert world.group_conditions[0][1:] == (
        "SchedulerError",
        "all pods in a single pod group should have the same preemption policy as the pod group's preemption policy, "
        "got Never and PreemptLowerPriority",
    )


def others(*names: str) -> list[PodBuilder]:
    return [make_pod(name).uid(name).scheduler(NAME).req(cpu="4") for name in names]


def test_a_gang_that_an_earlier_leader_has_split_gets_its_places_before_older_pods() -> None:
    nodes = [node(f"n{i}") for i in range(5)]
    bound = [member("a", cpu="4").node("n0"), member("b", cpu="4").node("n1")]
    world = World(*nodes, *others("x", "y", "z"), make_pod_group("workers", 4), *bound, features=ON)
    for name in "cd":
        world.put(member(name, cpu="4"))
    world.settle()
    assert all(world.node_of(name) for name in "cd")
    assert sum(bool(world.node_of(name)) for name in "xyz") == 1


def test_a_member_whose_bind_is_refused_keeps_its_place_until_it_is_tried_again() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    gang = [member(name, cpu="4") for name in "abc"]
    world = World(*nodes, make_pod_group("workers", 3), *gang, features=ON)
    world.faults.append(Refused("the API server is down", 503))
    world.settle()
    world.put(*others("x"))
    world.settle()
    assert sum(bool(world.node_of(name)) for name in "abc") == 2
    assert world.node_of("x") == ""
    world.pass_time(20)
    assert (all(world.node_of(name) for name in "abc"), world.node_of("x")) == (True, "")


def test_a_profile_that_enforces_no_gangs_keeps_no_room() -> None:
    policy = read(configuration(plugins={"multiPoint": {"disabled": [{"name": "GangScheduling"}]}}))
    profile = replace(policy.profiles[0], name=NAME)
    gang = (make_pod_group("workers", 2), member("a", cpu="4").node("n0"))
    world = World(node("n0"), node("n1"), *others("x"), *gang, features=ON, profile=profile)
    world.put(member("b", cpu="4"))
    world.settle()
    assert (world.node_of("x"), world.node_of("b")) == ("n1", "")


@pytest.mark.parametrize(("version", "evicted"), [("1.37", "single"), ("1.38", "a")])
def test_a_member_that_is_evicted_alone_is_as_important_as_a_pod_since_1_38(version: str, evicted: str) -> None:
    """The single pod has the lower UID, which decides only between two pods of the same kind."""
    world = World(
        make_pod_group("others"),
        node("n1", cpu="2"),
        placed("a", cpu="1").uid("2").group("others"),
        placed("single", cpu="1").uid("1"),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="1").priority(5),
        features=replace(VERSIONS[version].features, generic_workload=True),
    )
    world.settle()
    assert leaving(world) == {evicted}


@pytest.mark.parametrize(("version", "evicted"), [("1.37", {"a"}), ("1.38", set())])
def test_the_own_priority_of_a_member_protects_it_since_1_38(version: str, evicted: set[str]) -> None:
    world = World(
        make_pod_group("lower", 1, priority=1),
        node("n1"),
        placed("a", priority=9, cpu="4").group("lower"),
        make_pod("preemptor").uid("preemptor").scheduler(NAME).req(cpu="2").priority(5),
        features=replace(VERSIONS[version].features, generic_workload=True),
    )
    world.settle()
    assert leaving(world) == evicted


def test_a_group_without_a_policy_does_not_preempt_for_members_that_must_not() -> None:
    features = replace(VERSIONS["1.38"].features, generic_workload=True)
    members = [high(name).preemption_policy("Never") for name in "ab"]
    world = World(make_pod_group("workers", 2, priority=5), node("n1"), placed("v"), *members, features=features)
    world.settle()
    assert leaving(world) == set()
    assert world.group_conditions[0][2].endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


@pytest.mark.parametrize(("version", "evicted"), [("1.37", {"important"}), ("1.38", {"other"})])
def test_a_group_preempts_where_the_least_important_pods_have_to_go_since_1_38(version: str, evicted: set[str]) -> None:
    """Without its pod, the larger node has the higher score."""
    world = World(
        make_pod_group("workers", 1, priority=1000),
        node("n1", cpu="4"),
        node("n2", cpu="2"),
        placed("important", priority=500, cpu="3900m", on="n1"),
        placed("other", priority=0, cpu="1900m", on="n2"),
        member("a", cpu="1500m").priority(1000),
        features=replace(VERSIONS[version].features, generic_workload=True),
    )
    world.settle()
    assert leaving(world) == evicted
    assert (("RankNodes", "Success") in world.telemetry.points) == (version == "1.38")


@pytest.mark.parametrize("others", [0, 1])
def test_a_preempting_member_that_cannot_be_scored_fails_unless_only_one_node_fits(others: int) -> None:
    """The members of the group see several nodes, even if the least important pods are all on one of them."""
    world = World(
        make_pod_group("workers", 1, priority=1000),
        node("n1", cpu="2"),
        placed("other", priority=0, cpu="1900m", on="n1"),
        *[node("n2", cpu="2"), placed("important", priority=500, cpu="1900m", on="n2")][: 2 * others],
        member("a", cpu="1500m").priority(1000).prefer_node(1, node_term(expression("rank", "Gt", "many"))),
        features=replace(VERSIONS["1.38"].features, generic_workload=True),
    )
    world.settle()
    assert leaving(world) == (set() if others else {"other"})
    malformed = 'running PreScore plugin "NodeAffinity": preferred term [0] is malformed'
    assert (malformed in world.group_conditions[-1][2]) is bool(others)


def test_a_later_member_goes_to_a_node_that_is_emptied_anyway() -> None:
    """Without its pod, n2 has the higher score for the second member."""
    world = World(
        make_pod_group("workers", 2, priority=1000),
        node("n1", cpu="4"),
        node("n2", cpu="4"),
        placed("cheap", priority=0, cpu="3900m", on="n1"),
        placed("dear", priority=1, cpu="3900m", on="n2"),
        *(member(name, cpu="1").priority(1000) for name in "ab"),
        features=replace(VERSIONS["1.38"].features, generic_workload=True),
    )
    world.settle()
    assert leaving(world) == {"cheap"}


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("1.37", "pod group preemption: not eligible due to preemptionPolicy=Never."),
        ("1.38", "pod group preemption: ongoing preemption on nominated nodes"),
    ],
)
def test_a_group_waits_for_its_victims_whatever_its_policy_since_1_38(version: str, outcome: str) -> None:
    victim = placed("v", cpu="4").deleted()
    victim.status(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}])
    waiting_member = high("a").preemption_policy("Never").status(nominatedNodeName="n1")
    world = World(
        make_pod_group("workers", 1, priority=5, preemptionPolicy="Never"),
        node("n1"),
        victim,
        waiting_member,
        features=replace(VERSIONS[version].features, generic_workload=True),
    )
    world.settle()
    assert world.group_conditions[0][2].endswith(outcome)


@pytest.mark.parametrize(("version", "releases"), [("1.37", False), ("1.38", True)])
def test_a_group_without_victims_releases_claims_since_1_38(version: str, *, releases: bool) -> None:
    features = replace(VERSIONS[version].features, generic_workload=True)
    world = World(
        make_pod_group("workers", 2), node("n1", cpu="1"), member("a"), member("b", cpu="8"), features=features
    )
    world.settle()
    text = world.group_conditions[0][2]
    assert ("deallocation and deletion of ResourceClaims completed" in text) is releases
    assert text.endswith("pod group preemption: No preemption victims found for incoming preemptor")
