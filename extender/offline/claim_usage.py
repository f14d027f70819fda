"""Reserves claims when a pod is placed, and frees or deletes them when the pod is deleted.

Sources: upstream pkg/controller/resourceclaim, and the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from extender.devices.extended_resources import claim_for
from extender.devices.plan import pending_claim
from extender.engine.decision import Chosen
from extender.engine.group_members import reserved
from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.devices import (
    AllocationResult,
    PendingClaim,
    ResourceClaim,
    ResourceClaimStatus,
)
from extender.model.pod import Pod
from extender.model.pod_volumes import claims_of
from extender.model.quantity import units
from extender.model.selectors import compile_selector
from extender.model.storage import (
    BIND_COMPLETED_ANNOTATION,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.offline.state import ClusterState
from extender.table.object_index import Objects

_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE)
_VOLUME_CLAIM_DELETE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.DELETE)
_CAPACITY_UPDATE = ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.UPDATE)
# These annotations exist only in a simulated cluster.
_POOL = "simulation/pool"  # on a claim: the CSIStorageCapacity from which its volume was taken
_ALLOWED = "simulation/maximum-volume-size"  # on a CSIStorageCapacity: the largest volume that the driver reported


def reserve(state: ClusterState, pod: Pod, chosen: Chosen) -> None:
    """Binds volumes and allocates devices in `state` for a placed pod, as scheduler and controllers would."""
    for obj in reserved(pod, chosen):
        if isinstance(obj, PersistentVolumeClaim):
            state.add(_from_pool(state, obj, chosen.node_name))
        else:
            state.add(obj)
    for claim, volume in chosen.volumes.bind:
        annotations = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        metadata = replace(claim.metadata, annotations=annotations)
        state.add(replace(claim, metadata=metadata, spec=replace(claim.spec, volume_name=volume.name)))


def release(state: ClusterState, pod: Pod) -> list[Change]:
    """Deletes the claims that a deleted pod owns, and frees its devices unless another pod has reserved them.

    Returns:
        The changes made to `state`. Each change may make a pending pod fit.
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
            changes += _back_to_pool(state, volume_claim)
    return changes


def _from_pool(state: ClusterState, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """Takes the claim's storage from a CSIStorageCapacity that the node can reach, as a provisioner would.

    In a real cluster, the driver's provisioner reports less capacity once it has created a volume.

    Returns:
        The claim with an annotation that names the CSIStorageCapacity. The claim is unchanged if the driver reports
        no capacity.
    """
    storage_class = state.objects.get(StorageClass, claim.class_name)
    driver = state.objects.get(CSIDriver, storage_class.provisioner) if storage_class else None
    if driver is None or not driver.spec.storage_capacity:
        return claim
    labels = state.node(node_name).labels
    pools = [
        pool
        for pool in state.objects.all(CSIStorageCapacity).values()
        if pool.storage_class_name == claim.class_name and compile_selector(pool.node_topology).matches(labels)
    ]
    if not pools:
        return claim
    pool = max(pools, key=lambda pool: units(pool.volume_limit))
    state.add(_with_more(pool, -units(claim.requested_storage)))
    metadata = replace(claim.metadata, annotations={**claim.annotations, _POOL: pool.key})
    return replace(claim, metadata=metadata)


def _back_to_pool(state: ClusterState, claim: PersistentVolumeClaim) -> list[Change]:
    """Gives the storage that `_from_pool` took for the claim back to the CSIStorageCapacity."""
    pool = state.objects.get(CSIStorageCapacity, claim.annotations.get(_POOL, ""))
    if pool is None:
        return []
    freed = _with_more(pool, units(claim.requested_storage))
    state.add(freed)
    return [Change(_CAPACITY_UPDATE, pool, freed)]


def _with_more(pool: CSIStorageCapacity, change: int) -> CSIStorageCapacity:
    """Returns the CSIStorageCapacity with `change` bytes more; a negative `change` makes it smaller.

    Its maximumVolumeSize becomes the capacity that is left, but never more than the size that the driver reported.
    """
    if pool.capacity is None:
        return pool
    left = units(pool.capacity) + change
    if pool.maximum_volume_size is None:
        return replace(pool, capacity=left)
    allowed = pool.annotations.get(_ALLOWED, str(pool.maximum_volume_size))
    metadata = replace(pool.metadata, annotations={**pool.annotations, _ALLOWED: allowed})
    return replace(pool, metadata=metadata, capacity=left, maximum_volume_size=min(left, units(allowed)))


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
