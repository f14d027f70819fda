"""A decision that takes too long ends in an error that says so, and costs nobody else anything."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from extender.errors import DeadlineExceeded
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import NullTelemetry
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize
from tests.builders import make_node, make_pod
from tests.verbs.cluster import FakeBinder, args, binding, cache_of, preemption_args

LIMIT_SECONDS = 4.0


@dataclass
class _SlowRule:
    """A rule that takes so many seconds for a pod."""

    clock: ManualClock
    seconds: float
    name: str = "Slow"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows | None = None) -> None:
        self.clock.advance(self.seconds)


class _World:
    """The verbs over one node, by a profile of two slow rules and one that comes after them."""

    def __init__(self, seconds: float) -> None:
        clock, telemetry = ManualClock(), NullTelemetry()
        slow, last = _SlowRule(clock, seconds), _SlowRule(clock, 0.0, "Last")
        priorities = [WeightedPriority(slow), WeightedPriority(last)]
        profiles = Profiles([Profile("default-scheduler", [slow, last], priorities)])
        self.pod = make_pod("web").obj()
        self.cache = cache_of(make_node("n1").obj(), self.pod, clock=clock)
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
    with pytest.raises(DeadlineExceeded, match=r"no decision within 4 s: Last is still to come"):
        chosen.decide(request)


def test_preempt_stops_between_its_steps() -> None:
    world = _World(4.1)
    request = world.preempt.decode(preemption_args(world.pod, {"n1": ["uid-of-victim"]}))
    with pytest.raises(DeadlineExceeded, match=r"no decision within 4 s"):
        world.preempt.decide(request)


def test_a_bind_whose_check_takes_too_long_binds_nothing() -> None:
    world = _World(4.1)
    result = world.bind.decide(world.bind.decode(binding(world.pod, "n1")))
    assert result.error == "no decision within 4 s: Last is still to come"
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
