"""VolumeBinding: the pod's volumes must be accessible from the node, or be bindable there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, PerNode, RowCheck, Verdict
from extender.framework.status import Refusal, failed, unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn
from extender.volumes.claims import NAME, PodVolumeClaims, pod_volume_claims
from extender.volumes.pod_volumes import PodVolumes

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


@dataclass(frozen=True, slots=True)
class VolumeBindingFilter(PerNode):
    """Upstream volumebinding.VolumeBinding, Filter; how long a pod waits for its volumes matters only to who binds."""

    bind_timeout_seconds: float = 600
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        claims = pod_volume_claims(pod, table)
        if not isinstance(claims, PodVolumeClaims):
            return claims
        return RowCheck(lambda rows: verdict(PodVolumes(claims, table, rows)))


def verdict(volumes: PodVolumes) -> Verdict:
    """One refusal for each combination of conflicts; errors come first."""
    refused: list[tuple[BoolColumn, Refusal]] = []
    no_error = np.ones(len(volumes.rows), np.bool_)
    for mask, message in volumes.errors:
        refused.append((mask & no_error, failed(NAME, f'running "{NAME}" filter plugin: {message}')))
        no_error &= ~mask
    causes = {
        NODE_CONFLICT: volumes.node_conflict,
        BIND_CONFLICT: volumes.bind_conflict,
        NOT_ENOUGH_SPACE: volumes.not_enough_space,
        VOLUME_MISSING: volumes.volume_missing,
    }
    combination = np.zeros(len(volumes.rows), np.int64)
    for bit, mask in enumerate(causes.values()):
        combination |= (mask & no_error).astype(np.int64) << bit
    for code in np.unique(combination[combination > 0]):
        reasons = [reason for bit, reason in enumerate(causes) if code >> bit & 1]
        refused.append((combination == code, unresolvable(NAME, *reasons)))
    return refused
