"""Claims as pods use them: reserved as a pod is placed, freed when it goes.

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
from extender.scheduler.binding.claims import pending_claim
from extender.scheduler.binding.volumes import bound, selected
from extender.scheduler.scheduling_cycle import Chosen
from extender.table.objects import Objects

_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE)
_VOLUME_CLAIM_DELETE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.DELETE)


def reserve(state: ClusterState, pod: Pod, chosen: Chosen) -> None:
    """Counts volumes and devices as taken, as a binding cycle and the controllers after it do."""
    table = state.table
    for claim, volume in chosen.volumes.bind:
        table.set_object(type(volume).__name__, bound(volume, claim))
        table.set_object(type(claim).__name__, replace(claim, spec=replace(claim.spec, volume_name=volume.name)))
    for claim in chosen.volumes.provision:
        table.set_object(type(claim).__name__, selected(claim, chosen.node_name))
    consumer = ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
    for device_claim, allocation in chosen.devices.allocate:
        if device_claim.name == CLAIM_NAME:
            pending = pending_claim(device_claim, allocation)
            table.set_object(type(pending).__name__, pending)
            continue
        status = replace(device_claim.status, allocation=allocation, reserved_for=[consumer])
        table.set_object(type(device_claim).__name__, replace(device_claim, status=status))
    for device_claim in chosen.devices.reserve:
        if not device_claim.is_reserved_for(pod.uid):
            users = [*(device_claim.status.reserved_for or ()), consumer]
            status = replace(device_claim.status, reserved_for=users)
            table.set_object(type(device_claim).__name__, replace(device_claim, status=status))


def release(state: ClusterState, pod: Pod) -> list[Change]:
    """Takes away the claims that go with a pod which is gone, and devices that nobody else has reserved.

    Returns:
        What waiting pods would hear of it.
    """
    table, changes = state.table, list[Change]()
    for claim in list(_device_claims(pod, table.objects)):
        others = [each for each in claim.status.reserved_for or () if each.uid != pod.uid]
        if isinstance(claim, PendingClaim) or _goes_with(pod, claim):
            table.remove_object(type(claim).__name__, claim.key)
            changes.append(Change(_CLAIM_DELETE, claim))
        elif claim.is_reserved_for(pod.uid) or (pod.node_name and not others):
            status = replace(claim.status, reserved_for=others) if others else ResourceClaimStatus()
            left = replace(claim, status=status)
            table.set_object(type(claim).__name__, left)
            changes.append(Change(_CLAIM_UPDATE, claim, left))
    for use in claims_of(pod):
        volume_claim = table.objects.get(PersistentVolumeClaim, use.key)
        if use.owner and volume_claim and _goes_with(pod, volume_claim):
            table.remove_object(type(volume_claim).__name__, use.key)
            changes.append(Change(_VOLUME_CLAIM_DELETE, volume_claim))
    return changes


def _device_claims(pod: Pod, objects: Objects) -> Iterator[ResourceClaim]:
    """The claims that the pod uses, as far as they are there."""
    names = {each.resource_claim_name for each in pod.spec.resource_claims or ()}
    names |= {each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    extended = pod.status.extended_resource_claim_status
    names |= {extended.resource_claim_name} if extended else set()
    found = [objects.get(ResourceClaim, f"{pod.namespace}/{name}") for name in sorted(name for name in names if name)]
    found.append(objects.get(PendingClaim, pending_claim(claim_for(pod), AllocationResult()).key))
    yield from (claim for claim in found if claim is not None)


def _goes_with(pod: Pod, claim: ResourceClaim | PersistentVolumeClaim) -> bool:
    return claim.controller is not None and claim.controller.uid == pod.uid
