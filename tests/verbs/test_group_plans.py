"""filter for members of pod groups: the first call plans the group, the later ones are answered from the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from extender import Rows, Table, predicate
from extender.cache.cache import Cache
from extender.engine.group_members import MemberJudge
from extender.errors import DeadlineExceeded
from extender.framework.profile import Profiles, WeightedPriority
from extender.groups import Tree
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import COSCHEDULING_LABEL, GroupName
from extender.plugins.node_resources_scores import CPU_AND_MEMORY, NodeResourcesFitScore, ResourceWeights
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.table.features import FeatureGates
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.group_planning import Plan, PlanRequest
from extender.verbs.group_plans import GroupPlans
from extender.verbs.group_quorum import GroupQuorum
from extender.verbs.prioritize import FilterBest, Prioritize
from tests.builders import (
    HOSTNAME,
    Object,
    PodBuilder,
    expression,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_result,
    node_term,
    with_allocation,
)
from tests.verbs.cluster import PROFILES, FakeBinder, SlowRule, answer, args, binding, tell


class Counted(Telemetry):
    """Remembers the plans, and why they were dropped."""

    def __init__(self) -> None:
        self.planned: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def group_planned(self, result: str) -> None:
        self.planned[result] += 1

    def plan_dropped(self, reason: str) -> None:
        self.dropped[reason] += 1


class Observed:
    """Remembers the plans, and the number of the plan behind each answer (implements PlanObserver)."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.answered_from_plan: list[int] = []

    def plan_begins(self) -> None:
        pass

    def planned(self, plan: Plan, request: PlanRequest, table: Table) -> None:
        self.plans.append(plan)

    def answered_from(self, plan: Plan) -> None:
        self.answered_from_plan.append(plan.number)


class Webhook:
    """filter with plans, over a cache that tests change."""

    def __init__(
        self,
        *objects: Object,
        scheduler_filters: bool = True,
        best: bool = False,
        profiles: Profiles = PROFILES,
        coscheduling: bool = False,
        features: FeatureGates | None = None,
    ) -> None:
        """A call has five seconds of `clock`."""
        self.clock = ManualClock()
        self.cache = Cache(self.clock, Telemetry(), features=features or FeatureGates())
        if coscheduling:
            self.cache.groups.use_coscheduling_label()
        tell(self.cache, objects)
        self.telemetry = Counted()
        self.observed = Observed()
        judge = MemberJudge(Random(0))
        self.plans = GroupPlans(
            self.cache, judge, self.telemetry, self.clock,
            scheduler_filters=scheduler_filters, pause=self.clock.advance, observer=self.observed,
        )  # fmt: skip
        feasible = Filter(
            self.cache, profiles, Telemetry(), limit=TimeLimit(self.clock, 5.0),
            scheduler_filters=scheduler_filters, plans=self.plans,
        )  # fmt: skip
        self.verb: Any = FilterBest(feasible, Prioritize(self.cache, profiles)) if best else feasible

    def pod(self, name: str) -> Pod:
        info = self.cache.find_pod(name, f"default/{name}")
        assert info is not None
        return info.pod

    def planned(self, name: str) -> str:
        """Returns the member's node in the newest plan."""
        node_name = self.observed.plans[-1].node_of(name)
        assert node_name is not None
        return node_name

    def ask(self, pod: Object, names: Sequence[str]) -> list[str]:
        result: list[str] = answer(self.verb, args(pod, names=list(names)))["NodeNames"]
        return result

    def reasons(self, pod: Object, names: Sequence[str]) -> dict[str, str]:
        result: dict[str, str] = answer(self.verb, args(pod, names=list(names)))["FailedNodes"]
        return result


def node(name: str, cpu: str = "4", **labels: str) -> Object:
    return make_node(name).label(**labels).allocatable(cpu=cpu, memory="64Gi", pods="110").obj()


def member(name: str, cpu: str = "4", priority: int = 0) -> PodBuilder:
    return make_pod(name).uid(name).req(cpu=cpu).priority(priority).group("gang")


def members(count: int, cpu: str = "4", priority: int = 0) -> list[Object]:
    return [member(f"m{i}", cpu, priority).obj() for i in range(count)]


NAMES = ["n0", "n1", "n2", "n3"]
NODES = [node(name) for name in NAMES]


def test_each_member_gets_a_node_of_its_own() -> None:
    gang = members(4)
    webhook = Webhook(*NODES, make_pod_group("gang", 4), *gang)
    answered = [webhook.ask(pod, NAMES) for pod in gang]
    assert sorted(name for names in answered for name in names) == NAMES
    assert webhook.telemetry.planned == {"placed": 1}


def test_a_gang_that_does_not_fit_gets_no_node_at_all() -> None:
    gang = members(5)
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang)
    reason = (
        "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining (m4: 0/4 nodes are available: 4 Insufficient cpu.)"
    )
    assert [webhook.reasons(pod, NAMES) for pod in gang] == [dict.fromkeys(NAMES, reason)] * 5
    assert webhook.telemetry.planned == {"refused": 1}


def nominated(pod: Object, node_name: str) -> Object:
    return {**pod, "status": {"nominatedNodeName": node_name}}


def test_the_nominations_of_a_refused_gang_keep_no_room() -> None:
    gang = [nominated(pod, f"n{i % 4}") for i, pod in enumerate(members(5))]
    other = make_pod("other").uid("other").req(cpu="4").obj()
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang, other)
    assert webhook.ask(other, NAMES) == []
    assert webhook.ask(gang[0], NAMES) == []
    assert webhook.ask(other, NAMES) == NAMES


def test_a_nomination_after_the_refusal_keeps_room_again() -> None:
    gang = [nominated(pod, "n0") for pod in members(5)]
    other = make_pod("other").uid("other").req(cpu="4").obj()
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang, other)
    assert webhook.ask(gang[0], NAMES) == []
    tell(webhook.cache, [nominated(gang[1], "n1")])
    assert webhook.ask(other, NAMES) == ["n0", "n2", "n3"]


def test_a_refused_gang_stays_nominated_to_a_node_that_victims_are_leaving() -> None:
    gang = [nominated(pod, f"n{i}") for i, pod in enumerate(members(2, priority=10))]
    victim = make_pod("victim").uid("victim").node("n0").deleted().obj()
    other = make_pod("other").uid("other").req(cpu="4").obj()
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang, victim, other)
    assert webhook.ask(gang[0], NAMES) == []
    assert webhook.ask(other, NAMES) == ["n1", "n2", "n3"]


def test_a_gang_refused_in_one_rack_stays_nominated_in_another() -> None:
    racks = [node(f"n{i}", rack=f"r{i // 2}") for i in range(4)]
    gang = [nominated(pod, name) for pod, name in zip(members(3), ["n0", "n2", "n3"], strict=True)]
    other, constraint = make_pod("other").uid("other").req(cpu="4").obj(), {"topology": [{"key": "rack"}]}
    webhook = Webhook(*racks, make_pod_group("gang", 3, schedulingConstraints=constraint), *gang, other)
    assert webhook.ask(gang[0], ["n0", "n1"]) == []
    assert webhook.ask(other, NAMES) == ["n0", "n1"]


def test_a_second_pass_plans_again() -> None:
    gang = members(5)
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang)
    assert webhook.ask(gang[0], NAMES) == []
    tell(webhook.cache, [node("n4")])
    assert len(webhook.ask(gang[0], [*NAMES, "n4"])) == 1
    assert webhook.telemetry.dropped == {"asked_again": 1}


def test_each_plan_has_a_number_of_its_own() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 3), *gang)
    for pod in (gang[0], gang[1], gang[0], gang[0]):
        webhook.ask(pod, NAMES)
    assert webhook.observed.answered_from_plan == [1, 1, 2, 3]


def test_members_that_have_a_node_count() -> None:
    gang = members(4)
    bound = member("bound").node("n0").obj()
    webhook = Webhook(*NODES, make_pod_group("gang", 4), bound, *gang[:3])
    answered = [webhook.ask(pod, NAMES) for pod in gang[:3]]
    assert sorted(name for names in answered for name in names) == NAMES[1:]


def test_soft_spread_sees_the_siblings() -> None:
    """Judged one by one, all members would be answered the same."""
    nodes = [node(name, "64", host=name) for name in NAMES[:2]]
    spread = [
        member(f"m{i}", "1").label(app="g").spread("host", soft=True, labels={"app": "g"}).obj() for i in range(8)
    ]
    webhook = Webhook(*nodes, make_pod_group("gang", 8), *spread, best=True)
    answered = Counter(name for pod in spread for name in webhook.ask(pod, NAMES[:2]))
    assert answered == {"n0": 4, "n1": 4}


def test_the_rest_is_planned_again_around_a_node_that_the_scheduler_does_not_offer() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 3), *gang)
    (first,) = webhook.ask(gang[0], NAMES)
    others = [name for name in NAMES if name != first]
    (planned,) = webhook.ask(gang[1], others)
    offered = [name for name in others if name != planned][:1]
    assert webhook.ask(gang[2], offered) == offered


def test_only_the_member_whose_node_is_not_offered_gets_another_node() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 3), *gang)
    webhook.ask(gang[0], NAMES)
    third = webhook.planned("m2")
    (free,) = set(NAMES) - {webhook.planned(f"m{i}") for i in range(3)}
    assert webhook.ask(gang[1], [free]) == [free]
    assert webhook.ask(gang[2], NAMES) == [third]
    assert webhook.observed.answered_from_plan == [1, 2, 2]


def test_a_member_follows_another_to_which_it_has_affinity() -> None:
    """It is checked again, because the other member has got a node in another rack than the planned one."""
    nodes = [node(f"{rack}{i}", rack=rack) for rack in ("a", "b") for i in range(2)]
    names = ["a0", "a1", "b0", "b1"]
    follower = member("m2", "1").affinity("rack", labels={"app": "leader"}).obj()
    gang = [member("m0", "1").obj(), member("m1", "4").label(app="leader").obj(), follower]
    webhook = Webhook(*nodes, make_pod_group("gang", 3), *gang)
    webhook.ask(gang[0], names)
    planned = webhook.planned("m1")
    offered = [name for name in names if name[0] != planned[0]]
    (moved,) = webhook.ask(gang[1], offered)
    (followed,) = webhook.ask(gang[2], names)
    assert followed[0] == moved[0] != planned[0]


def test_no_member_is_moved_to_a_full_node_that_the_plan_does_not_empty() -> None:
    """n0 is planned for m2, and only a pod of lower priority takes the other half of it."""
    nodes = [node("n0", "8", pool="b"), *(node(name, pool="a") for name in ("n1", "n2"))]
    lesser = make_pod("lesser").uid("lesser").req(cpu="4", memory="60Gi").node("n0").obj()
    pinned = member("m2", priority=10).node_selector(pool="b").obj()
    gang = [member("m0", priority=10).node_selector(pool="a").obj(), member("m1", priority=10).obj(), pinned]
    webhook = Webhook(*nodes, lesser, make_pod_group("gang", 3, priority=10), *gang)
    webhook.ask(gang[0], ["n1", "n2"])
    assert webhook.planned("m1") in ("n1", "n2")
    tell(webhook.cache, [node("n3", pool="b")])
    assert webhook.ask(gang[1], ["n0"]) == ["n0"]
    assert webhook.ask(gang[2], ["n0", "n3"]) == ["n3"]


def test_a_gang_may_use_nodes_that_are_not_offered_for_its_first_member() -> None:
    """kube-scheduler offers each member other nodes: a sample, or those on which the placed siblings let it run."""
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 3), *gang)
    offered = [["n0"], NAMES, NAMES]
    answered = [webhook.ask(pod, names) for pod, names in zip(gang, offered, strict=True)]
    assert len({name for names in answered for name in names}) == 3


@pytest.mark.parametrize("asked", [*permutations(range(4))], ids=str)
def test_members_beyond_the_minimum_leave_the_planned_nodes_to_the_others(asked: Sequence[int]) -> None:
    gang = members(4)
    webhook = Webhook(*NODES[:3], make_pod_group("gang", 3), *gang)
    free = NAMES[:3]
    for index in asked:
        free = [name for name in free if name not in webhook.ask(gang[index], free)[:1]]
    assert free == []


def test_a_second_plan_for_the_rest_counts_all_members_that_have_an_answer() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 3), *gang)
    (first,) = webhook.ask(gang[0], NAMES[:3])
    (free,) = set(NAMES) - {webhook.planned(f"m{i}") for i in range(3)}
    (second,) = webhook.ask(gang[1], [free])
    assert webhook.ask(gang[2], [first, second]) == []
    assert webhook.telemetry.dropped == {"node": 2}


def test_the_rest_can_be_planned_again_twice() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, node("n4"), make_pod_group("gang", 3), *gang)
    (first,) = webhook.ask(gang[0], NAMES[:3])
    free, other = {*NAMES, "n4"} - {webhook.planned(f"m{i}") for i in range(3)}
    (second,) = webhook.ask(gang[1], [free])
    assert webhook.ask(gang[2], [first, second, other]) == [other]
    assert webhook.telemetry.dropped == {"node": 2}


def test_a_second_plan_for_the_rest_counts_the_devices_of_members_that_have_an_answer() -> None:
    devices = [make_resource_slice(name, "gpu.example.com", "gpu-0") for name in NAMES[:2]]
    device_class = make_device_class("gpu", 'device.driver == "gpu.example.com"')
    claims = [make_resource_claim(f"c{i}", "gpu") for i in range(2)]
    gang = [member(f"m{i}", "1").resource_claim(f"c{i}").obj() for i in range(2)]
    webhook = Webhook(*NODES, *devices, device_class, *claims, make_pod_group("gang", 2), *gang)
    (first,) = webhook.ask(gang[0], NAMES)
    assert webhook.ask(gang[1], [first, "n2"]) == []


def test_a_gang_is_refused_when_the_rest_cannot_be_planned_around() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang)
    (first,) = webhook.ask(gang[0], NAMES)
    assert webhook.ask(gang[1], [first]) == []


def webhook_after_first_answer(*objects: Object) -> tuple[Webhook, Object, str, list[str]]:
    """Returns a webhook with a plan for two members, the second member, its planned node, and the two free nodes."""
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang, *objects)
    (first,) = webhook.ask(gang[0], NAMES)
    planned = webhook.planned("m1")
    return webhook, gang[1], planned, [name for name in NAMES if name not in (first, planned)]


def test_a_node_that_fills_up_in_the_meantime_is_not_answered() -> None:
    webhook, second, planned, (free, _) = webhook_after_first_answer()
    tell(webhook.cache, [make_pod("other").uid("other").req(cpu="4").node(planned).obj()])
    assert webhook.ask(second, [planned, free]) == [free]
    assert webhook.telemetry.dropped == {"node": 1}


def test_a_member_gets_the_only_node_of_its_request_though_another_was_planned() -> None:
    webhook, second, _, (free, _) = webhook_after_first_answer()
    assert webhook.ask(second, [free]) == [free]


def test_the_rest_is_planned_again_though_its_nominated_node_is_the_first_that_is_offered() -> None:
    webhook, second, _, free = webhook_after_first_answer()
    assert webhook.ask(nominated(second, free[0]), free) in ([free[0]], [free[1]])


def test_a_call_about_no_nodes_gets_none() -> None:
    gang = members(2)
    assert Webhook(*NODES, make_pod_group("gang", 2), *gang).ask(gang[0], []) == []


@pytest.mark.parametrize("has_pods", [False, True], ids=["empty", "with a pod left"])
def test_a_node_that_is_deleted_in_the_meantime_is_not_answered(*, has_pods: bool) -> None:
    left = [make_pod(f"left-{name}").uid(f"left-{name}").node(name).obj() for name in NAMES if has_pods]
    webhook, second, planned, (free, _) = webhook_after_first_answer(*left)
    webhook.cache.deleted("Node", msgspec.convert(node(planned), Node))
    assert webhook.ask(second, [planned, free]) == [free]
    assert webhook.telemetry.dropped == {"node": 1}


def test_a_node_that_a_new_table_does_not_have_is_not_answered() -> None:
    webhook, second, planned, (free, _) = webhook_after_first_answer()
    webhook.cache.deleted("Node", msgspec.convert(node(planned), Node))
    with webhook.cache.snapshot("test"):  # so that the call gets a table that was built after the deletion
        assert webhook.ask(second, [planned, free]) == [free]
    assert webhook.telemetry.dropped == {"node": 1}


def test_a_node_that_changes_and_still_fits_is_answered() -> None:
    webhook, second, planned, (free, _) = webhook_after_first_answer()
    tell(webhook.cache, [make_pod("small").uid("small").node(planned).obj()])
    assert webhook.ask(second, [planned, free]) == [planned]
    assert webhook.telemetry.dropped == {}
    stranger = make_pod("stranger").req(cpu="4").obj()  # the check must not leave the first member on its node
    assert webhook.ask(stranger, NAMES) == NAMES


def test_the_check_of_a_changed_node_has_the_time_limit_of_its_call() -> None:
    slow = SlowRule(ManualClock(), 0.0)
    default = default_profile("default-scheduler")
    profiles = Profiles([replace(default, predicates=[slow, *default.predicates])])
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang, profiles=profiles)
    webhook.ask(gang[0], NAMES)
    tell(webhook.cache, [make_pod("small").uid("small").node(webhook.planned("m1")).obj()])
    slow.clock, slow.seconds = webhook.clock, 6.0
    with pytest.raises(DeadlineExceeded):
        webhook.ask(gang[1], NAMES)


def test_a_change_of_a_node_named_like_a_members_uid_does_not_end_the_plan() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, node("m1"), make_pod_group("gang", 2), *gang)
    webhook.ask(gang[0], NAMES)
    tell(webhook.cache, [node("m1", "8")])
    webhook.ask(gang[1], [*NAMES, "m1"])
    assert webhook.telemetry.dropped == {}


def test_a_deleted_member_ends_the_plan() -> None:
    gang = members(3)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang)
    webhook.ask(gang[0], NAMES)
    webhook.cache.deleted("Pod", webhook.pod("m2"))
    webhook.ask(gang[1], NAMES)
    assert webhook.telemetry.dropped == {"changed": 1}


def test_a_changed_group_ends_the_plan() -> None:
    gang = members(5)
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang)
    assert webhook.ask(gang[0], NAMES) == []
    tell(webhook.cache, [make_pod_group("gang", 4)])
    assert len(webhook.ask(gang[1], NAMES)) == 1


def test_an_old_plan_is_dropped() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang)
    webhook.ask(gang[0], NAMES)
    webhook.clock.advance(31)
    webhook.ask(gang[1], NAMES)
    assert webhook.telemetry.dropped == {"age": 1}


def test_a_refusal_is_only_used_for_a_moment() -> None:
    """A member that is tried much later may fit, although no member was asked about twice."""
    gang = members(5)
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang)
    assert webhook.ask(gang[0], NAMES) == []
    tell(webhook.cache, [node("n4")])
    webhook.clock.advance(0.9)
    assert webhook.ask(gang[1], NAMES) == []
    webhook.clock.advance(1.1)
    assert len(webhook.ask(gang[2], NAMES)) == 1
    assert webhook.telemetry.dropped == {"age": 1}


def test_a_member_that_is_being_bound_while_its_group_is_planned_is_not_planned_again() -> None:
    gang = members(4)
    webhook = Webhook(*NODES, make_pod_group("gang", 4), *gang)
    webhook.ask(gang[0], NAMES)
    assume_during_plan(webhook, "m1", "n3")
    (again,) = webhook.ask(gang[0], NAMES)
    plan = webhook.observed.plans[-1]
    assert plan.node_of("m1") is None
    assert again != "n3"


def test_a_member_that_is_being_bound_while_it_is_asked_about_has_its_node() -> None:
    (only,) = members(1)
    webhook = Webhook(*NODES, make_pod_group("gang", 1), only)
    assume_during_plan(webhook, "m0", "n3")
    assert webhook.ask(only, NAMES) == ["n3"]


def assume_during_plan(webhook: Webhook, name: str, node_name: str) -> None:
    """Lets a bind assume the member after the next plan has read the group's members."""
    read = webhook.cache.groups.tree

    def tree(root: GroupName) -> Tree | None:
        found = read(root)
        webhook.cache.groups.tree = read  # type: ignore[method-assign]  # the race happens once
        assert webhook.cache.assume(PodInfo(webhook.pod(name)), node_name) is None
        return found

    webhook.cache.groups.tree = tree  # type: ignore[method-assign,assignment]  # there is no other place for the race


def test_a_new_policy_ends_the_plan() -> None:
    gang = members(2)
    profiles = Profiles([default_profile()])
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang, profiles=profiles)
    webhook.ask(gang[0], NAMES)
    profiles.replace([replace(default_profile())])
    webhook.ask(gang[1], NAMES)
    assert webhook.telemetry.dropped == {"changed": 1}


def test_a_bind_to_another_node_ends_the_plan() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang)
    (first,), (second,) = (webhook.ask(pod, NAMES) for pod in gang)
    quorum = GroupQuorum(webhook.cache, Telemetry(), 0.0, 1, webhook.plans)
    bind = Bind(webhook.cache, PROFILES, FakeBinder(), Telemetry(), quorum=quorum)
    answer(bind, binding(gang[0], first))
    assert len(webhook.plans) == 1
    answer(bind, binding(gang[1], next(name for name in NAMES if name not in (first, second))))
    assert len(webhook.plans) == 0
    assert webhook.telemetry.dropped == {"bound_elsewhere": 1}


def test_a_member_assumed_on_its_planned_node_does_not_end_the_plan() -> None:
    gang = members(4)
    webhook = Webhook(*NODES, make_pod_group("gang", 4), *gang)
    answered = [webhook.ask(pod, NAMES) for pod in gang[:2]]
    (planned,) = answered[0]
    assert webhook.cache.assume(PodInfo(webhook.pod("m0")), planned) is None
    answered += [webhook.ask(pod, NAMES) for pod in reversed(gang[2:])]
    assert sorted(name for names in answered for name in names) == NAMES
    assert webhook.telemetry.dropped == {}


def test_the_rest_is_planned_again_without_a_member_that_is_bound_to_its_planned_node() -> None:
    nodes = [node(name, pool="b" if name == "n3" else "a") for name in NAMES]
    pinned = member("m2").node_selector(pool="b")
    gang = [member(f"m{i}").node_selector(pool="a").obj() for i in range(2)]
    webhook = Webhook(*nodes, make_pod_group("gang", 3), *gang, pinned.obj())
    (first,) = webhook.ask(gang[0], NAMES[:3])
    (free,) = set(NAMES[:3]) - {first, webhook.planned("m1")}
    tell(webhook.cache, [pinned.node("n3").obj()])
    assert webhook.ask(gang[1], [first, free]) == [free]
    assert webhook.telemetry.dropped == {"node": 1}


def test_the_nominated_node_alone_may_be_refused_within_a_pass() -> None:
    """kube-scheduler asks about the nominated node first, and then about all."""
    full = make_pod("full").uid("full").req(cpu="4").node("n0").obj()
    gang = [member("m0").nominated("n0").obj(), member("m1").obj()]
    webhook = Webhook(*NODES[:3], full, make_pod_group("gang", 2), *gang)
    assert webhook.ask(gang[0], ["n0"]) == []
    answered = [webhook.ask(pod, NAMES[:3]) for pod in gang]
    assert sorted(name for names in answered for name in names) == ["n1", "n2"]
    assert webhook.telemetry.dropped == {}


@pytest.mark.parametrize("with_volumes", [(0, 1), (0,), (1,)], ids=["both", "the first", "the second"])
def test_members_with_volumes_of_their_own_get_the_nodes_of_these_volumes(with_volumes: Sequence[int]) -> None:
    """kube-scheduler offers each member only the node of its volume, so these names say nothing about the others."""
    volumes = [make_pv(f"v{i}", node_terms=[node_term(expression(HOSTNAME, "In", f"n{i}"))]) for i in range(2)]
    claims = [make_pvc(f"c{i}", volume=f"v{i}") for i in range(2)]
    gang = [(member(f"m{i}").pvc(f"c{i}") if i in with_volumes else member(f"m{i}")).obj() for i in range(2)]
    webhook = Webhook(*NODES[:2], make_pod_group("gang", 2), *volumes, *claims, *gang)
    assert [webhook.ask(pod, [f"n{i}"]) for i, pod in enumerate(gang)] == [["n0"], ["n1"]]


GPU_CLASS = make_device_class("gpu", 'device.driver == "gpu.example.com"')


def members_with_claims(count: int) -> tuple[list[Object], list[Object]]:
    """Members that each need a GPU, and the claims that were generated for them, not allocated."""
    gang, claims = [], []
    for i in range(count):
        pod = member(f"m{i}").resource_claim("own", template=True).obj()
        statuses = [{"name": "own", "resourceClaimName": f"c{i}"}]
        gang.append({**pod, "status": {"resourceClaimStatuses": statuses}})
        claim = make_resource_claim(f"c{i}", "gpu")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"m{i}", "uid": f"m{i}", "controller": True}
        claim["metadata"]["ownerReferences"] = [owner]
        claims.append(claim)
    return gang, claims


def test_members_with_allocated_devices_get_the_nodes_of_these_devices() -> None:
    """After a bind that failed, each claim keeps its device, and kube-scheduler offers only the device's node."""
    gang, claims = members_with_claims(2)
    objects = [GPU_CLASS]
    for i, claim in enumerate(claims):
        selector = {"nodeSelectorTerms": [node_term(expression(HOSTNAME, "In", f"n{i}"))]}
        objects.append(with_allocation(claim, make_result(f"n{i}", "gpu-0"), nodeSelector=selector))
        objects.append(make_resource_slice(f"n{i}", "gpu.example.com", "gpu-0"))
    webhook = Webhook(*NODES[:2], make_pod_group("gang", 2), *objects, *gang)
    assert [webhook.ask(pod, [f"n{i}"]) for i, pod in enumerate(gang)] == [["n0"], ["n1"]]


@pytest.mark.parametrize(("cpu", "answered"), [("2", [["n1"], ["n1"]]), ("4", [[], []])], ids=["room", "no room"])
def test_members_that_share_a_claim_get_the_node_of_its_device(cpu: str, answered: list[list[str]]) -> None:
    features = FeatureGates(generic_workload=True, dra_workload_resource_claims=True)
    devices = make_resource_slice("n1", "gpu.example.com", "gpu-0"), make_device_class("gpu")
    group = make_pod_group("gang", 2, resourceClaims=[{"name": "shared", "resourceClaimName": "shared"}])
    gang = [member(f"m{i}", cpu).resource_claim("shared").obj() for i in range(2)]
    webhook = Webhook(*NODES, *devices, make_resource_claim("shared", "gpu"), group, *gang, features=features)
    assert [webhook.ask(pod, NAMES) for pod in gang] == answered


@pytest.mark.parametrize("name", NAMES)
def test_a_member_with_a_volume_is_planned_on_a_node_of_its_request(name: str) -> None:
    gang = [member(f"m{i}").pvc(f"c{i}").obj() for i in range(2)]
    storage = [obj for i in range(2) for obj in (make_pv(f"v{i}"), make_pvc(f"c{i}", volume=f"v{i}"))]
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *storage, *gang)
    assert webhook.ask(gang[0], [name]) == [name]


def test_a_domain_of_a_topology_placement_is_recognised() -> None:
    """The other member has other requests, so the names say nothing about it but the domain."""
    nodes = [node(f"{rack}{i}", rack=rack) for rack in ("a", "b") for i in range(2)]
    constraint = {"topology": [{"key": "rack"}]}
    gang = [member("m0").obj(), member("m1", "3").obj()]
    webhook = Webhook(*nodes, make_pod_group("gang", 2, schedulingConstraints=constraint), *gang)
    for rack in ("a", "b"):
        names = [f"{rack}0", f"{rack}1"]
        answered = [webhook.ask(pod, names) for pod in gang]
        assert sorted(name for names in answered for name in names) == names


def test_a_refusal_in_one_rack_does_not_answer_for_another() -> None:
    """kube-scheduler does not ask about m0 in rack a, because it can only run in rack b."""
    nodes = [node(f"{rack}{i}", rack=rack) for rack, size in (("a", 1), ("b", 3)) for i in range(size)]
    constraint = {"topology": [{"key": "rack"}]}
    gang = [member("m0").node_selector(rack="b").obj(), member("m1").obj(), member("m2").obj()]
    webhook = Webhook(*nodes, make_pod_group("gang", 3, schedulingConstraints=constraint), *gang)
    assert webhook.ask(gang[1], ["a0"]) == []
    names = ["b0", "b1", "b2"]
    assert sorted(name for pod in gang for name in webhook.ask(pod, names)) == names


def test_a_topology_constraint_holds_if_the_scheduler_offers_all_nodes() -> None:
    nodes = [node("a0", rack="a"), node("b0", rack="b"), node("b1", rack="b"), node("c0", rack="c")]
    constraint = {"topology": [{"key": "rack"}]}
    gang = members(2)
    webhook = Webhook(*nodes, make_pod_group("gang", 2, schedulingConstraints=constraint), *gang)
    answered = [webhook.ask(pod, ["a0", "b0", "b1", "c0"]) for pod in gang]
    assert sorted(name for names in answered for name in names) == ["b0", "b1"]


@pytest.mark.parametrize(("resources", "rack"), [(CPU_AND_MEMORY, "a"), ((("memory", 1),), "b")])
def test_the_rack_is_chosen_by_the_resources_that_the_profile_counts(resources: ResourceWeights, rack: str) -> None:
    """Much cpu is in use in rack a, and some memory in rack b."""
    nodes = [node("a0", rack="a"), node("b0", rack="b")]
    used = [make_pod("a").req(cpu="2").node("a0").obj(), make_pod("b").req(memory="16Gi").node("b0").obj()]
    gang = members(2, "1")
    group = make_pod_group("gang", 2, schedulingConstraints={"topology": [{"key": "rack"}]})
    profile = default_profile("default-scheduler")
    scored = replace(profile, priorities=[WeightedPriority(NodeResourcesFitScore(resources=resources))])
    webhook = Webhook(*nodes, *used, group, *gang, profiles=Profiles([scored]))
    assert [webhook.ask(pod, ["a0", "b0"]) for pod in gang] == [[f"{rack}0"], [f"{rack}0"]]


def test_a_gang_is_kept_together_by_a_profile_without_gang_scheduling() -> None:
    gang = members(5)
    profiles = Profiles([replace(default_profile("default-scheduler"), enforces_gangs=False)])
    webhook = Webhook(*NODES, make_pod_group("gang", 5), *gang, profiles=profiles)
    assert [webhook.ask(pod, NAMES) for pod in gang] == [[]] * 5


def test_members_are_answered_where_pods_of_lower_priority_leave() -> None:
    """In the dry run of the group's preemption, kube-scheduler has removed the pods of lower priority."""
    lesser = [make_pod(f"v{i}").uid(f"v{i}").req(cpu="2").node(name).obj() for i, name in enumerate(NAMES[:2])]
    gang = members(4, "2", priority=10)
    group = make_pod_group("gang", 4, priority=10)
    webhook = Webhook(*NODES[:2], *lesser, group, *gang)
    answered = Counter(name for pod in gang for name in webhook.ask(pod, NAMES[:2]))
    assert answered == {"n0": 2, "n1": 2}


@predicate(sees_pods=True)
def only_empty_nodes(pod: PodInfo, table: Table, rows: Rows) -> object:
    return {"node(s) had a pod": np.array([len(table.pods.on(row)) == 0 for row in rows.tolist()])}


def test_the_rest_of_a_dry_runs_plan_is_planned_again_without_pods_of_lower_priority() -> None:
    """The users' rule refuses n2 only for a pod that the dry run has removed."""
    rule = only_empty_nodes.rule("only-empty-nodes", {}, OfflineHost())
    default = default_profile("default-scheduler")
    profiles = Profiles([replace(default, predicates=[*default.predicates, rule])])
    lesser = [make_pod(f"v{i}").uid(f"v{i}").req(cpu="2").node(name).obj() for i, name in enumerate(NAMES[:2])]
    lesser.append(make_pod("small").uid("small").node("n2").obj())
    gang = members(2, priority=10)
    webhook = Webhook(*NODES[:3], *lesser, make_pod_group("gang", 2, priority=10), *gang, profiles=profiles)
    (first,) = webhook.ask(gang[0], NAMES[:2])
    assert webhook.ask(gang[1], [first, "n2"]) == ["n2"]


def test_only_the_moved_member_of_a_dry_runs_plan_gets_another_node() -> None:
    """It needs no eviction there, but the plan as a whole still does."""
    lesser = make_pod("lesser").uid("lesser").req(cpu="4").node("n0").obj()
    gang = members(3, priority=10)
    webhook = Webhook(*NODES[:3], lesser, make_pod_group("gang", 3, priority=10), *gang)
    assert webhook.ask(gang[0], ["n0"]) == ["n0"]
    third = webhook.planned("m2")
    tell(webhook.cache, [NODES[3]])
    assert webhook.ask(gang[1], ["n3"]) == ["n3"]
    assert webhook.ask(gang[2], NAMES) == [third]
    assert webhook.observed.answered_from_plan == [1, 2, 2]


def test_no_dry_run_is_expected_if_the_schedulers_filters_are_off() -> None:
    lesser = [make_pod(f"v{i}").uid(f"v{i}").req(cpu="2").node(name).obj() for i, name in enumerate(NAMES[:2])]
    gang = members(4, "2", priority=10)
    group = make_pod_group("gang", 4, priority=10)
    webhook = Webhook(*NODES[:2], *lesser, group, *gang, scheduler_filters=False)
    assert [webhook.ask(pod, NAMES[:2]) for pod in gang] == [[]] * 4


def test_a_basic_group_gets_as_many_nodes_as_fit() -> None:
    gang = members(3)
    webhook = Webhook(*NODES[:2], make_pod_group("gang"), *gang)
    answered = [webhook.ask(pod, NAMES[:2]) for pod in gang[:2]]
    assert sorted(name for names in answered for name in names) == NAMES[:2]
    assert webhook.reasons(gang[2], NAMES[:2]) == dict.fromkeys(NAMES[:2], "Insufficient cpu")


def test_a_call_waits_a_moment_for_members_that_the_watch_has_not_shown() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), gang[0])
    began_at = webhook.clock.monotonic()
    reason = "pod group is unschedulable, minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
    assert webhook.reasons(gang[0], NAMES) == dict.fromkeys(NAMES, reason)
    assert webhook.clock.monotonic() == pytest.approx(began_at + 1.0)


def test_a_call_does_not_wait_once_the_watch_has_shown_enough_members() -> None:
    gang = members(2)
    webhook = Webhook(*NODES, make_pod_group("gang", 2), *gang)
    began_at = webhook.clock.monotonic()
    assert webhook.ask(gang[0], NAMES)
    assert webhook.clock.monotonic() == began_at


def test_plans_take_bounded_memory() -> None:
    groups = [make_pod_group(f"g{i}", 1) for i in range(20)]
    pods = [make_pod(f"p{i}").uid(f"p{i}").group(f"g{i}").obj() for i in range(20)]
    webhook = Webhook(*NODES, *groups, *pods)
    for pod in pods:
        webhook.ask(pod, NAMES)
    assert len(webhook.plans) == 8


def test_a_parent_is_ignored_without_its_feature_gate() -> None:
    gang = members(5)
    group = make_pod_group("gang", 5, parentCompositePodGroupName="parent")
    webhook = Webhook(*NODES, group, *gang)
    assert [webhook.ask(pod, NAMES) for pod in gang] == [[]] * 5


def test_coschedulings_label_and_its_pod_groups() -> None:
    group = {**make_pod_group("gang"), "spec": {"minMember": 5}}
    gang = [make_pod(f"m{i}").uid(f"m{i}").req(cpu="4").label({COSCHEDULING_LABEL: "gang"}).obj() for i in range(5)]
    webhook = Webhook(*NODES, group, *gang, coscheduling=True, scheduler_filters=False)
    assert [webhook.ask(pod, NAMES) for pod in gang] == [[]] * 5
    tell(webhook.cache, [node("n4")])
    answered = [webhook.ask(pod, [*NAMES, "n4"]) for pod in gang]
    assert sorted(name for names in answered for name in names) == [*NAMES, "n4"]


def test_the_label_alone_makes_no_member() -> None:
    pod = make_pod("m").uid("m").req(cpu="4").label({COSCHEDULING_LABEL: "gang"}).obj()
    assert Webhook(*NODES, make_pod_group("gang", 5), pod).ask(pod, NAMES) == NAMES
