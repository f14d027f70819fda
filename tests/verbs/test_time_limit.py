"""A decision that takes too long ends in an error that says so, and costs no other call anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from threading import Event

import numpy as np
import pytest

from extender.engine.group_members import MemberJudge
from extender.errors import DeadlineExceeded
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import selector_from_labels
from extender.plugins.users.predicate import predicate
from extender.plugins.users.priority import priority
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.clock import ManualClock, SystemClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import PodCountQuery, Table
from extender.table.labels import Rows
from extender.verbs.bind import Bind
from extender.verbs.filter import WOKEN_SECONDS, Filter, RefusedPods
from extender.verbs.group_plans import GroupPlans
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize
from tests.builders import (
    PodBuilder,
    expression,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_request,
    make_resource_slice,
    node_term,
)
from tests.verbs.cluster import PROFILES, FakeBinder, SlowRule, args, binding, cache_of, preemption_args

LIMIT_SECONDS = 4.0


_NODES = ("n1", "n2", "n3")


def _of_a_user(form: str, delay: Callable[[], object]) -> Profile:
    """A profile of one predicate and one priority, of nodes or of columns, that take so long at each step."""

    def slow(pod: object, node: object) -> bool:
        delay()
        return True

    def slow_columns(pod: object, table: Table, rows: Rows) -> object:
        for app in "ab":
            delay()
            table.matching(PodCountQuery(None, selector_from_labels({"app": app})))
        return np.ones(len(rows), np.bool_)

    function = slow if form == "of nodes" else slow_columns
    rule = predicate(function).rule("Slow", {}, OfflineHost())
    return Profile("default-scheduler", [rule], [WeightedPriority(priority(function).rule("Slow", {}, OfflineHost()))])


class _World:
    """The verbs over one node, by a profile of two slow rules and one that comes after them, or over two by `rule`."""

    def __init__(self, seconds: float, rule: str = "") -> None:
        clock, telemetry = ManualClock(), Telemetry()
        slow, last = SlowRule(clock, seconds), SlowRule(clock, 0.0, "Last")
        profile = Profile("default-scheduler", [slow, last], [WeightedPriority(slow), WeightedPriority(last)])
        if rule:
            profile = _of_a_user(rule, lambda: clock.advance(seconds))
        profiles = Profiles([profile])
        self.pod = make_pod("web").obj()
        self.cache = cache_of(*(make_node(name).obj() for name in _NODES), self.pod, clock=clock)
        self.binder, limit = FakeBinder(), TimeLimit(clock, LIMIT_SECONDS)
        self.filter = Filter(self.cache, profiles, telemetry, limit=limit)
        self.prioritize = Prioritize(self.cache, profiles, limit=limit)
        self.preempt = Preempt(self.cache, profiles, limit)
        self.bind = Bind(self.cache, profiles, self.binder, telemetry, limit)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize(("seconds", "late"), [(3.9, False), (4.1, True)], ids=["in time", "late"])
def test_filter_and_prioritize_stop_before_the_next_rule(verb: str, seconds: float, late: bool) -> None:
    world = _World(seconds)
    chosen = getattr(world, verb)
    request = chosen.decode(args(world.pod, names=["n1"]))
    if not late:
        chosen.decide(request)
        return
    with pytest.raises(DeadlineExceeded, match=r"no decision within 4 s: stopped before Last"):
        chosen.decide(request)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("form", ["of nodes", "of columns"])
@pytest.mark.parametrize(("seconds", "late"), [(1.9, False), (2.1, True)], ids=["in time", "late"])
def test_a_rule_of_a_users_is_stopped_on_its_way(verb: str, form: str, seconds: float, late: bool) -> None:
    world = _World(seconds, form)
    chosen = getattr(world, verb)
    request = chosen.decode(args(world.pod, names=_NODES))
    if not late:
        chosen.decide(request)
        return
    recorded = "the rest of Slow" if form == "of nodes" else "counting pods"
    with pytest.raises(DeadlineExceeded, match=f"no decision within 4 s: stopped before {recorded}"):
        chosen.decide(request)


def test_the_plan_for_a_gang_stops_before_the_next_rule() -> None:
    clock = ManualClock()
    profiles = Profiles([Profile("default-scheduler", [SlowRule(clock, 3.0), SlowRule(clock, 0.0, "Last")], [])])
    gang = [make_pod(name).uid(name).label(member=name).group("gang").obj() for name in ("m0", "m1")]
    cache = cache_of(*(make_node(name).obj() for name in _NODES), make_pod_group("gang", 2), *gang, clock=clock)
    plans = GroupPlans(cache, MemberJudge(Random(0)), Telemetry(), clock)
    verb = Filter(cache, profiles, Telemetry(), limit=TimeLimit(clock, LIMIT_SECONDS), plans=plans)
    with pytest.raises(DeadlineExceeded, match=r"no decision within 4 s: stopped before Last"):
        verb.decide(verb.decode(args(gang[0], names=_NODES)))


def test_preempt_stops_between_its_steps() -> None:
    world = _World(4.1)
    request = world.preempt.decode(preemption_args(world.pod, {"n1": ["uid-of-victim"]}))
    with pytest.raises(DeadlineExceeded, match=r"no decision within 4 s"):
        world.preempt.decide(request)


def test_a_bind_whose_check_takes_too_long_binds_nothing() -> None:
    world = _World(4.1)
    result = world.bind.decide(world.bind.decode(binding(world.pod, "n1")))
    assert result.error == "no decision within 4 s: stopped before Last"
    assert not world.binder.bound
    assert world.cache.placement(world.pod["metadata"]["uid"]) is None


def test_the_table_is_lent_again_after_a_late_decision() -> None:
    world = _World(4.1)
    with world.cache.snapshot("before") as table:
        before = table
    with pytest.raises(DeadlineExceeded):
        world.filter.decide(world.filter.decode(args(world.pod, names=["n1"])))
    with world.cache.snapshot("after") as table:
        assert table is before


class _TickingClock(ManualClock):
    """Goes on by a hundredth of a second with each look at it."""

    def monotonic(self) -> float:
        self.advance(0.01)
        return super().monotonic()


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            make_pod("web").require_node(*(node_term(expression("rank", "Gt", str(n))) for n in range(1000))),
            id="a thousand terms of required node affinity",
        ),
        pytest.param(
            make_pod("web").require_node(node_term(*(expression("rank", "NotIn", str(n)) for n in range(1000)))),
            id="a thousand requirements of one term",
        ),
        pytest.param(
            make_pod("web").node_selector(**{f"key-{n}": "value" for n in range(1000)}), id="a thousand selected labels"
        ),
    ],
)
def test_a_pod_of_a_thousand_requirements_on_nodes_ends_within_one_rule(pod: PodBuilder) -> None:
    clock = _TickingClock()
    cache = cache_of(*(make_node(name).label(rank="1").obj() for name in _NODES), pod.obj(), clock=clock)
    verb = Filter(cache, PROFILES, Telemetry(), limit=TimeLimit(clock, LIMIT_SECONDS))
    with pytest.raises(DeadlineExceeded, match=r"before matching (node labels|the pod's nodeSelector)"):
        verb.decide(verb.decode(args(pod.obj(), names=_NODES)))


def test_a_claim_whose_devices_take_long_ends_within_one_node() -> None:
    """Each device's selector may take seconds, and a node may have hundreds of them."""
    clock, pod = _TickingClock(), make_pod("web").resource_claim("wants").obj()
    devices = [make_device(f"gpu-{number}", {"number": number}) for number in range(200)]
    slices = [make_resource_slice(name, "gpu.example.com", *devices) for name in _NODES]
    claim = make_claim("wants", make_request("device", "gpu", 'device.attributes["gpu.example.com"].number < 0'))
    nodes = (make_node(name).obj() for name in _NODES)
    cache = cache_of(*nodes, make_device_class("gpu"), *slices, claim, pod, clock=clock)
    verb = Filter(cache, PROFILES, Telemetry(), limit=TimeLimit(clock, 1.0))
    with pytest.raises(DeadlineExceeded, match=r"no decision within 1 s: stopped before a selector of devices"):
        verb.decide(verb.decode(args(pod, names=_NODES)))


@dataclass
class _HangingRule:
    """The verbs over three nodes by a user's rule that hangs until `end` is set, on n1 only, and in real time.

    The clock of the limit stands still: a machine that is busy elsewhere makes nothing late but what hangs.
    """

    end: Event

    def __post_init__(self) -> None:
        @predicate
        def hanging(_: Pod, node: Node) -> bool:
            return node.name != "n1" or self.end.wait(60)

        @priority
        def hanging_too(_: Pod, node: Node) -> int:
            return int(node.name != "n1" or self.end.wait(60))

        clock, telemetry, limit = SystemClock(), Telemetry(), TimeLimit(ManualClock(), 1.0)
        scored = WeightedPriority(hanging_too.rule("HangingToo", {}, OfflineHost()))
        profiles = Profiles([Profile("default-scheduler", [hanging.rule("Hanging", {}, OfflineHost())], [scored])])
        self.pods = [make_pod("web").obj(), make_pod("other").obj()]
        self.cache = cache_of(*(make_node(name).obj() for name in _NODES), *self.pods, clock=clock)
        self.binder = FakeBinder()
        self.filter = Filter(self.cache, profiles, telemetry, limit=limit)
        self.prioritize = Prioritize(self.cache, profiles, limit=limit)
        self.bind = Bind(self.cache, profiles, self.binder, telemetry, limit)
        self.later = ManualClock()
        self.refused = RefusedPods(self.cache, profiles, self.later, 0.0, limit)


@pytest.fixture
def hanging() -> Iterator[_HangingRule]:
    rule = _HangingRule(Event())
    yield rule
    rule.end.set()


@pytest.mark.parametrize(("verb", "rule"), [("filter", "Hanging"), ("prioritize", "HangingToo")])
def test_the_caller_of_a_rule_that_hangs_is_answered_in_time(hanging: _HangingRule, verb: str, rule: str) -> None:
    chosen = getattr(hanging, verb)
    with hanging.cache.snapshot("before") as before:
        pass
    with pytest.raises(DeadlineExceeded, match=f"no decision within 1 s: {rule} has not answered"):
        chosen.decide(chosen.decode(args(hanging.pods[0], names=_NODES)))
    assert not hanging.end.is_set()
    chosen.decide(chosen.decode(args(hanging.pods[1], names=["n2", "n3"])))
    with hanging.cache.snapshot("after") as after:
        assert after is not before  # the rule may look at it still


def test_a_bind_whose_rule_hangs_binds_nothing_and_holds_no_other_up(hanging: _HangingRule) -> None:
    first, other = hanging.pods
    result = hanging.bind.decide(hanging.bind.decode(binding(first, "n1")))
    assert result.error == "no decision within 1 s: Hanging has not answered"
    assert hanging.bind.decide(hanging.bind.decode(binding(other, "n2"))).error == ""
    hanging.end.set()
    assert hanging.bind.decide(hanging.bind.decode(binding(first, "n1"))).error == ""
    assert hanging.binder.bound == [(other["metadata"]["uid"], "n2"), (first["metadata"]["uid"], "n1")]


def test_the_table_of_a_rule_that_hangs_as_a_pod_is_judged_again_is_not_lent_again(hanging: _HangingRule) -> None:
    hanging.refused.note(hanging.filter.decode(args(hanging.pods[0], names=_NODES)).pod, refused=True)
    hanging.refused.wake_all()
    with hanging.cache.snapshot("before") as before:
        pass
    hanging.later.advance(WOKEN_SECONDS)
    assert list(hanging.refused.fitting()) == []
    with hanging.cache.snapshot("after") as after:
        assert after is not before
