"""Reserves claims when a pod is placed, and frees or deletes them when the pod is deleted.

Sources: upstream pkg/controller/resourceclaim, and the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from extender.devices.extended_resources import CLAIM_NAME, claim_for
from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.devices.claims import (
    AllocationResult,
    ConsumerReference,
    PendingClaim,
    ResourceClaim,
    ResourceClaimStatus,
)
from extender.model.pod import Pod
from extender.model.volumes.pod_volumes import claims_of
from extender.model.volumes.storage import PersistentVolumeClaim
from extender.offline.state import ClusterState
from extender.scheduler.binding.device_reservations import pending_claim
from extender.scheduler.binding.volume_reservations import bound, selected
from extender.scheduler.scheduling_cycle import Chosen
from extender.table.objects import Objects

_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE)
_VOLUME_CLAIM_DELETE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.DELETE)


def reserve(state: ClusterState, pod: Pod, chosen: Chosen) -> None:
    """Binds volumes and allocates devices in `state` for a placed pod, as scheduler and controllers would."""
    for claim, volume in chosen.volumes.bind:
        state.add(bound(volume, claim))
        state.add(replace(claim, spec=replace(claim.spec, volume_name=volume.name)))
    for claim in chosen.volumes.provision:
        state.add(selected(claim, chosen.node_name))
    consumer = ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
    for device_claim, allocation in chosen.devices.allocate:
        if device_claim.name == CLAIM_NAME:
            state.add(pending_claim(device_claim, allocation))
            continue
        status = replace(device_claim.status, allocation=allocation, reserved_for=[consumer])
        state.add(replace(device_claim, status=status))
    for device_claim in chosen.devices.reserve:
        if not device_claim.is_reserved_for(pod.uid):
            users = [*(device_claim.status.reserved_for or ()), consumer]
            state.add(replace(device_claim, status=replace(device_claim.status, reserved_for=users)))


def release(state: ClusterState, pod: Pod) -> list[Change]:
    """Deletes the claims that a deleted pod owns, and frees its devices unless another pod has reserved them.

    Returns:
        The changes made to `state`; each may let a pending pod be tried again.
    """
    changes = list[Change]()
    for claim in list(_device_claims(pod, state.objects)):
        others = [user for user in claim.status.reserved_for or () if user.uid != pod.uid]
        if isinstance(claim, PendingClaim) or _is_owned_by(pod, claim):
            state.remove(type(claim).__name__, claim.key)
            changes.append(Change(_CLAIM_DELETE, claim))
        elif claim.is_reserved_for(pod.uid) or (pod.node_name and not others):
            status = replace(claim.status, reserved_for=others) if others else ResourceClaimStatus()
            freed = replace(claim, status=status)
            state.add(freed)
            changes.append(Change(_CLAIM_UPDATE, claim, freed))
    for use in claims_of(pod):
        volume_claim = state.objects.get(PersistentVolumeClaim, use.key)
        if use.owner and volume_claim and _is_owned_by(pod, volume_claim):
            state.remove(type(volume_claim).__name__, use.key)
            changes.append(Change(_VOLUME_CLAIM_DELETE, volume_claim))
    return changes


def _device_claims(pod: Pod, objects: Objects) -> Iterator[ResourceClaim]:
    """Yields the existing ResourceClaims that the pod uses."""
    names = {reference.resource_claim_name for reference in pod.spec.resource_claims or ()}
    names |= {status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    extended = pod.status.extended_resource_claim_status
    names |= {extended.resource_claim_name} if extended else set()
    claims = [objects.get(ResourceClaim, f"{pod.namespace}/{name}") for name in sorted(name for name in names if name)]
    claims.append(objects.get(PendingClaim, pending_claim(claim_for(pod), AllocationResult()).key))
    yield from (claim for claim in claims if claim is not None)


def _is_owned_by(pod: Pod, claim: ResourceClaim | PersistentVolumeClaim) -> bool:
    return claim.controller is not None and claim.controller.uid == pod.uid
