"""VolumeBinding: nodes whose storage would be used best, by a shape that says what share of it is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Scorer, Scores
from extender.framework.shape import MAX_POINT_SCORE, MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.volumes.claims import NAME, PodClaims, pod_claims
from extender.volumes.class_usage import ClassUsage, usage_by_class
from extender.volumes.placement import Placement

# What is used least is best.
LEAST_USED = (ShapePoint(0, MAX_POINT_SCORE), ShapePoint(MAX_UTILIZATION, 0))


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """Upstream volumebinding.VolumeBinding, Score, with StorageCapacityScoring (KEP-4049). `shape`: the argument."""

    shape: Sequence[ShapePoint] = LEAST_USED
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        claims = pod_claims(pod, table)
        if not isinstance(claims, PodClaims) or not claims.waiting:
            return None
        return _Scorer(claims, table, score_by_utilization(self.shape))


class _Scorer(Scorer):
    def __init__(self, claims: PodClaims, table: Table, by_utilization: Scores) -> None:
        self._claims, self._table, self._by_utilization = claims, table, by_utilization

    def map(self, rows: Rows) -> Scores:
        total, classes = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for usage in usage_by_class(Placement(self._claims, self._table, rows)).values():
            total += np.where(usage.counts, self._by_utilization[_utilization(usage)], 0)
            classes += usage.counts
        # Halves are rounded up, as math.Round does; whole numbers keep that exact.
        averages: Scores = (2 * total + classes) // np.maximum(2 * classes, 1)
        return averages


def _utilization(usage: ClassUsage) -> Scores:
    """The share of the class that would be used, in whole percent: int64[n]."""
    overfull = (usage.capacity == 0) | (usage.requested > usage.capacity)
    share = usage.requested * MAX_UTILIZATION // np.where(overfull, 1, usage.capacity)
    return np.where(overfull, MAX_UTILIZATION, share)
