"""NodeResourcesBalancedAllocation: nodes whose resources the pod would use up evenly are preferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, Allocation, ResourceWeights, allocation
from extender.plugins.node_resources.cached_scores import cached_scores, may_be_devices
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, RowIndex, Rows

NAME = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2
Fractions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation(PerNode):
    """Upstream noderesources.BalancedAllocation. A pod that asks for none of the resources is not scored."""

    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        wanted = {resource.name: pod.requests.get(resource.name, 0) for resource in self.resources}
        return _Scorer(self.resources, wanted, table) if any(wanted.values()) else None


class _Scorer(Scorer):
    sees_pods = True

    def __init__(self, resources: ResourceWeights, wanted: Mapping[str, int], table: Table) -> None:
        self._resources, self._wanted, self._table = resources, wanted, table
        self.sees_resources_only = not may_be_devices(resources)

    def map(self, rows: Rows) -> Scores:
        return cached_scores(NAME, self._resources, self._wanted, self._table, rows, self._work_out)

    def _work_out(self, rows: RowIndex) -> Scores:
        found = allocation(self._resources, self._wanted, self._table, rows, nonzero=False)
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
