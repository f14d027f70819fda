"""A pod's claims, told apart by how far they are.

Source: upstream VolumeBinding.PreFilter, volumeBinder.GetPodVolumeClaims.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.status import Refusal, failed, unresolvable
from extender.model.volumes.pod_volumes import ClaimUse
from extender.model.volumes.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from extender.table import PodInfo, Table
from extender.volumes.reasons import claim_not_found

NAME = "VolumeBinding"
UNBOUND = unresolvable(NAME, "pod has unbound immediate PersistentVolumeClaims")


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims that are bound, and claims that wait for the pod to get a node; in the order of the pod's volumes."""

    bound: tuple[PersistentVolumeClaim, ...]
    waiting: tuple[PersistentVolumeClaim, ...]


def pod_claims(pod: PodInfo, table: Table) -> PodClaims | Refusal | None:
    """The pod's claims, None if it has none; a Refusal where one is missing, lost or should have been bound by now."""
    if not pod.claims:
        return None
    found: list[PersistentVolumeClaim] = []
    for use in pod.claims:
        claim = _usable(use, table)
        if isinstance(claim, str):
            return unresolvable(NAME, claim)
        found.append(claim)
    return _told_apart(found, table)


def _usable(use: ClaimUse, table: Table) -> PersistentVolumeClaim | str:
    """The claim, or why the pod cannot use it."""
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None:
        waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return claim_not_found(use.name) if use.owner is None else waiting
    if claim.lost:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.terminating:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    return use.objection(claim) or claim


def _told_apart(claims: list[PersistentVolumeClaim], table: Table) -> PodClaims | Refusal:
    bound: list[PersistentVolumeClaim] = []
    waiting: list[PersistentVolumeClaim] = []
    late = False
    for claim in claims:
        if claim.fully_bound:
            bound.append(claim)
            continue
        mode = _binding_mode(claim, table)
        if isinstance(mode, Refusal):
            return mode
        if mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name:
            waiting.append(claim)
        else:
            late = True
    return UNBOUND if late else PodClaims(tuple(bound), tuple(waiting))


def _binding_mode(claim: PersistentVolumeClaim, table: Table) -> str | Refusal:
    """When the claim's class has it bound; empty where there is no class to say."""
    storage_class = table.objects.get(StorageClass, claim.class_name) if claim.class_name else None
    if storage_class is None:
        return ""
    if storage_class.volume_binding_mode is None:
        cause = f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
        return failed(NAME, f'running PreFilter plugin "{NAME}": {cause}')
    return storage_class.volume_binding_mode
