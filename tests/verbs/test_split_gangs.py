"""While a gang is split, no other pod gets the places that its waiting members need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from extender.engine.group_members import MemberJudge
from extender.errors import ExtenderError, OutcomeUnknown, Refused
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.group_plans import GroupPlans
from extender.verbs.group_quorum import GroupQuorum
from extender.verbs.split_gangs import SplitGangs
from extender.verbs.verb import Confirmation
from tests.builders import (
    HOSTNAME,
    Object,
    expression,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_resource_claim,
    make_result,
    node_term,
    with_allocation,
)
from tests.verbs.cluster import PROFILES, TREES, FakeBinder, SlowRule, answer, args, binding, cache_of, tell

NAMES = ["n0", "n1", "n2", "n3", "n4"]
"""Five nodes with a place for one pod each."""
NODES = [make_node(name).allocatable(cpu="4", memory="64Gi", pods="110").obj() for name in NAMES]
GANG = make_pod_group("gang", 4)
_FEATURES = replace(TREES, dra_workload_resource_claims=True)
OTHER = make_pod("other").uid("other").req(cpu="4").obj()


def member(index: int, node_name: str = "", *, nominated: str = "") -> Object:
    pod = make_pod(f"m{index}").uid(f"m{index}").req(cpu="4").group("gang")
    if nominated:
        pod = pod.nominated(nominated)
    return (pod.node(node_name) if node_name else pod).obj()


def members(bound: Sequence[str], count: int = 4) -> list[Object]:
    """The members of the gang; the first ones are bound to these nodes."""
    return [member(index, bound[index] if index < len(bound) else "") for index in range(count)]


class Webhook:
    """filter and bind over a cache that tests change."""

    def __init__(
        self,
        *objects: Object,
        errors: Sequence[ExtenderError] = (),
        clock: ManualClock | None = None,
        gang_profile: Any = None,
    ) -> None:
        """`gang_profile`: decides about the members of split gangs; default: the same profile as for all pods."""
        self.clock = clock or ManualClock()
        self.cache = cache_of(*objects, clock=self.clock, features=_FEATURES)
        judge = MemberJudge(Random(0))
        self.ended: list[tuple[str, str]] = []
        self.split = SplitGangs(
            self.cache,
            lambda pod: gang_profile or PROFILES.of(pod),
            judge,
            self.clock,
            TimeLimit(self.clock, 5.0),
            lambda info: self.ended.append((info.uid, info.pod.status.nominated_node_name)),
            lambda uid: self.quorum.is_undecided(uid),
        )
        plans = GroupPlans(
            self.cache, judge, Telemetry(), self.clock, pause=self.clock.advance, split=self.split
        )  # fmt: skip
        self.filter = Filter(self.cache, PROFILES, Telemetry(), plans=plans)
        self.quorum = GroupQuorum(self.cache, Telemetry(), 0.0, 0, split=self.split)
        confirmation = Confirmation(self.cache, lambda _: None)
        self.binder = FakeBinder(*errors)
        self.verb = Bind(self.cache, PROFILES, self.binder, Telemetry(), confirmation=confirmation, quorum=self.quorum)

    def ask(self, pod: Object) -> list[str]:
        names: list[str] = answer(self.filter, args(pod, names=NAMES))["NodeNames"]
        return names

    def bind(self, pod: Object, node_name: str) -> str:
        error: str = answer(self.verb, binding(pod, node_name))["Error"]
        return error

    def delete(self, pod: Object) -> None:
        self.cache.deleted("Pod", msgspec.convert(pod, Pod))


def split_at_start(bound: Sequence[str], *more: Object) -> Webhook:
    """A process that starts while these members are bound; `other` waits, too."""
    return Webhook(*NODES, GANG, *members(bound), OTHER, *more)


def test_a_gang_that_an_earlier_process_has_split_keeps_room_for_its_rest() -> None:
    webhook = split_at_start(["n0", "n1"])
    assert len(webhook.ask(OTHER)) == 1


def test_a_gang_that_another_leader_splits_keeps_room_for_its_rest() -> None:
    webhook = split_at_start([])
    assert webhook.ask(OTHER) == NAMES
    tell(webhook.cache, members(["n0", "n1"]))
    webhook.split.search_again()
    assert len(webhook.ask(OTHER)) == 1


def test_the_rest_of_a_split_gang_gets_its_places() -> None:
    webhook = split_at_start(["n0", "n1"])
    places = [webhook.ask(member(2))[0], webhook.ask(member(3))[0]]
    assert len({"n0", "n1", *places}) == 4
    assert [webhook.bind(member(2), places[0]), webhook.bind(member(3), places[1])] == ["", ""]
    assert len(webhook.ask(OTHER)) == 1


@pytest.mark.parametrize("bound", [[], ["n0", "n1", "n2", "n3"]], ids=["none", "all"])
def test_a_gang_that_is_not_split_keeps_no_room(bound: list[str]) -> None:
    webhook = split_at_start(bound, member(4))
    assert len(webhook.ask(OTHER)) == len(NAMES) - len(bound)


def test_room_is_kept_where_the_claim_of_the_gang_is_allocated() -> None:
    """The device that the members share can be reached from all nodes except n4."""
    reachable = {"nodeSelectorTerms": [node_term(expression(HOSTNAME, "In", *NAMES[:4]))]}
    claim = with_allocation(make_resource_claim("shared", "gpu"), make_result("net", "gpu-0"), nodeSelector=reachable)
    gang = make_pod_group("gang", 4, resourceClaims=[{"name": "shared", "resourceClaimName": "shared"}])
    sharing = [make_pod(f"m{i}").uid(f"m{i}").req(cpu="4").group("gang").resource_claim("shared") for i in range(4)]
    placed = [pod.node(node_name).obj() for pod, node_name in zip(sharing[:2], NAMES, strict=False)]
    webhook = Webhook(
        *NODES, make_device_class("gpu"), claim, gang, *placed, *(pod.obj() for pod in sharing[2:]), OTHER
    )
    assert webhook.ask(OTHER) == ["n4"]


def test_only_the_room_that_the_gang_needs_is_kept() -> None:
    webhook = split_at_start(["n0", "n1", "n2"], member(4))
    assert len(webhook.ask(OTHER)) == 1


def test_a_member_whose_bind_is_refused_keeps_its_room() -> None:
    webhook = split_at_start([])
    webhook.split.keep_room()  # from now on, only gangs with a failed bind are looked at
    for index in range(3):
        assert webhook.bind(member(index), f"n{index}") == ""
    webhook.binder.errors.append(Refused("the API server is down", 503))
    assert webhook.bind(member(3), "n3") == "the API server is down"
    assert len(webhook.ask(OTHER)) == 1


def test_a_member_whose_bind_is_refused_keeps_its_room_while_the_others_are_being_bound() -> None:
    webhook = split_at_start([])
    webhook.split.keep_room()  # from now on, only gangs with a failed bind are looked at
    offered: list[str] = []

    def while_the_first_has_no_answer() -> None:
        webhook.binder.errors.append(Refused("too many requests", 429))
        assert webhook.bind(member(1), "n1") == "too many requests"
        offered.extend(webhook.ask(OTHER))

    webhook.binder.during = while_the_first_has_no_answer
    assert webhook.bind(member(0), "n0") == ""
    assert len(offered) == 1


def test_a_gang_keeps_room_while_its_only_bind_has_no_answer() -> None:
    webhook = Webhook(*NODES, GANG, *members([]), OTHER, errors=[OutcomeUnknown("no answer")])
    assert webhook.bind(member(0), "n0") == "no answer"
    assert len(webhook.ask(OTHER)) == 1


def test_a_gang_keeps_room_from_its_first_binding_on() -> None:
    webhook = split_at_start([])
    webhook.quorum.most_seconds = 1.0
    infos = [PodInfo(msgspec.convert(member(index), Pod)) for index in range(2)]
    with webhook.quorum.uncounted(infos[0], "n0"), webhook.quorum.uncounted(infos[1], "n1"):
        for index, info in enumerate(infos):
            webhook.cache.assume(info, f"n{index}")
        assert webhook.ask(OTHER) == ["n2", "n3", "n4"]
    assert len(webhook.ask(OTHER)) == 1


def test_a_bind_leaves_the_room_of_a_gang_that_an_earlier_process_has_split() -> None:
    """The earlier process has answered the call of filter."""
    webhook = split_at_start(["n0", "n1", "n2"], make_pod("full").uid("full").req(cpu="4").node("n3").obj())
    assert webhook.bind(OTHER, "n4") == "n4 no longer fits: Insufficient cpu"


def test_a_gang_none_of_whose_members_could_be_bound_keeps_no_room() -> None:
    webhook = Webhook(*NODES, GANG, *members([]), OTHER, errors=[Refused("the API server is down", 503)] * 4)
    for index in range(4):
        assert webhook.bind(member(index), f"n{index}") == "the API server is down"
    assert webhook.ask(OTHER) == NAMES


def test_a_bind_without_an_answer_that_expires_keeps_its_room() -> None:
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1", "n2"]), OTHER, errors=[OutcomeUnknown("no answer")])
    webhook.bind(member(3), "n3")
    assert webhook.ask(OTHER) == ["n4"]
    webhook.clock.advance(60.0)
    assert webhook.cache.expire(["m3"], webhook.clock.monotonic()) == ["default/m3"]
    assert len(webhook.ask(OTHER)) == 1


def test_room_is_kept_though_the_scheduler_clears_the_nomination() -> None:
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1", "n2"])[:3], member(3, nominated="n3"), OTHER)
    assert webhook.ask(OTHER) == ["n4"]
    tell(webhook.cache, [member(3)])
    assert len(webhook.ask(OTHER)) == 1


def test_room_is_kept_as_soon_as_there_is_some() -> None:
    full = [make_pod(f"full{i}").uid(f"full{i}").req(cpu="4").node(f"n{i}").obj() for i in (3, 4)]
    webhook = split_at_start(["n0", "n1", "n2"], *full)
    webhook.delete(full[0])
    webhook.clock.advance(2.0)
    assert webhook.ask(OTHER) == []
    webhook.delete(full[1])
    assert len(webhook.ask(OTHER)) == 1


def test_a_split_gang_whose_rest_is_deleted_keeps_no_room() -> None:
    webhook = split_at_start(["n0", "n1"])
    for index in (2, 3):
        webhook.delete(member(index))
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]


def test_a_split_gang_whose_group_is_deleted_keeps_no_room() -> None:
    webhook = split_at_start(["n0", "n1"])
    assert len(webhook.ask(OTHER)) == 1
    webhook.cache.deleted("PodGroup", msgspec.convert(GANG, PodGroup))
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]


def test_a_split_gang_of_a_tree_keeps_no_room() -> None:
    group = make_pod_group("gang", 4, parentCompositePodGroupName="parent")
    webhook = Webhook(*NODES, group, *members(["n0", "n1"]), OTHER)
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]


def test_a_gang_that_is_whole_again_keeps_no_room_for_its_surplus() -> None:
    webhook = split_at_start(["n0", "n1", "n2"], member(4))
    (free,) = webhook.ask(OTHER)
    nominated = [pod for pod in ("m3", "m4") if webhook.cache.nominated_node(pod)]
    surplus = next(pod for pod in ("m3", "m4") if pod not in nominated)
    tell(webhook.cache, [member(int(surplus[1]), free)])
    assert len(webhook.ask(OTHER)) == 1


def test_ended_and_moved_nominations_are_reported() -> None:
    webhook = split_at_start(["n0", "n1", "n2"])
    (free,) = webhook.ask(OTHER)
    (kept,) = {"n3", "n4"} - {free}
    assert webhook.ended == []
    webhook.cache.deleted("Node", msgspec.convert(NODES[NAMES.index(kept)], Node))
    webhook.ask(OTHER)
    assert webhook.ended == [("m3", kept)]
    webhook.cache.deleted("PodGroup", msgspec.convert(GANG, PodGroup))
    webhook.ask(OTHER)
    assert webhook.ended == [("m3", kept), ("m3", free)]


def test_a_nomination_made_by_others_stays_when_the_gang_is_whole() -> None:
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1", "n2"])[:3], member(3, nominated="n3"), member(4), OTHER)
    assert webhook.ask(OTHER) == ["n4"]
    tell(webhook.cache, [member(4, "n4")])
    assert webhook.ask(OTHER) == []


def test_the_rest_keeps_its_room_while_filter_refuses_it() -> None:
    """One of two places is free. If another pod took it, the gang would need two again."""
    full = make_pod("full").uid("full").req(cpu="4").node("n4").obj()
    webhook = split_at_start(["n0", "n1"], full, make_pod("big").uid("big").req(cpu="4").node("n3").obj())
    tell(webhook.cache, [member(2, nominated="n2")])
    assert webhook.ask(member(2, nominated="n2")) == []
    assert webhook.ask(OTHER) == []


def test_room_is_kept_elsewhere_once_a_higher_priority_has_taken_it() -> None:
    webhook = split_at_start(["n0", "n1", "n2"])
    (free,) = webhook.ask(OTHER)
    (kept,) = {"n3", "n4"} - {free}
    tell(webhook.cache, [make_pod("high").uid("high").priority(100).req(cpu="4").node(kept).obj()])
    assert webhook.ask(OTHER) == []


def test_room_is_kept_elsewhere_once_its_node_is_deleted() -> None:
    webhook = split_at_start(["n0", "n1", "n2"])
    (free,) = webhook.ask(OTHER)
    (kept,) = {"n3", "n4"} - {free}
    webhook.cache.deleted("Node", msgspec.convert(NODES[NAMES.index(kept)], Node))
    assert webhook.ask(OTHER) == []


def test_a_nomination_to_a_full_node_keeps_no_room() -> None:
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1", "n2"])[:3], member(3, nominated="n0"), OTHER)
    assert len(webhook.ask(OTHER)) == 1


def test_a_member_that_no_longer_fits_at_bind_keeps_room_elsewhere() -> None:
    webhook = split_at_start([])
    webhook.split.keep_room()  # from now on, only gangs with a failed bind are looked at
    for index in range(3):
        assert webhook.bind(member(index), f"n{index}") == ""
    tell(webhook.cache, [make_pod("quick").uid("quick").req(cpu="4").node("n3").obj()])
    assert webhook.bind(member(3), "n3") == "n3 no longer fits: Insufficient cpu"
    assert webhook.ask(OTHER) == []


def test_a_rule_that_takes_too_long_for_a_split_gang_delays_other_pods_once() -> None:
    clock = ManualClock()
    slow = replace(PROFILES.all[0], predicates=[*PROFILES.all[0].predicates, SlowRule(clock, 6.0)])
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1"]), OTHER, clock=clock, gang_profile=slow)
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]
    began_at = clock.monotonic()
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]
    assert clock.monotonic() == began_at


def test_split_gangs_that_take_too_long_share_one_time_limit() -> None:
    clock = ManualClock()
    slow = replace(PROFILES.all[0], predicates=[*PROFILES.all[0].predicates, SlowRule(clock, 6.0)])
    gangs = [make_pod_group(f"gang{i}", 2) for i in range(3)]
    first = [make_pod(f"a{i}").uid(f"a{i}").req(cpu="1").group(f"gang{i}").node(f"n{i}").obj() for i in range(3)]
    second = [make_pod(f"b{i}").uid(f"b{i}").req(cpu="1").group(f"gang{i}").obj() for i in range(3)]
    webhook = Webhook(*NODES, *gangs, *first, *second, OTHER, clock=clock, gang_profile=slow)
    began_at = clock.monotonic()
    webhook.ask(OTHER)
    assert clock.monotonic() == began_at + 6.0


def test_room_that_is_kept_is_not_planned_again_while_nothing_changes() -> None:
    clock = ManualClock()
    slow = replace(PROFILES.all[0], predicates=[*PROFILES.all[0].predicates, SlowRule(clock, 0.1)])
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1"]), OTHER, clock=clock, gang_profile=slow)
    webhook.ask(OTHER)
    webhook.ask(OTHER)  # the nominations themselves were a change
    began_at = clock.monotonic()
    tell(webhook.cache, [make_pod("small").uid("small").req(cpu="1m").node("n0").obj()])
    assert len(webhook.ask(OTHER)) == 1
    assert clock.monotonic() == began_at


def test_a_bind_that_fails_during_a_plan_is_not_forgotten() -> None:
    """The plan fails, so the next one would come a second later."""
    clock = ManualClock()
    slow = SlowRule(clock, 6.0)
    profile = replace(PROFILES.all[0], predicates=[*PROFILES.all[0].predicates, slow])
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1"]), OTHER, clock=clock, gang_profile=profile)
    slow.during = lambda: webhook.split.suspect(msgspec.convert(member(2), Pod))
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]
    slow.seconds = 0.0
    assert len(webhook.ask(OTHER)) == 1


def test_an_error_about_a_split_gang_fails_no_other_pod(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook(*NODES, GANG, *members(["n0", "n1"]), OTHER, gang_profile=object())
    assert webhook.ask(OTHER) == ["n2", "n3", "n4"]
    assert "no room kept for a split gang group=default/gang" in caplog.text
