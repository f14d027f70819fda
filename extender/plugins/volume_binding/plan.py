"""The writes to a pod's claims once its node is chosen.

Source: upstream volumeBinder.AssumePodVolumes, BindPodVolumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.status import Refusal
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim
from extender.plugins.volume_binding.predicate import verdict
from extender.table import PodInfo, Table
from extender.volumes.accessibility import NONE
from extender.volumes.claims import PodVolumeClaims, pod_volume_claims
from extender.volumes.pod_volumes import PodVolumes


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The claims to bind, each with its volume, and the claims whose volumes are to be provisioned for the node."""

    bind: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()


def plan_volumes(pod: PodInfo, table: Table, row: int) -> VolumePlan | Refusal:
    """The plan for `pod` on the node at `row`; a Refusal if its claims do not allow it to be there."""
    claims = pod_volume_claims(pod, table)
    if not isinstance(claims, PodVolumeClaims):
        return claims or VolumePlan()
    volumes = PodVolumes(claims, table, np.array([row]))
    for mask, refusal in verdict(volumes):
        if mask[0]:
            return refusal
    return VolumePlan(
        tuple((b.claim, b.volumes[b.picked[0]].volume) for b in volumes.static_bindings if b.picked[0] != NONE),
        tuple(p.claim for p in volumes.dynamic_provisions if p.needed[0]),
    )
