"""What is to be done about a pod's claims once its node is chosen.

Source: upstream volumeBinder.AssumePodVolumes, BindPodVolumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.status import Refusal
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim
from extender.plugins.volume_binding.predicate import verdict
from extender.table import PodInfo, Table
from extender.volumes.claims import PodClaims, pod_claims
from extender.volumes.placement import Placement
from extender.volumes.reach import NONE


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The claims to bind, each with its volume, and the claims whose volumes are to be made on the node."""

    bind: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()


def plan_volumes(pod: PodInfo, table: Table, row: int) -> VolumePlan | Refusal:
    """What to do for `pod` on the node at `row`; a Refusal if its claims do not allow it to be there."""
    claims = pod_claims(pod, table)
    if not isinstance(claims, PodClaims):
        return claims or VolumePlan()
    placement = Placement(claims, table, np.array([row]))
    for mask, refusal in verdict(placement):
        if mask[0]:
            return refusal
    return VolumePlan(
        tuple((b.claim, b.offers[b.picked[0]].volume) for b in placement.bindings if b.picked[0] != NONE),
        tuple(p.claim for p in placement.provisions if p.needed[0]),
    )
