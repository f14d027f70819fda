"""Hypothetical removals: sums follow the pods that are reprieved and removed again."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.model.selectors import selector_from_labels
from extender.table import HypotheticalRemovals, PodCountQuery, Table
from extender.table.node_columns import CPU, PODS
from extender.table.nominated import AwaitedPods
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

WEB = PodCountQuery(frozenset({"default"}), selector_from_labels({"app": "web"}))
STANDING_WEB = WEB._replace(terminating=False)
NAMES = ["n", "m"]


def pod(number: int) -> dict[str, Any]:
    builder = make_pod(f"p{number}").node(NAMES[number % 2]).req(cpu=str(number))
    builder.label(app="web" if number % 3 else "db")
    return (builder.deleted() if number % 4 == 1 else builder).obj()


TABLE: Table = table_of(*(make_node(name).obj() for name in NAMES), *(pod(number) for number in range(1, 9)))
SLOTS = list(TABLE.pods.slot_of.values())


def expected(slots: set[int], each: dict[int, int]) -> list[int]:
    return [sum(each[slot] for slot in slots if TABLE.pods.row[slot] == row) for row in TABLE.nodes.rows]


@given(st.sets(st.sampled_from(SLOTS), min_size=1), st.data())
def test_sums_equal_those_over_the_removed_pods(first: set[int], data: st.DataObject) -> None:
    gone, away = HypotheticalRemovals(TABLE, np.array(sorted(first))), set(first)
    numbers = {slot: TABLE.pods.info(slot) for slot in SLOTS}
    cpu = {slot: info.requests["cpu"] for slot, info in numbers.items()}
    web = {slot: int(WEB.matches(info.group)) for slot, info in numbers.items()}
    standing_web = {slot: web[slot] * (not numbers[slot].pod.terminating) for slot in SLOTS}
    for _ in range(4):
        rows = TABLE.nodes.rows
        assert gone.slots.tolist() == sorted(away)
        assert gone.freed(CPU)[rows].tolist() == expected(away, cpu)
        assert gone.freed(PODS)[rows].tolist() == expected(away, dict.fromkeys(SLOTS, 1))
        assert gone.matching(WEB)[rows].tolist() == expected(away, web)
        assert gone.matching(STANDING_WEB)[rows].tolist() == expected(away, standing_web)
        some = data.draw(st.sets(st.sampled_from(sorted(first))))
        gone.reprieve(np.array(sorted(some & away), np.intp))
        gone.remove(np.array(sorted(some - away), np.intp))
        away ^= some
    assert gone.initial.tolist() == sorted(first)


def test_what_nominated_pods_will_take_is_not_free() -> None:
    waiting = pod_info(make_pod("w").req(cpu="2").obj())
    row = TABLE.nodes.row_of["n"]
    awaited = AwaitedPods([waiting], np.array([row]), TABLE.nodes.vector(waiting.footprint)[:, np.newaxis])
    gone = HypotheticalRemovals(TABLE, np.array([TABLE.pods.slot_of["pod-default-p4"]]), awaited)
    assert gone.freed(CPU)[row] == 4000 - 2000
    assert gone.freed(PODS)[row] == 0


def test_a_resource_that_no_pod_requests_is_not_freed() -> None:
    table = table_of(make_node("n").allocatable({"example.com/gpu": "1"}).obj(), make_pod("p").node("n").obj())
    gone = HypotheticalRemovals(table, np.array([table.pods.slot_of["pod-default-p"]]))
    assert gone.freed(table.nodes.resources["example.com/gpu"]).sum() == 0
