"""Preemption for pods that users' rules alone refuse: which pods go, when none does, and that none goes twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

from extender import PodInfo, Rows, Table, Wait, permit, predicate
from extender.app.serve import PreemptionWriters, preempt
from extender.cluster.election.lease import Fence
from extender.cluster.kube_client import ApiCall, Caller
from extender.engine.group_members import MemberJudge
from extender.errors import ConfigurationError, OutcomeUnknown, Refused
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.model.pod_groups import COSCHEDULING_LABEL
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.clock import NO_LIMIT, ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.preemption import RulePreemption, VictimEvictor, check_preemption
from extender.table.features import FeatureGates
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.filter import Filter, RefusedPods
from extender.verbs.group_plans import GroupPlans
from extender.web.metrics import Metrics
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pdb, make_pod, make_pod_group
from tests.stock.waiting import wait_until
from tests.verbs.cluster import FakeBinder, answer, args, binding, cache_of, tell

PAINT = "example.com/paint"
MARKED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@predicate(sees_pods=True)
def one_painter(pod: PodInfo, table: Table, rows: Rows) -> object:
    """Keeps a node to one pod with paint, whatever the node says that it has room for."""
    wanted, index = pod.requests.get(PAINT, 0), table.nodes.resources.get(PAINT)
    taken = 0 if index is None else table.nodes.requested[index][rows]
    return {"node(s) had a painter": (wanted == 0) | (np.broadcast_to(taken, len(rows)) == 0)}


@predicate
def blind(pod: Pod, node: Any) -> bool:
    return PAINT not in pod.labels


def node(name: str, cpu: str = "4") -> NodeBuilder:
    return make_node(name).allocatable({PAINT: "9"}, cpu=cpu, memory="4Gi", pods="9")


def painter(name: str, priority: int, on: str = "", cpu: str = "1") -> PodBuilder:
    built = make_pod(name).uid(name).req({PAINT: "1"}, cpu=cpu).priority(priority).label({PAINT: "true"})
    return built.node(on) if on else built


class Webhook:
    """Filter, and what preempts for its refusals; `faults` are raised by the API server, which else does all."""

    def __init__(
        self,
        *built: Any,
        rule: Any = one_painter,
        limit: TimeLimit = NO_LIMIT,
        coscheduling: bool = False,
        **profile: Any,
    ) -> None:
        default = default_profile()
        made = rule.rule("painting", {}, OfflineHost())
        gates = FeatureGates(generic_workload=not coscheduling)
        self.profiles = Profiles([replace(default, **{"predicates": [*default.predicates, made]} | profile)], gates)
        self.clock = ManualClock()
        objects = (each if isinstance(each, dict) else each.obj() for each in built)
        self.cache = cache_of(clock=self.clock, features=gates)
        if coscheduling:
            self.cache.groups.use_coscheduling_label()
        tell(self.cache, objects)
        self.refused = RefusedPods(self.cache, self.profiles, self.clock, 0.0)
        plans = GroupPlans(self.cache, MemberJudge(Random(0)), Telemetry(), self.clock, pause=self.clock.advance)
        self.filter = Filter(self.cache, self.profiles, Telemetry(), refused=self.refused, plans=plans)
        self.permits = Permits(self.cache.snapshot)
        self.at_permit = PermitWait(600.0, 9)
        evictor: Any = VictimEvictor(self.cache, self, self, self.at_permit)
        statuses: Any = self
        self.counted: list[int] = []
        self.preemption = RulePreemption(
            self.cache, self.profiles, statuses, lambda: evictor, self.counted.append, limit
        )
        self.evicted: list[str] = []
        self.nominated: list[tuple[str, str]] = []
        self.recorded: list[tuple[str, str]] = []
        self.faults: list[Exception] = []

    def mark_victim(self, victim: Pod, message: str) -> bool:
        return True

    def delete_victim(self, victim: Pod) -> bool:
        if self.faults:
            raise self.faults.pop()
        self.evicted.append(victim.name)
        return True

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        self.nominated.append((pod.name, nominated_node))

    def record(self, pod: Pod, kind: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:
        self.recorded.append((reason, note))

    def tell(self, built: Any) -> None:
        tell(self.cache, [built.obj()])

    def ask(self, pod: PodBuilder, *names: str) -> list[str]:
        """Asks filter as kube-scheduler does, about the nodes that its own plugins let pass."""
        found: list[str] = answer(self.filter, args(pod.obj(), names=list(names)))["NodeNames"]
        return found

    def turn(self) -> None:
        self.clock.advance(1)
        preempt(self.refused, self.preemption)


P = painter("p", 10)
"""As it comes; builders that are changed must not be this one."""


def test_after_an_unexpected_error_the_other_pods_are_tried_again() -> None:
    second = painter("second", 9)
    webhook = Webhook(node("n1"), node("n2"), painter("low", 1, "n1"), painter("lower", 0, "n2"), P, second)
    webhook.faults.append(RuntimeError("a defect"))
    for pod in (P, second):
        assert webhook.ask(pod, "n1", "n2") == []
    with pytest.raises(RuntimeError):
        webhook.turn()
    webhook.turn()
    assert set(webhook.evicted) == {"low", "lower"}


def test_the_victim_goes_and_the_pod_is_nominated() -> None:
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), P)
    assert webhook.ask(P, "n1") == []
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == (["low"], [("p", "n1")])
    assert webhook.recorded == [("Preempted", "Preempted by pod p on node n1")]
    assert (webhook.cache.nominated_node("p"), webhook.counted) == ("n1", [1])
    assert "preemption" in webhook.cache._locked._managers  # the label of the time that it waits for the cache's lock


class Writes(Caller):
    """An API server that carries out what users' rules have evicted, and what happens after each call."""

    def __init__(self, webhook: Webhook, after_call: Callable[[Writes], object]) -> None:
        self.term = 1
        self.methods: list[str] = []
        self.unsettled = UnsettledWrites(10.0)
        self._webhook = webhook
        self._after_call = after_call
        fence, metrics = Fence(self.unsettled, lambda: self.term), Metrics(webhook.clock, "1")
        client: Any = self
        self._preemption = PreemptionWriters(
            webhook.cache, webhook.profiles, client, fence, webhook.at_permit, metrics, webhook.clock, NO_LIMIT
        ).preemption
        assert webhook.ask(P, "n1") == []

    def turn(self) -> list[str]:
        """Returns the methods of all calls, after one more run."""
        self._webhook.clock.advance(1)
        preempt(self._webhook.refused, self._preemption)
        return self.methods

    def call(self, call: ApiCall) -> bytes:
        call.check()
        self.methods.append(call.method)
        self._after_call(self)
        return b""


def test_a_decision_of_an_earlier_term_evicts_no_pod() -> None:
    """Another leader may have evicted other pods for the same pod in between."""

    def lead_again(writes: Writes) -> None:
        writes.term += 1

    writes = Writes(Webhook(node("n1"), painter("low", 1, "n1"), P), lead_again)
    assert writes.turn() == ["PATCH"]  # a condition of the victim, which stays
    assert writes.turn() == ["PATCH", "PATCH"]


def test_while_it_is_unknown_if_a_victim_goes_no_other_is_evicted() -> None:
    def lose_the_answer(writes: Writes) -> None:
        if writes.methods[-1] == "DELETE":
            raise OutcomeUnknown("no answer")

    webhook = Webhook(node("n1"), painter("low", 1, "n1"), P)
    writes = Writes(webhook, lose_the_answer)
    assert writes.turn() == ["PATCH", "DELETE"]
    for built in (node("n2"), painter("lower", 0, "n2")):
        webhook.tell(built)
    assert writes.turn() == ["PATCH", "DELETE"]
    writes.unsettled.settle(inf)
    assert writes.turn() == ["PATCH", "DELETE"] * 2


@pytest.fixture
def rules_only() -> dict[str, Any]:
    """The options of a profile that disables every in-tree plugin, DefaultPreemption too, as README and rules.md do."""
    return {"predicates": [one_painter.rule("painting", {}, OfflineHost())], "preemption": None}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all plugins are off"),
        pytest.param({"preemption": default_profile().preemption}, id="all but DefaultPreemption"),
        pytest.param(
            {
                "predicates": [*default_profile().predicates, one_painter.rule("painting", {}, OfflineHost())],
                "disabled_filters": tuple(rule.name for rule in default_profile().predicates),
            },
            id="only filter is off, so that they still run at preFilter",
        ),
    ],
)
def test_a_policy_of_rules_alone_evicts_only_where_kube_schedulers_filters_pass(
    rules_only: dict[str, Any], changes: dict[str, Any]
) -> None:
    """n2 has the cheaper victim, but is too small; n3 has no painter, but is too small as well."""
    nodes = (node("n1"), node("n2", cpu="500m"), node("n3", cpu="500m"))
    webhook = Webhook(*nodes, painter("low", 1, "n1"), painter("lower", 0, "n2", cpu="100m"), P, **rules_only | changes)
    assert webhook.ask(P, "n1") == []
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == (["low"], [("p", "n1")])


def test_a_policy_of_rules_alone_leaves_to_kube_scheduler_what_it_can_preempt_for(rules_only: dict[str, Any]) -> None:
    full = make_pod("full").uid("full").req(cpu="4").priority(1).node("n2")
    webhook = Webhook(node("n1"), node("n2"), painter("low", 1, "n1"), full, P, **rules_only)
    assert webhook.ask(P, "n1") == []
    webhook.turn()
    assert webhook.evicted == []


def test_a_policy_with_preemption_off_beside_in_tree_filters_is_refused(rules_only: dict[str, Any]) -> None:
    default = default_profile()
    assert check_preemption([default, replace(default, **rules_only), replace(default, preemption=None)]) is None
    kept = replace(default, **rules_only | {"predicates": [*default.predicates, *rules_only["predicates"]]})
    with pytest.raises(ConfigurationError, match="enable DefaultPreemption at postFilter"):
        check_preemption([kept])


def test_a_policy_without_a_rule_that_sees_pods_evicts_nobody_and_says_so() -> None:
    fault = check_preemption([default_profile()])
    assert fault is not None
    assert "no rule with @predicate(sees_pods=True)" in fault


def test_while_the_victim_leaves_no_other_goes_even_if_the_nomination_is_lost() -> None:
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), P)
    webhook.ask(P, "n1")
    webhook.turn()
    webhook.tell(node("n2"))
    webhook.tell(painter("cheaper", 0, "n2"))
    for nominated in ("n1", ""):
        webhook.tell(painter("p", 10).nominated(nominated))
        webhook.cache.nominate("p", nominated)
        webhook.ask(painter("p", 10).nominated(nominated), "n1", "n2")
        webhook.turn()
        webhook.turn()
    assert webhook.evicted == ["low"]


def test_a_leader_that_knows_nothing_of_the_victims_sees_them_leave() -> None:
    leaving = painter("low", 1, "n1").deleted().status(conditions=[MARKED])
    nominated = painter("p", 10).nominated("n1")
    webhook = Webhook(node("n1"), node("n2"), leaving, painter("cheaper", 0, "n2"), nominated)
    webhook.ask(nominated, "n1", "n2")
    webhook.turn()
    assert webhook.evicted == []


@pytest.mark.parametrize(
    ("objects", "pod", "options"),
    [
        pytest.param([painter("low", 1, "n1")], P, {"rule": blind}, id="a rule that sees no pods"),
        pytest.param(
            [painter("low", 1, "n1")], painter("p", 10).preemption_policy("Never"), {}, id="preemptionPolicy Never"
        ),
        pytest.param([painter("same", 10, "n1")], P, {}, id="no pod of a lower priority"),
        pytest.param([painter("low", 1, "n1"), node("n2")], P, {}, id="another node has room by now"),
        pytest.param([painter("low", 1, "n1")], P, {"preemption": None}, id="preemption is off"),
        pytest.param(
            [painter("low", 1, "n1"), node("n2"), make_pod("x").req(cpu="4").priority(1).node("n2")],
            P,
            {},
            id="kube-scheduler can make room elsewhere",
        ),
    ],
)
def test_no_pod_is_evicted(objects: list[Any], pod: PodBuilder, options: dict[str, Any]) -> None:
    webhook = Webhook(node("n1"), *objects, pod, **options)
    webhook.ask(pod, "n1")
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == ([], [])


def test_nodes_that_kube_scheduler_cannot_empty_do_not_keep_a_victim_in_place() -> None:
    full = make_pod("full").req(cpu="4").priority(20).node("n2")
    webhook = Webhook(node("n1"), node("n2"), painter("low", 1, "n1"), full, P)
    webhook.ask(P, "n1")
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == (["low"], [("p", "n1")])


def test_pods_that_a_budget_protects_are_spared() -> None:
    budget = {**make_pdb("b", {"app": "kept"}, minAvailable=1), "status": {"disruptionsAllowed": 0}}
    kept, free = painter("kept", 1, "n1").label(app="kept"), painter("free", 5, "n2")
    webhook = Webhook(node("n1"), node("n2"), budget, kept, free, P)
    webhook.ask(P, "n1", "n2")
    webhook.turn()
    assert webhook.evicted == ["free"]


def test_the_most_important_pod_comes_first_and_two_do_not_share_a_victim() -> None:
    less, more = painter("less", 5), painter("more", 10)
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), less, more)
    webhook.ask(less, "n1")
    webhook.ask(more, "n1")
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == (["low"], [("more", "n1")])


def test_what_the_api_server_refuses_is_tried_again() -> None:
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), P)
    webhook.faults = [Refused("this process is not the leader, so it must not write", 503)]
    webhook.ask(P, "n1")
    webhook.turn()
    assert webhook.evicted == []
    webhook.turn()
    webhook.turn()
    assert webhook.evicted == ["low"]


@pytest.mark.parametrize(
    "built",
    [
        pytest.param([P], id="a pod"),
        pytest.param([make_pod_group("gang", 1, priority=10), painter("p", 10).group("gang")], id="a gang"),
    ],
)
def test_a_rule_that_hangs_is_abandoned_in_time_and_no_pod_is_evicted(built: list[Any]) -> None:
    asked, end, awaited = Event(), Event(), Event()

    @predicate(sees_pods=True)
    def hangs_when_it_is_asked_again(pod: Pod, node: Any) -> bool:
        if asked.is_set():
            end.wait(60)
            awaited.set()
        asked.set()
        return False

    limit = TimeLimit(ManualClock(), 2.0)
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), *built, rule=hangs_when_it_is_asked_again, limit=limit)
    webhook.ask(built[-1], "n1")
    try:
        webhook.turn()
        assert (webhook.evicted, awaited.is_set()) == ([], False)
        assert webhook.refused.take(webhook.preemption.rules()) == []  # kube-scheduler asks again
    finally:
        end.set()


@permit
def hold(pod: Pod, node: Any) -> Wait:
    return Wait(20)


def test_a_victim_that_waits_at_permit_is_rejected_and_not_deleted() -> None:
    low = painter("low", 1)
    webhook = Webhook(node("n1"), low, P)
    webhook.profiles.replace([replace(webhook.profiles.all[0], permit=[hold.rule("hold", {}, OfflineHost())])])
    binder = FakeBinder()
    bind = Bind(webhook.cache, webhook.profiles, binder, Telemetry(), NO_LIMIT, webhook.permits, webhook.at_permit)
    with ThreadPoolExecutor() as pool:
        bound = pool.submit(lambda: answer(bind, binding(low.obj(), "n1"))["Error"])
        assert wait_until(lambda: webhook.at_permit.uids() == ["low"])
        assert webhook.ask(P, "n1") == []
        webhook.turn()
        assert bound.result() == "preempted by default/p"
    assert (webhook.evicted, binder.bound, webhook.cache.placement("low")) == ([], [], None)
    assert webhook.recorded == [("Preempted", "Preempted by pod p on node n1 before it was bound")]
    assert webhook.nominated == [("p", "n1")]


@pytest.mark.parametrize("certain", [True, False], ids=["bound", "no answer"])
def test_a_pod_whose_bind_is_not_confirmed_is_no_victim(certain: bool) -> None:
    webhook = Webhook(node("n1"), painter("low", 1), P)
    found = webhook.cache.find_pod("low", "default/low")
    assert found is not None
    webhook.cache.assume(found, "n1")
    webhook.cache.finish_binding("low", certain=certain)
    webhook.ask(P, "n1")
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == ([], [])
    webhook.tell(painter("low", 1, "n1"))
    webhook.ask(P, "n1")
    webhook.turn()
    assert webhook.evicted == ["low"]


def test_a_unit_is_spared_while_one_of_its_pods_is_being_bound() -> None:
    unit = make_pod_group("unit", 1, priority=1, disruptionMode={"all": {}})
    lows = [painter("low-n1", 1, "n1").group("unit"), painter("low-n2", 1).group("unit")]
    webhook = Webhook(node("n1"), node("n2"), unit, *lows, P)
    in_mid_bind = webhook.cache.find_pod("low-n2", "default/low-n2")
    assert in_mid_bind is not None
    webhook.cache.assume(in_mid_bind, "n2")
    webhook.ask(P, "n1", "n2")
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == ([], [])
    webhook.tell(painter("low-n2", 1, "n2").group("unit"))
    webhook.ask(P, "n1", "n2")
    webhook.turn()
    assert sorted(webhook.evicted) == ["low-n1", "low-n2"]


def test_kube_scheduler_has_a_second_to_do_what_it_does_itself() -> None:
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), P)
    webhook.ask(P, "n1")
    assert webhook.refused.take(webhook.preemption.rules()) == []
    webhook.clock.advance(1)
    assert webhook.refused.take(frozenset(("another",))) == []
    assert webhook.refused.take(webhook.preemption.rules()) == [("p", "default/p")]
    assert webhook.refused.take(webhook.preemption.rules()) == []


# ---- pod groups

NAMES = ("n1", "n2")
GANG = [painter(name, 10).group("gang") for name in ("g1", "g2")]


def gang_group(name: str = "gang", minimum: int = 2, priority: int = 10, **spec: Any) -> Object:
    return make_pod_group(name, minimum, priority=priority, **spec)


def test_a_gang_that_rules_alone_refuse_preempts_as_a_whole() -> None:
    lows = [painter(f"low-{name}", 1, name) for name in NAMES]
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(), *GANG)
    assert [webhook.ask(pod, *NAMES) for pod in GANG] == [[], []]
    webhook.turn()
    assert sorted(webhook.evicted) == ["low-n1", "low-n2"]
    assert sorted(name for name, _ in webhook.nominated) == ["g1", "g2"]
    assert sorted(node_name for _, node_name in webhook.nominated) == list(NAMES)
    assert webhook.counted == [2]
    assert webhook.recorded[0][1].startswith("Preempted by podgroup ")


def test_a_gang_that_eviction_does_not_make_fit_evicts_nothing() -> None:
    webhook = Webhook(*map(node, NAMES), painter("low", 1, "n1"), painter("high", 20, "n2"), gang_group(), *GANG)
    assert [webhook.ask(pod, *NAMES) for pod in GANG] == [[], []]
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == ([], [])


def test_a_gang_evicts_nothing_if_preemption_is_off() -> None:
    lows = [painter(f"low-{name}", 1, name) for name in NAMES]
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(), *GANG, preemption=None)
    assert [webhook.ask(pod, *NAMES) for pod in GANG] == [[], []]
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == ([], [])


def test_a_gang_whose_profile_has_no_users_rules_is_left_to_kube_scheduler() -> None:
    lows = [painter(f"low-{name}", 1, name, cpu="4") for name in NAMES]
    without_rules = default_profile().predicates
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(), *GANG, predicates=without_rules)
    assert webhook.preemption.run([("g1", "default/g1")]) == []
    assert (webhook.evicted, webhook.nominated) == ([], [])


def test_a_gang_evicts_a_whole_unit() -> None:
    """The other pods of a group with `disruptionMode: all` leave too."""
    unit = make_pod_group("unit", 1, priority=1, disruptionMode={"all": {}})
    lows = [painter(f"low-{name}", 1, name).group("unit") for name in NAMES]
    webhook = Webhook(*map(node, NAMES), unit, *lows, gang_group(minimum=1), GANG[0])
    assert webhook.ask(GANG[0], *NAMES) == []
    webhook.turn()
    assert sorted(webhook.evicted) == ["low-n1", "low-n2"]


def test_a_gang_that_kube_scheduler_refuses_too_is_left_to_it() -> None:
    lows = [painter(f"low-{name}", 1, name, cpu="4") for name in NAMES]
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(), *GANG)
    webhook.ask(GANG[0], *NAMES)
    webhook.turn()
    assert webhook.evicted == []


RACK = {"topology": [{"key": "rack"}]}


def test_a_gang_with_a_topology_constraint_evicts_pods_of_one_rack() -> None:
    racks = [node("n1", cpu="64").label(rack="a"), *(node(name).label(rack="b") for name in ("n2", "n3"))]
    lows = [painter("low-n1", 1, "n1"), painter("low-n2", 1, "n2"), painter("mid-n3", 5, "n3")]
    webhook = Webhook(*racks, *lows, gang_group(schedulingConstraints=RACK), *GANG)
    webhook.ask(GANG[0], "n1", "n2", "n3")
    webhook.turn()
    assert sorted(webhook.evicted) == ["low-n2", "mid-n3"]


def test_a_gang_that_kube_scheduler_finds_no_rack_for_is_left_to_it() -> None:
    racks = [node(name).label(rack=rack) for name, rack in (("n1", "a"), ("n2", "a"), ("n3", "b"))]
    lows = [painter("low-n1", 1, "n1"), painter("low-n2", 1, "n2", cpu="4")]
    gang = [painter(name, 10, cpu="3").group("gang") for name in ("g1", "g2")]
    webhook = Webhook(*racks, *lows, gang_group(schedulingConstraints=RACK), *gang)
    assert webhook.preemption.run([("g1", "default/g1")]) == []
    assert webhook.evicted == []


def test_a_lesser_pod_loses_its_nomination_to_the_node() -> None:
    lesser = painter("lesser", 5).nominated("n1")
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), lesser, painter("p", 10))
    assert webhook.ask(painter("p", 10), "n1") == []
    webhook.turn()
    assert (webhook.evicted, webhook.nominated) == (["low"], [("p", "n1"), ("lesser", "")])
    assert webhook.cache.nominated_node("lesser") == ""


def test_while_the_victims_of_a_gang_leave_no_others_go() -> None:
    lows = [painter(f"low-{name}", 1, name) for name in NAMES]
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(), *GANG)
    for _ in range(2):
        for pod in GANG:
            webhook.ask(pod, *NAMES)
        webhook.turn()
    assert len(webhook.evicted) == 2


def test_a_gated_member_beside_a_whole_gang_evicts_nothing_for_itself() -> None:
    lows = [painter(f"low-{name}", 1, name) for name in NAMES]
    gated = painter("g2", 10).group("gang").gate("quota")
    webhook = Webhook(*map(node, NAMES), *lows, gang_group(minimum=1), GANG[0], gated)
    webhook.ask(GANG[0], *NAMES)
    webhook.turn()
    assert (len(webhook.evicted), [name for name, _ in webhook.nominated]) == (1, ["g1"])


def test_a_gang_of_coscheduling_with_only_gated_members_evicts_nothing() -> None:
    gated = painter("g1", 10).label({COSCHEDULING_LABEL: "gang"}).gate("quota")
    group = {**make_pod_group("gang"), "spec": {"minMember": 1}}
    webhook = Webhook(node("n1"), painter("low", 1, "n1"), group, gated, coscheduling=True)
    assert webhook.preemption.run([("g1", "default/g1")]) == []
    assert webhook.evicted == []


def test_a_gang_of_coscheduling_preempts_with_the_lowest_priority_of_its_members() -> None:
    lows = [painter("low-n1", 1, "n1"), painter("low-n2", 1, "n2"), painter("mid-n3", 7, "n3")]
    gang = [painter(name, priority).label({COSCHEDULING_LABEL: "gang"}) for name, priority in (("g1", 10), ("g2", 5))]
    group = {**make_pod_group("gang"), "spec": {"minMember": 2}}
    webhook = Webhook(*map(node, ("n1", "n2", "n3")), *lows, group, *gang, coscheduling=True)
    for pod in gang:
        webhook.ask(pod, "n1", "n2", "n3")
    webhook.turn()
    assert sorted(webhook.evicted) == ["low-n1", "low-n2"]
