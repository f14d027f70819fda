"""The priorities over resources: NodeResourcesFit by its scoring strategy, NodeResourcesBalancedAllocation.

A strategy gives 0..100 by row: int64[rows], from the resources' allocation there. A resource does not count on a node
that offers none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.framework.schema import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.plugins.node_resources.allocation import (
    CPU_AND_MEMORY,
    Allocation,
    ResourceWeights,
    allocation,
    cached_scores,
    may_be_devices,
)
from extender.plugins.node_resources.fit import NAME
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, RowIndex, Rows
from extender.table.nodes.distinct_resources import ResourceColumns

Strategy = Callable[[Allocation], Scores]
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2
Fractions = NDArray[np.float64]


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
        return _AllocationScorer(self.strategy, self.resources, pod.requests_with_defaults, table, nonzero=True)


class _AllocationScorer(Scorer):
    """Scores by what is allocated: with defaults for pods that ask for nothing, if `nonzero`."""

    sees_pods = True

    def __init__(
        self, strategy: Strategy, resources: ResourceWeights, wanted: Mapping[str, int], table: Table, *, nonzero: bool
    ) -> None:
        self._strategy, self._resources, self._wanted, self._table = strategy, resources, wanted, table
        self._nonzero, self.sees_resources_only = nonzero, not may_be_devices(resources)

    def map(self, rows: Rows) -> Scores:
        return cached_scores(self._strategy, self._resources, self._wanted, self._table, rows, self._work_out)

    def _work_out(self, columns: ResourceColumns, at: RowIndex) -> Scores:
        wanted, table = self._wanted, self._table
        return self._strategy(allocation(self._resources, wanted, table, columns, at, nonzero=self._nonzero))


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation(PerNode):
    """Upstream noderesources.BalancedAllocation. A pod that asks for none of the resources is not scored."""

    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = BALANCED_ALLOCATION

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        requests = dict(pod.footprint.requests)  # what the status tells counts too, which NodeResourcesFit leaves out
        wanted = {resource.name: requests.get(resource.name, 0) for resource in self.resources}
        if not any(wanted.values()):
            return None
        return _AllocationScorer(_balanced, self.resources, wanted, table, nonzero=False)


def _balanced(found: Allocation) -> Scores:
    divisors = found.divisors.astype(np.float64)
    scores = _balance(found.requested / divisors, found)
    scores -= _balance(found.allocated / divisors, found)
    # Go rounds a quotient towards zero; the sum is never negative, so rounding down is the same.
    return _HALF + (_HALF + scores) // 2


def _balance(fractions: Fractions, found: Allocation) -> Scores:
    """100 where all resources are used to the same fraction, less the further these lie apart: int64[row].

    `fractions` float64[resource, row], which are used up here; those of resources that a row does not offer do not
    count.
    """
    np.minimum(fractions, 1, out=fractions)
    if found.all_offered and len(found.weights) == 2:
        deviation = fractions[0]
        deviation -= fractions[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
    else:
        deviation = _deviation(fractions, found.offered)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    scores: Scores = deviation.astype(np.int64)
    return scores


def _deviation(fractions: Fractions, offered: BoolColumn) -> Fractions:
    """The standard deviation of the fractions that count, 0 for fewer than two: float64[row]."""
    count = np.count_nonzero(offered, axis=0)
    if len(fractions) < 2:
        return np.zeros(len(count))
    among = np.maximum(count, 1)
    counted = np.where(offered, fractions, 0.0)
    mean = counted.sum(axis=0) / among
    squares = np.where(offered, (counted - mean) * (counted - mean), 0.0).sum(axis=0)
    spread = np.sqrt(squares / among)
    # Two fractions are compared directly, as upstream does: the general formula may differ in the last bit.
    return np.where(count == 2, _two_apart(fractions, offered), np.where(count > 2, spread, 0.0))


def _two_apart(fractions: Fractions, offered: BoolColumn) -> Fractions:
    most = np.where(offered, fractions, -np.inf).max(axis=0)
    least = np.where(offered, fractions, np.inf).min(axis=0)
    apart: Fractions = np.abs((most - least) / 2)
    return apart
