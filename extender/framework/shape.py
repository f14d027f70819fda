"""Scores by utilization, as a broken line through points of the configuration.

Source: upstream plugins/helper BuildBrokenLinearFunction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from extender.framework.rules import MAX_SCORE, Scores

# Points are given on a scale of 0..10 (upstream MaxCustomPriorityScore).
MAX_POINT_SCORE = 10
MAX_UTILIZATION = 100


class ShapePoint(NamedTuple):
    """A point of the line: `utilization` 0..100 in percent, `score` 0..10."""

    utilization: int
    score: int


def score_by_utilization(shape: Sequence[ShapePoint]) -> Scores:
    """The score at each whole percent: int64[101], 0..100. Before the first point and after the last it is level."""
    points = [ShapePoint(point.utilization, point.score * MAX_SCORE // MAX_POINT_SCORE) for point in shape]
    table = np.full(MAX_UTILIZATION + 1, points[-1].score, np.int64)
    table[: points[0].utilization + 1] = points[0].score
    for left, right in pairwise(points):
        table[left.utilization + 1 : right.utilization + 1] = list(_between(left, right))
    return table


def _between(left: ShapePoint, right: ShapePoint) -> Iterator[int]:
    width = right.utilization - left.utilization
    for step in range(1, width + 1):
        rise = (right.score - left.score) * step
        # Go rounds a quotient towards zero, on falling lines too.
        yield left.score + (rise // width if rise >= 0 else -(-rise // width))
