"""The claims behind a pod's volumes, and the CSI volumes that it needs attached to its node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from extender.framework.status import Refusal, failed, unresolvable
from extender.model.volumes.csi_migration import CSIVolume, Fault
from extender.model.volumes.pod_volumes import ClaimUse
from extender.model.volumes.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from extender.table import PodInfo, Table
from extender.table.volumes.csi import MissingClaim, csi_volume_of

NAME = "VolumeBinding"
UNBOUND = unresolvable(NAME, "pod has unbound immediate PersistentVolumeClaims")


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """The bound claims, and those whose binding is delayed until the pod has a node; in the order of its volumes."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


def pod_volume_claims(pod: PodInfo, table: Table) -> PodVolumeClaims | Refusal | None:
    """The pod's claims, None if it has none; a Refusal if one is missing, lost, or of immediate binding and unbound."""
    if not pod.claims:
        return None
    found: list[PersistentVolumeClaim] = []
    for use in pod.claims:
        claim = _usable(use, table)
        if isinstance(claim, str):
            return unresolvable(NAME, claim)
        found.append(claim)
    return _by_state(found, table)


def _usable(use: ClaimUse, table: Table) -> PersistentVolumeClaim | str:
    """The claim, or the reason why the pod cannot use it."""
    claim = table.objects.get(PersistentVolumeClaim, use.key)
    if claim is None:
        waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return claim_not_found(use.name) if use.owner is None else waiting
    if claim.lost:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.terminating:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    return use.objection(claim) or claim


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
    """The volumeBindingMode of the claim's class; empty without a class."""
    storage_class = table.objects.get(StorageClass, claim.class_name) if claim.class_name else None
    if storage_class is None:
        return ""
    if storage_class.volume_binding_mode is None:
        cause = f'VolumeBindingMode not set for StorageClass "{claim.class_name}"'
        return failed(NAME, f'running PreFilter plugin "{NAME}": {cause}')
    return storage_class.volume_binding_mode


# The API's words for an object that is missing, which the scheduler passes on as a reason.


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
        by_driver: the volumes.
        native_drivers: drivers of volumes that are not migrated in-tree ones; these count only on nodes with a CSINode.
        errors: faults, each with True if it counts on nodes without a CSINode too; in the order of the volumes.
    """

    by_driver: defaultdict[str, set[CSIVolume]] = field(default_factory=lambda: defaultdict(set))
    native_drivers: set[str] = field(default_factory=set)
    errors: list[tuple[Fault | MissingClaim, bool]] = field(default_factory=list)


def attachable_volumes(pod: PodInfo, table: Table) -> AttachableVolumes:
    """Resolves the pod's claims and inline volumes (upstream nodevolumelimits filterAttachableVolumes)."""
    volumes = AttachableVolumes()
    for source in pod.attachables:
        found, migrated, _ = csi_volume_of(source, table.objects)
        if isinstance(found, CSIVolume):
            volumes.by_driver[found.driver].add(found)
            if not migrated:
                volumes.native_drivers.add(found.driver)
        elif found is not None:
            volumes.errors.append((found, not migrated))
    return volumes
