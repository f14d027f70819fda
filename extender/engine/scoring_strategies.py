"""How good a node's fill is: upstream's scoringStrategy types for NodeResourcesFit.

A strategy gives 0..100 by row: int64[rows], from each resource's allocation there. A resource does not count on a node
that offers none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from extender.engine.allocation import Allocation
from extender.engine.rules import MAX_SCORE, Scores
from extender.engine.shape import MAX_UTILIZATION, ShapePoint, score_by_utilization

Strategy = Callable[[Sequence[Allocation], int], Scores]


def least_allocated(found: Sequence[Allocation], rows: int) -> Scores:
    """The share that stays free (upstream leastResourceScorer)."""
    return _average(found, rows, _free_share)


def most_allocated(found: Sequence[Allocation], rows: int) -> Scores:
    """The share that is taken (upstream mostResourceScorer)."""
    return _average(found, rows, _taken_share)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """The score that a broken line gives to the share that is taken (upstream requestedToCapacityRatioScorer)."""

    shape: tuple[ShapePoint, ...]

    def __call__(self, found: Sequence[Allocation], rows: int) -> Scores:
        by_utilization = score_by_utilization(self.shape)
        total, weights = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for each in found:
            taken = each.requested * MAX_UTILIZATION // _offered(each)
            scores = by_utilization[np.where(each.requested > each.allocatable, MAX_UTILIZATION, taken)]
            counts = each.offered & (scores > 0)
            total += np.where(counts, scores * each.weight, 0)
            weights += np.where(counts, each.weight, 0)
        # Halves are rounded up, as math.Round does; whole numbers keep that exact.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _average(found: Sequence[Allocation], rows: int, share: Callable[[Scores, Scores], Scores]) -> Scores:
    total, weights = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for each in found:
        total += np.where(each.offered, share(each.requested, _offered(each)) * each.weight, 0)
        weights += np.where(each.offered, each.weight, 0)
    averages: Scores = total // np.maximum(weights, 1)
    return averages


def _offered(allocation: Allocation) -> Scores:
    """What there is, 1 in place of nothing: a divisor."""
    return np.where(allocation.offered, allocation.allocatable, 1)


def _free_share(requested: Scores, allocatable: Scores) -> Scores:
    scores: Scores = (allocatable - requested) * MAX_SCORE // allocatable
    return np.where(requested > allocatable, 0, scores)


def _taken_share(requested: Scores, allocatable: Scores) -> Scores:
    return np.minimum(requested, allocatable) * MAX_SCORE // allocatable
