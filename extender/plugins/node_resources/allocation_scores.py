"""Scores nodes by their resources: NodeResourcesFit with its scoring strategy, NodeResourcesBalancedAllocation.

A strategy turns an allocation into scores of 0..100: int64[column]. A resource does not count on a node that offers
none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.framework.policy_fields import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.plugins.node_resources.allocation import (
    CPU_AND_MEMORY,
    Allocation,
    ResourceWeights,
    allocation_of,
    cached_scores,
    may_be_devices,
)
from extender.plugins.node_resources.fit import NAME
from extender.table import PodInfo, Table
from extender.table.distinct_resources import ResourceColumns
from extender.table.labels import BoolColumn, RowIndex, Rows

Strategy = Callable[[Allocation], Scores]
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2
Fractions = NDArray[np.float64]


def least_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that stays free, 0..100: int64[column] (upstream leastResourceScorer)."""
    free = _percentages(allocation.allocatable - allocation.requested, allocation)
    return _average(allocation, np.maximum(free, 0, out=free))


def most_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that is in use, 0..100: int64[column] (upstream mostResourceScorer)."""
    in_use = np.minimum(allocation.requested, allocation.allocatable)
    return _average(allocation, _percentages(in_use, allocation))


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """Maps the share of resources in use to a score along a line (upstream requestedToCapacityRatioScorer)."""

    shape: tuple[ShapePoint, ...]

    def __call__(self, allocation: Allocation) -> Scores:
        utilization = _percentages(np.minimum(allocation.requested, allocation.allocatable), allocation)
        utilization[allocation.requested > allocation.allocatable] = MAX_UTILIZATION
        scores = score_by_utilization(self.shape)[utilization]
        counts = allocation.offered & (scores > 0)
        total = (scores * allocation.weights * counts).sum(axis=0)
        weights = (allocation.weights * counts).sum(axis=0)
        # Rounds halves up like Go's math.Round, but with exact integers.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _percentages(amounts: Scores, allocation: Allocation) -> Scores:
    """Returns `amounts` in percent of what the nodes offer; overwrites `amounts`."""
    if allocation.products_overflow:
        exact: Scores = (amounts.astype(object) * MAX_SCORE // allocation.divisors).astype(np.int64)
        return exact
    amounts *= MAX_SCORE
    amounts //= allocation.divisors
    return amounts


def _average(allocation: Allocation, scores: Scores) -> Scores:
    """Returns the weighted mean of the scores of the resources that each node offers; 0 if it offers none."""
    weights = allocation.weights if allocation.all_offered else allocation.weights * allocation.offered
    averages: Scores = (scores * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)
    return averages


@dataclass(frozen=True, slots=True)
class NodeResourcesFitScore(PerNode):
    """Prefers emptier nodes, fuller nodes, or nodes near a given utilization, depending on `strategy`."""

    strategy: Strategy = least_allocated
    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        has_pod_level = table.features.behaviours.pod_level_requests_in_score
        requests = pod.requests_with_defaults if has_pod_level else pod.container_requests_with_defaults
        return _AllocationScorer(self.strategy, self.resources, requests, table, nonzero=True)


class _AllocationScorer(Scorer):
    """Scores nodes by a strategy. If `nonzero` is True, default requests are assumed for pods that request nothing."""

    sees_pods = True

    def __init__(
        self,
        strategy: Strategy,
        resources: ResourceWeights,
        requests: Mapping[str, int],
        table: Table,
        *,
        nonzero: bool,
    ) -> None:
        self._strategy = strategy
        self._resources = resources
        self._requests = requests
        self._table = table
        self._nonzero = nonzero
        self.sees_resources_only = not may_be_devices(resources)

    def map(self, rows: Rows) -> Scores:
        return cached_scores(self._strategy, self._resources, self._requests, self._table, rows, self._compute)

    def _compute(self, columns: ResourceColumns, index: RowIndex) -> Scores:
        return self._strategy(
            allocation_of(self._resources, self._requests, self._table, columns, index, nonzero=self._nonzero)
        )


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation(PerNode):
    """Prefers nodes that use the resources evenly (upstream BalancedAllocation). Skips pods without requests."""

    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = BALANCED_ALLOCATION

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        # Unlike NodeResourcesFit, scores count the resized requests in the pod's status.
        footprint = dict(pod.footprint.requests)
        requests = {resource.name: footprint.get(resource.name, 0) for resource in self.resources}
        if not any(requests.values()):
            return None
        return _AllocationScorer(_balanced, self.resources, requests, table, nonzero=False)


def _balanced(allocation: Allocation) -> Scores:
    divisors = allocation.divisors.astype(np.float64)
    scores = _balance(allocation.requested / divisors, allocation)
    scores -= _balance(allocation.allocated / divisors, allocation)
    # Go rounds towards zero; the sum is never negative, so rounding down is the same.
    return _HALF + (_HALF + scores) // 2


def _balance(fractions: Fractions, allocation: Allocation) -> Scores:
    """Returns 100 if all resources are used to the same fraction, and less if the fractions differ: int64[column].

    Resources that a node does not offer do not count. `fractions`, float64[resource, column], is overwritten.
    """
    np.minimum(fractions, 1, out=fractions)
    if allocation.all_offered and len(allocation.weights) == 2:
        deviation = fractions[0]
        deviation -= fractions[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
    else:
        deviation = _deviation(fractions, allocation.offered)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    scores: Scores = deviation.astype(np.int64)
    return scores


def _deviation(fractions: Fractions, offered: BoolColumn) -> Fractions:
    """Returns the standard deviation of the used fractions of offered resources: float64[column].

    It is 0 for a node that offers fewer than two of the resources.
    """
    count = np.count_nonzero(offered, axis=0)
    if len(fractions) < 2:
        return np.zeros(len(count))
    divisor = np.maximum(count, 1)
    counted = np.where(offered, fractions, 0.0)
    mean = counted.sum(axis=0) / divisor
    squares = np.where(offered, (counted - mean) * (counted - mean), 0.0).sum(axis=0)
    deviation = np.sqrt(squares / divisor)
    # Two fractions are compared directly, as upstream does, because the general formula may differ in the last bit.
    return np.where(count == 2, _half_difference(fractions, offered), np.where(count > 2, deviation, 0.0))


def _half_difference(fractions: Fractions, offered: BoolColumn) -> Fractions:
    most = np.where(offered, fractions, -np.inf).max(axis=0)
    least = np.where(offered, fractions, np.inf).min(axis=0)
    half: Fractions = np.abs((most - least) / 2)
    return half
