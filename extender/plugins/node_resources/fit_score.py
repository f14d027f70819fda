"""NodeResourcesFit, Score: how good a node's fill is, by one of upstream's scoringStrategy types.

A strategy gives 0..100 by row: int64[rows], from the resources' allocation there. A resource does not count on a node
that offers none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.framework.schema import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, Allocation, ResourceWeights, allocation
from extender.plugins.node_resources.cached_scores import cached_scores, may_be_devices
from extender.plugins.node_resources.fit import NAME
from extender.table import PodInfo, Table
from extender.table.labels import RowIndex, Rows

Strategy = Callable[[Allocation], Scores]


def least_allocated(found: Allocation) -> Scores:
    """Returns the share that stays free (upstream leastResourceScorer)."""
    free = found.allocatable - found.requested
    free *= MAX_SCORE
    free //= found.divisors
    return _average(found, np.maximum(free, 0, out=free))


def most_allocated(found: Allocation) -> Scores:
    """Returns the share that is taken (upstream mostResourceScorer)."""
    return _average(found, np.minimum(found.requested, found.allocatable) * MAX_SCORE // found.divisors)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """Gives the share that is taken the score of a broken line (upstream requestedToCapacityRatioScorer)."""

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
    """Returns the weighted mean over the resources that each row offers; 0 where it offers none."""
    weights = found.weights if found.all_offered else found.weights * found.offered
    averages: Scores = (scores * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)
    return averages


@dataclass(frozen=True, slots=True)
class NodeResourcesFitScore(PerNode):
    """Prefers nodes with more left over, or fuller ones, or those nearest to a wanted fill, by its strategy."""

    strategy: Strategy = least_allocated
    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return _Scorer(self.strategy, self.resources, pod, table)


class _Scorer(Scorer):
    sees_pods = True

    def __init__(self, strategy: Strategy, resources: ResourceWeights, pod: PodInfo, table: Table) -> None:
        self._strategy, self._resources, self._table = strategy, resources, table
        self.sees_resources_only = not may_be_devices(resources)
        self._wanted = pod.requests_with_defaults

    def map(self, rows: Rows) -> Scores:
        return cached_scores(self._strategy, self._resources, self._wanted, self._table, rows, self._work_out)

    def _work_out(self, rows: RowIndex) -> Scores:
        return self._strategy(allocation(self._resources, self._wanted, self._table, rows, nonzero=True))
