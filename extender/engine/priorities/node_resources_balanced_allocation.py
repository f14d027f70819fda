"""NodeResourcesBalancedAllocation: nodes whose resources the pod would use up evenly are preferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.engine.allocation import CPU_AND_MEMORY, Allocation, ResourceWeight, allocations
from extender.engine.rules import MAX_SCORE, Scorer, Scores
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """Upstream noderesources.BalancedAllocation. A pod that asks for none of the resources is not scored."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        wanted = {resource.name: pod.requests.get(resource.name, 0) for resource in self.resources}
        return _Scorer(self.resources, wanted, table) if any(wanted.values()) else None


class _Scorer(Scorer):
    def __init__(self, resources: Sequence[ResourceWeight], wanted: Mapping[str, int], table: Table) -> None:
        self._resources, self._wanted, self._table = resources, wanted, table

    def map(self, rows: Rows) -> Scores:
        found = allocations(self._resources, self._wanted, self._table, rows, nonzero=False)
        with_pod = _balance(found, [allocation.requested for allocation in found], len(rows))
        without_pod = _balance(found, [allocation.allocated for allocation in found], len(rows))
        # Go rounds a quotient towards zero; the sum is never negative, so rounding down is the same.
        scores: Scores = _HALF + (_HALF + with_pod - without_pod) // 2
        return scores


def _balance(found: Sequence[Allocation], used: Sequence[Scores], rows: int) -> Scores:
    """100 where all resources are used to the same fraction, less the further the fractions lie apart: int64[rows]."""
    fractions = [
        np.where(allocation.offered, np.minimum(amount / np.where(allocation.offered, allocation.allocatable, 1), 1), 0)
        for allocation, amount in zip(found, used, strict=True)
    ]
    offered = [allocation.offered for allocation in found]
    count = sum((mask.astype(np.int64) for mask in offered), np.zeros(rows, np.int64))
    deviation = _deviation(fractions, offered, count)
    scores: Scores = ((1 - deviation) * MAX_SCORE).astype(np.int64)
    return scores


def _deviation(
    fractions: Sequence[NDArray[np.float64]], offered: Sequence[NDArray[np.bool_]], count: Scores
) -> NDArray[np.float64]:
    """The standard deviation of the fractions that count, 0 for fewer than two."""
    if len(fractions) < 2:
        return np.zeros(len(count))
    if len(fractions) == 2:
        apart = np.abs((fractions[0] - fractions[1]) / 2)
        return np.where(count == 2, apart, 0.0)
    among = np.maximum(count, 1)
    mean = sum(fractions, np.zeros(len(count))) / among
    squares = np.zeros(len(count))
    for fraction, mask in zip(fractions, offered, strict=True):
        squares += np.where(mask, (fraction - mean) * (fraction - mean), 0.0)
    spread = np.sqrt(squares / among)
    # Two fractions are compared directly, as upstream does: the general formula may differ in the last bit.
    return np.where(count == 2, _two_apart(fractions, offered), np.where(count > 2, spread, 0.0))


def _two_apart(fractions: Sequence[NDArray[np.float64]], offered: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    stacked = np.where(np.stack(offered), np.stack(fractions), np.nan)
    apart: NDArray[np.float64] = np.abs((np.nanmax(stacked, axis=0) - np.nanmin(stacked, axis=0)) / 2)
    return apart
