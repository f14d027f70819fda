"""Finds the claims of a pod's volumes, and the CSI volumes that must be attached for the pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.framework.status import Refusal, failed, unresolvable
from extender.model.csi_migration import CSIVolume, Fault
from extender.model.pod_volumes import ClaimUse
from extender.model.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from extender.table import PodInfo, Table
from extender.table.csi import MissingClaim, csi_volume_of

NAME = "VolumeBinding"
UNBOUND = unresolvable(NAME, "pod has unbound immediate PersistentVolumeClaims")


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """The pod's claims, in the order of its volumes.

    Attributes:
        bound: the claims that are bound.
        delayed: the claims that are bound only after the pod has a node (WaitForFirstConsumer).
    """

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


def pod_volume_claims(pod: PodInfo, table: Table) -> PodVolumeClaims | Refusal | None:
    """Returns the pod's claims, or None if it has none. Returns a Refusal as `volume_claims` does."""
    return volume_claims(pod.claims, table) if pod.claims else None


def volume_claims(uses: Iterable[ClaimUse], table: Table) -> PodVolumeClaims | Refusal:
    """Returns the claims that a pod with these volumes uses.

    Returns a Refusal if the pod cannot use a claim, or if a claim is not bound and its class does not wait until the
    pod has a node (WaitForFirstConsumer).
    """
    claims: list[PersistentVolumeClaim] = []
    for use in uses:
        claim = _usable(use, table)
        if isinstance(claim, Refusal):
            return claim
        claims.append(claim)
    return _by_state(claims, table)


def _usable(use: ClaimUse, table: Table) -> PersistentVolumeClaim | Refusal:
    """Returns the claim, or a Refusal if the pod cannot use it."""
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None and use.owner is not None:
        waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return unresolvable(NAME, waiting)
    if claim is None:
        return unresolvable(NAME, claim_not_found(use.name))
    if claim.lost:
        volume = f'persistentvolume "{claim.spec.volume_name}"'
        return unresolvable(NAME, f'persistentvolumeclaim "{use.name}" bound to non-existent {volume}')
    if claim.terminating:
        return unresolvable(NAME, f'persistentvolumeclaim "{use.name}" is being deleted')
    objection = use.objection(claim)
    return claim if objection is None else unresolvable(NAME, objection)


def _by_state(claims: list[PersistentVolumeClaim], table: Table) -> PodVolumeClaims | Refusal:
    bound: list[PersistentVolumeClaim] = []
    delayed: list[PersistentVolumeClaim] = []
    immediate = False
    for claim in claims:
        if claim.fully_bound:
            bound.append(claim)
            continue
        mode = _binding_mode(claim, table)
        if isinstance(mode, Refusal):
            return mode
        if mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate = True
    return UNBOUND if immediate else PodVolumeClaims(tuple(bound), tuple(delayed))


def _binding_mode(claim: PersistentVolumeClaim, table: Table) -> str | Refusal:
    """Returns the volumeBindingMode of the claim's class, or "" if the claim has no class or the class does not exist.

    Returns a Refusal if the class has no volumeBindingMode.
    """
    storage_class = table.objects.get(StorageClass, claim.class_name) if claim.class_name else None
    if storage_class is None:
        return ""
    if storage_class.volume_binding_mode is None:
        cause = f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
        return failed(NAME, f'running PreFilter plugin "{NAME}": {cause}')
    return storage_class.volume_binding_mode


# The API server's messages for missing objects, which kube-scheduler gives as reasons.


def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def volume_not_found(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def class_not_found(name: str) -> str:
    return f'storageclass.storage.k8s.io "{name}" not found'


@dataclass(slots=True)
class AttachableVolumes:
    """The CSI volumes behind a pod's claims and inline volumes.

    Attributes:
        by_driver: the CSI volumes of each driver.
        native_drivers: the drivers of the volumes that are not migrated in-tree volumes.
        errors: (fault, everywhere) for each volume whose CSI volume cannot be found. If `everywhere` is True, the fault
            refuses all nodes. Otherwise, the volume is a migrated in-tree volume, and the fault refuses only nodes with
            a CSINode.
    """

    by_driver: defaultdict[str, set[CSIVolume]] = field(default_factory=lambda: defaultdict(set))
    native_drivers: set[str] = field(default_factory=set)
    errors: list[tuple[Fault | MissingClaim, bool]] = field(default_factory=list)


def attachable_volumes(pod: PodInfo, table: Table) -> AttachableVolumes:
    """Returns the CSI volumes behind the pod's claims and inline volumes.

    Source: upstream nodevolumelimits filterAttachableVolumes.
    """
    volumes = AttachableVolumes()
    for source in pod.attachables:
        resolved, migrated, _ = csi_volume_of(source, table.objects)
        if isinstance(resolved, CSIVolume):
            volumes.by_driver[resolved.driver].add(resolved)
            if not migrated:
                volumes.native_drivers.add(resolved.driver)
        elif resolved is not None:
            volumes.errors.append((resolved, not migrated))
    return volumes
