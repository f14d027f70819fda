"""How good a node's fill is: upstream's scoringStrategy types for NodeResourcesFit.

A strategy gives 0..100 by row: int64[rows], from the resources' allocation there. A resource does not count on a node
that offers none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, Scores
from extender.framework.shape import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.plugins.node_resources.allocation import Allocation

Strategy = Callable[[Allocation], Scores]


def least_allocated(found: Allocation) -> Scores:
    """The share that stays free (upstream leastResourceScorer)."""
    free = (found.allocatable - found.requested) * MAX_SCORE // found.divisors
    return _average(found, np.maximum(free, 0))


def most_allocated(found: Allocation) -> Scores:
    """The share that is taken (upstream mostResourceScorer)."""
    return _average(found, np.minimum(found.requested, found.allocatable) * MAX_SCORE // found.divisors)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """The score that a broken line gives to the share that is taken (upstream requestedToCapacityRatioScorer)."""

    shape: tuple[ShapePoint, ...]

    def __call__(self, found: Allocation) -> Scores:
        taken = found.requested * MAX_UTILIZATION // found.divisors
        taken[found.requested > found.allocatable] = MAX_UTILIZATION
        scores = score_by_utilization(self.shape)[taken]
        counts = found.offered & (scores > 0)
        total = (scores * found.weights * counts).sum(axis=0)
        weights = (found.weights * counts).sum(axis=0)
        # Halves are rounded up, as math.Round does; whole numbers keep that exact.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _average(found: Allocation, scores: Scores) -> Scores:
    """The weighted mean over the resources that each row offers; 0 where it offers none."""
    weights = found.weights if found.all_offered else found.weights * found.offered
    averages: Scores = (scores * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)
    return averages
