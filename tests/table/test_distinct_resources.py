"""Each row has the id of its amounts, whatever has happened before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from extender.model.node import Node
from extender.model.pod import Pod
from extender.table import PodInfo, Table, distinct_resources
from extender.table.distinct_resources import ResourceColumns
from extender.table.labels import RowIndex
from extender.table.node_columns import CPU, PODS
from tests.builders import make_node, make_pod

NAMES = [f"n{number}" for number in range(40)]  # more than a table has room for at first
Step = Callable[[Table], None]


def node(name: str, cpu: int, extended: bool) -> Step:
    offer = {"cpu": str(cpu), "pods": "9", **({"example.com/chip": "1"} if extended else {})}
    made = msgspec.convert(make_node(name).capacity(offer).obj(), Node)
    return lambda table: table.set_node(made)


def pod(number: int, name: str, cpu: int) -> Step:
    info = PodInfo(msgspec.convert(make_pod(f"p{number}").req(cpu=str(cpu)).obj(), Pod))
    return lambda table: table.place(info, name)


def gone(number: int) -> Step:
    return lambda table: table.take_away(PodInfo(msgspec.convert(make_pod(f"p{number}").obj(), Pod)).uid)


STEPS = st.one_of(
    st.builds(node, st.sampled_from(NAMES), st.integers(1, 3), st.booleans()),
    st.builds(pod, st.integers(0, 9), st.sampled_from(NAMES), st.integers(1, 3)),
    st.builds(gone, st.integers(0, 9)),
    st.builds(lambda name: lambda table: table.remove_node(name), st.sampled_from(NAMES)),
)


def free(columns: ResourceColumns, at: RowIndex) -> NDArray[np.int64]:
    return columns.allocatable[CPU, at] * 10 - columns.requested[CPU, at] - columns.requested[PODS, at]


@example(rounds=[[], [node("n0", 1, extended=False)]], first=0, most_unused=1, most_followed=1)
@given(
    rounds=st.lists(st.lists(STEPS, max_size=12), min_size=1, max_size=12),
    first=st.sampled_from([0, 1, 8]),
    most_unused=st.integers(1, 3),
    most_followed=st.sampled_from([1, 256]),
)
def test_rows_have_the_amounts_of_their_ids(
    rounds: list[list[Step]], first: int, most_unused: int, most_followed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct_resources, "_MAX_UNUSED", most_unused)
        patch.setattr(distinct_resources, "MOST_FOLLOWED", most_followed)
        table = Table()
        for name in NAMES[:first]:
            node(name, 2, extended=False)(table)
        distinct, nodes = table.distinct_resources, table.nodes
        for steps in rounds:
            for step in steps:
                step(table)
            rows = nodes.rows
            assert distinct.values(free, rows).tolist() == free(nodes, rows).tolist()
            distinct.follow()
            ids = distinct.id_of[rows]
            for mine, theirs in ((distinct.allocatable, nodes.allocatable), (distinct.requested, nodes.requested)):
                assert np.array_equal(mine[:, ids], theirs[:, rows])


def test_a_rule_runs_once_for_nodes_that_are_alike() -> None:
    table, asked = Table(), list[int]()
    for name in NAMES:
        node(name, 1, extended=False)(table)
    pod(0, NAMES[0], 1)(table)

    def counted(columns: ResourceColumns, at: RowIndex) -> NDArray[np.int64]:
        found = free(columns, at)
        asked.append(len(found))
        return found

    assert table.distinct_resources.values(counted, table.nodes.rows).tolist() == [8999] + [10_000] * (len(NAMES) - 1)
    assert asked == [2]


def test_a_rule_about_few_rows_runs_for_these_rows() -> None:
    table = Table()
    for name in NAMES:
        node(name, 1, extended=False)(table)
    seen: list[ResourceColumns] = []

    def noted(columns: ResourceColumns, at: RowIndex) -> NDArray[np.int64]:
        seen.append(columns)
        return free(columns, at)

    assert table.distinct_resources.values(noted, table.nodes.rows[:3]).tolist() == [10_000] * 3
    assert seen == [table.nodes]
