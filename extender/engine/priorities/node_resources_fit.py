"""NodeResourcesFit: nodes with more left over are preferred, or fuller ones, or those nearest to a wanted fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from extender.engine.allocation import CPU_AND_MEMORY, ResourceWeight, allocations
from extender.engine.rules import MAX_SCORE, Scorer, Scores
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeResourcesFit"


class Strategy(Protocol):
    """How good a fill of one resource is: 0..100 by row, from what is requested and what there is (never 0)."""

    def __call__(self, requested: Scores, allocatable: Scores) -> Scores: ...


def least_allocated(requested: Scores, allocatable: Scores) -> Scores:
    """The share that stays free."""
    scores: Scores = (allocatable - requested) * MAX_SCORE // allocatable
    return np.where(requested > allocatable, 0, scores)


def most_allocated(requested: Scores, allocatable: Scores) -> Scores:
    """The share that is taken."""
    return np.minimum(requested, allocatable) * MAX_SCORE // allocatable


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Upstream noderesources.Fit, Score, with its argument scoringStrategy."""

    strategy: Strategy = least_allocated
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return _Scorer(self.strategy, self.resources, pod, table)


class _Scorer(Scorer):
    def __init__(self, strategy: Strategy, resources: Sequence[ResourceWeight], pod: PodInfo, table: Table) -> None:
        self._strategy, self._resources, self._table = strategy, resources, table
        self._wanted = pod.requests_with_defaults

    def map(self, rows: Rows) -> Scores:
        total = np.zeros(len(rows), np.int64)
        weights = np.zeros(len(rows), np.int64)
        for found in allocations(self._resources, self._wanted, self._table, rows, nonzero=True):
            scores = self._strategy(found.requested, np.where(found.offered, found.allocatable, 1))
            total += np.where(found.offered, scores * found.weight, 0)
            weights += np.where(found.offered, found.weight, 0)
        averages: Scores = total // np.maximum(weights, 1)
        return averages
