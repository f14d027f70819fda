"""`wake` reaches the process that uses the rule, but not after the rule was replaced, and not offline."""

from __future__ import annotations

from typing import Any

from extender import Cluster, PredicateFunction, predicate
from extender.framework.permit import NO_PERMITS
from extender.framework.profile import Profile, Profiles
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.plugins.users.rule_calls import OfflineHost
from tests.builders import make_node, make_pod


def made() -> PredicateFunction[..., Any]:
    return predicate(lambda pod, node: False)


def process(heard: list[str]) -> RunningProcess:
    return RunningProcess(lambda rule, *_: heard.append(rule), NO_PERMITS)


def profiles(**rules: PredicateFunction[..., Any]) -> Profiles:
    return Profiles([Profile("p", [rule.rule(name, {}, OfflineHost()) for name, rule in rules.items()], [])])


def test_a_wake_is_passed_on_with_each_name_of_the_rule() -> None:
    rule, heard = made(), list[str]()
    put_in_force(profiles(a=rule, b=rule, other=made()).all, process(heard))
    rule.wake()
    assert rule.in_force
    assert heard == ["a", "b"]


def test_a_wake_does_nothing_offline() -> None:
    rule = made()
    cluster = Cluster.from_objects([make_node("n").obj()], profiles(a=rule))
    assert not cluster.decide(make_pod("p").obj()).feasible
    rule.wake()
    assert not rule.in_force


def test_a_wake_of_a_replaced_rule_does_nothing() -> None:
    replaced, stays, heard = made(), made(), list[str]()
    before, now = profiles(a=replaced, b=stays), profiles(a=made(), c=stays)
    put_in_force(before.all, process(heard))
    put_in_force(now.all, process(heard), before.all)
    replaced.wake()
    stays.wake()
    assert (replaced.in_force, stays.in_force) == (False, True)
    assert heard == ["c"]
