"""A rule of any kind that hangs is left when its time is over, and reported once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event
from typing import Any

import numpy as np
import pytest

from extender import (
    device_priority,
    permit,
    post_bind,
    post_filter,
    pre_bind,
    pre_enqueue,
    predicate,
    priority,
    queue_sort,
    reserve,
)
from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.errors import BindingFailed, RuleUnanswered
from extender.framework.permit import NO_PERMITS
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import Deadline, ManualClock
from extender.table import Table
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users.failures import Remembered

P = pod_info(make_pod("p").obj())
NODES = DeviceNodes.empty(*np.zeros((4, 1), np.int64))
SECONDS = 0.1


class Host(Remembered):
    """Limits the calls that belong to no decision."""

    def begin(self) -> Deadline:
        return Deadline(ManualClock(), SECONDS)


@pytest.fixture
def end() -> Iterator[Event]:
    end = Event()
    yield end
    end.set()


def _node(table: Table) -> Node:
    return table.nodes.node(0)


Run = Callable[[Any, Table], object]
KINDS: dict[Any, Run] = {
    predicate: lambda rule, table: rule.prepare(P, table).refuse(table.nodes.rows),
    priority: lambda rule, table: rule.prepare(P, table, table.nodes.rows),
    device_priority: lambda rule, table: rule.on(table).score(NODES, DeviceAsk()).tolist(),
    post_filter: lambda rule, table: rule.propose(P, {"n": "full"}, table),
    reserve: lambda rule, table: rule.run(P.pod, _node(table), NO_PERMITS, table.deadline),
    permit: lambda rule, table: rule.run(P.pod, _node(table), NO_PERMITS, table.deadline),
    pre_bind: lambda rule, table: rule.run(P.pod, _node(table), NO_PERMITS),
    post_bind: lambda rule, table: rule.run(P.pod, _node(table), NO_PERMITS),
    pre_enqueue: lambda rule, _: rule.refuse(P),
    queue_sort: lambda rule, _: rule.key(P),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_is_reported_once(kind: Any, end: Event) -> None:
    def of_pod(pod: Pod) -> None:
        end.wait(600)

    def of_pod_and_node(pod: Pod, node: object) -> None:
        end.wait(600)

    host, table = Host(), table_of(make_node("n").obj())
    rule = kind(of_pod if kind in (pre_enqueue, queue_sort) else of_pod_and_node).rule("slow", {}, host)
    with table.until(host.begin()), suppress(RuleUnanswered, BindingFailed):
        KINDS[kind](rule, table)
    assert host.recorded == [("slow", "RuleUnanswered")]


def test_it_is_not_reported_if_others_have_used_most_of_its_time(end: Event) -> None:
    host, clock = Host(), ManualClock()
    rule = reserve(lambda pod, node: end.wait(600)).rule("late", {}, host)
    deadline = Deadline(clock, 1.0)
    clock.advance(0.9)
    with pytest.raises(RuleUnanswered, match=r"no decision within 1 s: late has not answered"):
        rule.run(P.pod, _node(table_of(make_node("n").obj())), NO_PERMITS, deadline)
    assert host.recorded == []


@pytest.mark.parametrize("kind", [predicate, pre_enqueue], ids=lambda kind: kind.__name__)
def test_a_rule_that_was_not_called_because_others_hang_is_not_reported(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.plugins.users.rule_calls.MAX_ABANDONED", 0)
    host, table = Host(), table_of(make_node("n").obj())
    rule = kind((lambda pod: None) if kind is pre_enqueue else (lambda pod, node: None)).rule("good", {}, host)
    with table.until(host.begin()), suppress(RuleUnanswered):
        KINDS[kind](rule, table)
    assert host.recorded == []
