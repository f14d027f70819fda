"""Accessibility.pick equals the obvious loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.volumes.accessibility import NONE, Accessibility, Picked

ROWS = 6


@st.composite
def reaches(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Draws the group of each item and the rows that can access each group."""
    rows = draw(st.lists(st.lists(st.integers(0, ROWS - 1), unique=True), min_size=1, max_size=5))
    return draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)), rows


@given(reaches(), st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=3))
def test_pick(reach: tuple[list[int], list[list[int]]], rounds: list[set[int]]) -> None:
    group, rows = reach
    columns = Accessibility(np.array(group, np.intp), [np.array(each, np.intp) for each in rows])
    taken: list[Picked] = []
    given_out: list[set[int]] = [set() for _ in range(ROWS)]
    for suits in rounds:
        suitable = np.array([item in suits for item in range(len(group))], np.bool_)
        taken.append(columns.pick(suitable, tuple(taken), ROWS))
        for row in range(ROWS):
            left = [i for i, g in enumerate(group) if i in suits and row in rows[g] and i not in given_out[row]]
            assert taken[-1][row] == min(left, default=NONE)
            given_out[row].update(left[:1])
