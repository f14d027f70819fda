"""With `onRuleFailure: ignore`, a rule of any kind that fails counts as having accepted the pod."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from math import inf
from threading import Event
from typing import Any, cast

import numpy as np
import pytest

from extender import (
    device_priority,
    permit,
    post_filter,
    pre_bind,
    pre_enqueue,
    predicate,
    priority,
    queue_sort,
    reserve,
)
from extender.errors import RuleUnanswered
from extender.framework.rules import NO_REFUSAL, Proposal
from extender.plugins.users.rule_calls import ENDED_AFTER_SECONDS, LiveHost, collect_left_out
from extender.runtime.clock import Deadline, ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.table import Table
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users.test_hanging import KINDS, SECONDS

P = pod_info(make_pod("p").obj())
ACCEPTED: dict[Any, object] = {
    predicate: NO_REFUSAL,
    device_priority: [0],
    post_filter: Proposal(),
    reserve: 0.0,
    permit: 0.0,
    queue_sort: (inf,),
}
"""What each kind of rule answers if it fails; None for the others."""


def host(clock: ManualClock) -> LiveHost:
    def nothing(*_: object) -> None:
        pass

    return LiveHost(
        Telemetry(), clock, TimeLimit(clock, SECONDS), nothing, nothing, lambda *_: nullcontext(), ignores_failures=True
    )


def rule_of(kind: Any, body: Callable[[], object], clock: ManualClock) -> Any:
    def of_pod(pod: object) -> object:
        return body()

    def of_pod_and_node(pod: object, node: object) -> object:
        return body()

    return kind(of_pod if kind in (pre_enqueue, queue_sort) else of_pod_and_node).rule("mine", {}, host(clock))


def run(kind: Any, rule: Any, table: Table) -> Any:
    with table.until(Deadline(ManualClock(), SECONDS)):
        answer = KINDS[kind](rule, table)
    return list(cast("Iterable[object]", answer)) or NO_REFUSAL if kind is predicate else answer


@pytest.fixture
def end() -> Iterator[Event]:
    end = Event()
    yield end
    end.set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_rule_that_raises_accepts_the_pod(kind: Any) -> None:
    rule, table = rule_of(kind, lambda: 1 / 0, ManualClock()), table_of(make_node("n").obj())
    left_out: dict[str, str] = {}
    collect_left_out(left_out)
    assert run(kind, rule, table) == ACCEPTED.get(kind)
    assert re.fullmatch(r"test_ignored\.py:\d+: ZeroDivisionError: division by zero", left_out["mine"])


def test_the_nodes_for_which_a_predicate_does_not_raise_are_still_judged() -> None:
    def odd(pod: object, node: Any) -> str:
        return f"node(s) had {node.labels['i']}"

    table = table_of(make_node("n0").obj(), make_node("n1").label(i="1").obj())
    check: Any = predicate(odd).rule("mine", {}, host(ManualClock())).prepare(P, table)
    [(mask, refusal)] = check.refuse(table.nodes.rows)
    assert (mask.tolist(), refusal.reasons) == ([False, True], ("node(s) had 1",))


def test_a_predicate_of_columns_that_raises_accepts_every_node() -> None:
    def wrong(pod: object, table: Table, rows: Any) -> object:
        return np.ones(len(rows))

    table = table_of(make_node("n").obj())
    check: Any = predicate(wrong).rule("mine", {}, host(ManualClock())).prepare(P, table)
    assert [*check.refuse(table.nodes.rows)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_rule_that_does_not_answer_is_not_called_until_it_has_returned_and_some_time_later(
    kind: Any, end: Event
) -> None:
    clock, calls = ManualClock(), list[int]()

    def hang() -> object:
        calls.append(1)
        return end.wait(600) and 1 / 0

    rule, table = rule_of(kind, hang, clock), table_of(make_node("n").obj())
    with suppress(RuleUnanswered):
        run(kind, rule, table)
    left_out = dict[str, str]()
    collect_left_out(left_out)
    assert run(kind, rule, table) == ACCEPTED.get(kind)
    assert left_out == {"mine": "it did not answer in time a short while ago"}
    clock.advance(ENDED_AFTER_SECONDS)
    assert (run(kind, rule, table), len(calls)) == (ACCEPTED.get(kind), 1)
    end.set()
    left_out = dict[str, str]()
    collect_left_out(left_out)
    while len(calls) == 1:  # the late call returns in a thread of its own
        assert run(kind, rule, table) == ACCEPTED.get(kind)
    assert left_out["mine"]


@pytest.mark.parametrize("kind", [predicate, priority, post_filter], ids=lambda kind: kind.__name__)
def test_a_decision_ends_if_a_rule_may_still_read_its_table(kind: Any, end: Event) -> None:
    rule, table = rule_of(kind, lambda: end.wait(600), ManualClock()), table_of(make_node("n").obj())
    with pytest.raises(RuleUnanswered) as caught:
        run(kind, rule, table)
    assert caught.value.is_left_out


def test_a_predicate_that_is_late_between_two_nodes_accepts_all(end: Event) -> None:
    clock = ManualClock()

    def slow(pod: object, node: object) -> str:
        clock.advance(1)
        return "full"

    table = table_of(make_node("n0").obj(), make_node("n1").obj())
    with table.until(Deadline(clock, SECONDS)):
        check: Any = predicate(slow).rule("mine", {}, host(clock)).prepare(P, table)
        assert [*check.refuse(table.nodes.rows)] == []


def test_pre_bind_goes_on_without_a_rule_that_does_not_answer(end: Event) -> None:
    rule, table = rule_of(pre_bind, lambda: end.wait(600), ManualClock()), table_of(make_node("n").obj())
    assert run(pre_bind, rule, table) is None
