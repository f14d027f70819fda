"""Scores by utilization: exact at the points, linear between them, level outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework.policy_fields import ShapePoint, score_by_utilization


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        pytest.param([(0, 0), (100, 10)], {0: 0, 1: 1, 50: 50, 99: 99, 100: 100}, id="rising"),
        pytest.param([(0, 10), (100, 0)], {0: 100, 1: 99, 100: 0}, id="falling"),
        pytest.param([(20, 4), (60, 8)], {0: 40, 20: 40, 40: 60, 60: 80, 100: 80}, id="level outside"),
        pytest.param([(50, 7)], {0: 70, 50: 70, 100: 70}, id="one point"),
        # 100 + (70 - 100) * 1 / 8 is 100 - 3.75, and Go cuts the fraction off, not down to the next whole number
        pytest.param([(0, 10), (8, 7)], {1: 97, 2: 93, 8: 70}, id="fractions are cut towards zero"),
        pytest.param([(0, 7), (8, 10)], {1: 73, 2: 77, 8: 100}, id="fractions are cut towards zero, rising"),
    ],
)
def test_scores_of_named_shapes(points: list[tuple[int, int]], expected: dict[int, int]) -> None:
    scores = score_by_utilization([ShapePoint(*point) for point in points])
    assert {at: int(scores[at]) for at in expected} == expected


shapes = st.dictionaries(st.integers(0, 100), st.integers(0, 10), min_size=1, max_size=6).map(
    lambda points: [ShapePoint(*point) for point in sorted(points.items())]
)


@given(shapes)
def test_a_shape_passes_through_its_points_and_stays_between_them(shape: list[ShapePoint]) -> None:
    scores = score_by_utilization(shape)
    assert [int(scores[point.utilization]) for point in shape] == [10 * point.score for point in shape]
    assert scores.min() == 10 * min(point.score for point in shape)
    assert scores.max() == 10 * max(point.score for point in shape)
