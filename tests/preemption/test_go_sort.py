"""sort.Slice, step for step: what Go made of the same ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.preemption.go_sort import STABLE_UP_TO, slice_order

SORTED_BY_GO = [json.loads(line) for line in Path(__file__).with_name("sorted_by_go.jsonl").read_text().splitlines()]
"""Ranks, and the positions in the order in which go1.26 left them."""


@pytest.mark.parametrize("case", SORTED_BY_GO, ids=lambda case: str(len(case["ranks"])))
def test_equal_ranks_stand_where_go_leaves_them(case: dict[str, list[int]]) -> None:
    assert slice_order(case["ranks"]) == case["positions"]


@given(st.lists(st.integers(0, 20), max_size=300))
def test_it_sorts(ranks: list[int]) -> None:
    order = slice_order(ranks)
    assert sorted(order) == list(range(len(ranks)))
    assert [ranks[position] for position in order] == sorted(ranks)


@given(st.lists(st.integers(0, 3), max_size=STABLE_UP_TO))
def test_short_slices_keep_the_order_of_equals(ranks: list[int]) -> None:
    assert slice_order(ranks) == sorted(range(len(ranks)), key=ranks.__getitem__)
