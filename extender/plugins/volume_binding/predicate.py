"""VolumeBinding: the pod's volumes must be within reach of the node, or to be had there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, Verdict
from extender.framework.status import Refusal, failed, unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows
from extender.volumes.claims import NAME, PodClaims, pod_claims
from extender.volumes.placement import Placement

OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
UNBINDABLE = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """Upstream volumebinding.VolumeBinding, Filter; how long a pod waits for its volumes matters only to who binds."""

    bind_timeout_seconds: float = 600
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_claims(pod, table)
        return _Check(claims, table) if isinstance(claims, PodClaims) else claims


class _Check(Check):
    def __init__(self, claims: PodClaims, table: Table) -> None:
        self._claims, self._table = claims, table

    def refuse(self, rows: Rows) -> Verdict:
        return verdict(Placement(self._claims, self._table, rows))


def verdict(placement: Placement) -> Verdict:
    """One refusal for each combination of what is wrong; what could not be told goes before all else."""
    refused: list[tuple[BoolColumn, Refusal]] = []
    told = np.ones(len(placement.rows), np.bool_)
    for mask, message in placement.faults:
        refused.append((mask & told, failed(NAME, f'running "{NAME}" filter plugin: {message}')))
        told &= ~mask
    causes = {
        OUT_OF_REACH: placement.out_of_reach,
        UNBINDABLE: placement.unbindable,
        NO_SPACE: placement.no_space,
        VOLUME_GONE: placement.volume_gone,
    }
    combination = np.zeros(len(placement.rows), np.int64)
    for bit, mask in enumerate(causes.values()):
        combination |= (mask & told).astype(np.int64) << bit
    for code in np.unique(combination[combination > 0]):
        reasons = [reason for bit, reason in enumerate(causes) if code >> bit & 1]
        refused.append((combination == code, unresolvable(NAME, *reasons)))
    return refused
