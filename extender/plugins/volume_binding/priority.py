"""VolumeBinding: prefers nodes by the utilization of their storage classes, scored by a shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.rules import PerNode, RowScorer, Scorer, Scores
from extender.framework.shape import MAX_POINT_SCORE, MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.model.quantity import units
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows
from extender.volumes.accessibility import NONE
from extender.volumes.claims import NAME, PodVolumeClaims, pod_volume_claims
from extender.volumes.pod_volumes import DynamicProvision, PodVolumes, StaticBinding

LEAST_USED = (ShapePoint(0, MAX_POINT_SCORE), ShapePoint(MAX_UTILIZATION, 0))


@dataclass(frozen=True, slots=True)
class VolumeBindingScore(PerNode):
    """Upstream volumebinding.VolumeBinding, Score, with StorageCapacityScoring (KEP-4049). `shape`: the argument."""

    shape: Sequence[ShapePoint] = LEAST_USED
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        if not table.features.storage_capacity_scoring:
            return None
        claims = pod_volume_claims(pod, table)
        if not isinstance(claims, PodVolumeClaims) or not claims.delayed:
            return None
        by_utilization = score_by_utilization(self.shape)

        def score(rows: Rows) -> Scores:
            total, classes = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
            for usage in _usage_by_class(PodVolumes(claims, table, rows)).values():
                total += np.where(usage.counts, by_utilization[_utilization(usage)], 0)
                classes += usage.counts
            # Halves are rounded up, as math.Round does; whole numbers keep that exact.
            averages: Scores = (2 * total + classes) // np.maximum(2 * classes, 1)
            return averages

        return RowScorer(score)


def _utilization(usage: ClassUsage) -> Scores:
    """The share of the class that would be used, in whole percent: int64[n]."""
    overfull = (usage.capacity == 0) | (usage.requested > usage.capacity)
    share = usage.requested * MAX_UTILIZATION // np.where(overfull, 1, usage.capacity)
    return np.where(overfull, MAX_UTILIZATION, share)


class ClassUsage:
    """Bytes requested of a storage class and its capacity: int64[n]. `counts`: the nodes where it counts: bool[n]."""

    def __init__(self, rows: int) -> None:
        self.requested: Scores = np.zeros(rows, np.int64)
        self.capacity: Scores = np.zeros(rows, np.int64)
        self.counts: BoolColumn = np.zeros(rows, np.bool_)

    def bind(self, binding: StaticBinding) -> None:
        """Adds the claim, and the volume it is bound to."""
        here = binding.picked != NONE
        self.counts |= here
        self.requested += np.where(here, units(binding.claim.requested_storage), 0)
        self.capacity += binding.bytes

    def provision(self, provision: DynamicProvision, here: BoolColumn, left: Scores) -> None:
        """Adds the claim. All claims of the class are provisioned from one pool, which is not added up."""
        self.counts |= here
        self.requested += np.where(here, units(provision.claim.requested_storage), 0)
        self.capacity = np.where(here, left, self.capacity)


def _usage_by_class(volumes: PodVolumes) -> Mapping[str, ClassUsage]:
    """By storage class. Where any claim matches a volume only such claims count; elsewhere those with a known pool."""
    usage: defaultdict[str, ClassUsage] = defaultdict(lambda: ClassUsage(len(volumes.rows)))
    found = np.zeros(len(volumes.rows), np.bool_)
    for binding in volumes.static_bindings:
        usage[binding.claim.class_name].bind(binding)
        found |= binding.picked != NONE
    for provision in volumes.dynamic_provisions:
        if provision.bytes_left is not None:
            here = provision.needed & ~found
            usage[provision.claim.class_name].provision(provision, here, provision.bytes_left)
    return usage
