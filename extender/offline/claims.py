"""The claims of pods, as the controllers beside the API server make them and take them away.

Sources: upstream pkg/controller/{resourceclaim,volume/ephemeral}, the garbage collector, and
plugin/pkg/admission/storage/storageclass/setdefault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.devices.extended_resources import CLAIM_NAME, claim_for
from extender.errors import MalformedCluster
from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.devices.claims import (
    AllocationResult,
    ConsumerReference,
    PendingClaim,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from extender.model.meta import ObjectMeta, OwnerReference
from extender.model.pod import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from extender.model.volumes.pod_volumes import claims_of
from extender.model.volumes.storage import (
    BETA_STORAGE_CLASS_ANNOTATION,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.offline.manifests.admission import Admitted
from extender.offline.state import ClusterState
from extender.scheduler.binding.claims import pending_claim
from extender.scheduler.binding.volumes import bound, selected
from extender.scheduler.scheduling_cycle import Chosen
from extender.table.objects import Objects

_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE)
_VOLUME_CLAIM_DELETE = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.DELETE)
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def needs_claims(pod: Pod, objects: Objects) -> bool:
    """Returns True if `with_claims` would make some for the pod."""
    return bool(_ungenerated(pod) or _unmade_volumes(pod, objects))


def with_claims(state: ClusterState, pod: Pod) -> Pod:
    """Makes the claims that the pod has templates for; returns the pod with their names in its status.

    Raises:
        MalformedCluster: the template of an ephemeral volume has a field of the wrong type.
    """
    table = state.table
    for volume in _unmade_volumes(pod, table.objects):
        claim = _volume_claim(pod, volume, table.objects)
        table.set_object(type(claim).__name__, claim)
    made = []
    for named in _ungenerated(pod):
        template = _template(pod, named, table.objects)
        if template is not None:
            generated = _generated(pod, named, template, table.objects)
            table.set_object(type(generated).__name__, generated)
            made.append(PodResourceClaimStatus(name=named.name, resource_claim_name=generated.name))
    if not made:
        return pod
    statuses = [*(pod.status.resource_claim_statuses or ()), *made]
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


def admit_new(state: ClusterState, pod: Mapping[str, Any]) -> tuple[ClusterState, Admitted]:
    """The pod as it would be stored, and the cluster with the claims that would be made for it; `state` is kept.

    Raises:
        MalformedCluster: with the path of every fault.
    """
    admitted = state.admit(pod)
    if not needs_claims(admitted.pod, state.table.objects):
        return state, admitted
    copied = state.copy()
    made = with_claims(copied, admitted.pod)
    return copied, Admitted(made, [*admitted.notes, *missing_templates(made, copied.table.objects)])


def missing_templates(pod: Pod, objects: Objects) -> list[str]:
    """Why claims of the pod are not made, for people: a line for each template that is not there."""
    return [
        f"no ResourceClaimTemplate {pod.namespace}/{named.resource_claim_template_name} is in the cluster"
        for named in _ungenerated(pod)
        if _template(pod, named, objects) is None
    ]


def _ungenerated(pod: Pod) -> list[PodResourceClaim]:
    done = {each.name for each in pod.status.resource_claim_statuses or ()}
    wanted = (each for each in pod.spec.resource_claims or () if each.resource_claim_name is None)
    return [each for each in wanted if each.resource_claim_template_name is not None and each.name not in done]


def _template(pod: Pod, named: PodResourceClaim, objects: Objects) -> ResourceClaimTemplate | None:
    return objects.get(ResourceClaimTemplate, f"{pod.namespace}/{named.resource_claim_template_name}")


def _generated(pod: Pod, named: PodResourceClaim, template: ResourceClaimTemplate, objects: Objects) -> ResourceClaim:
    names = (f"{pod.name}-{named.name}-{number}" for number in count(1))
    name = next(name for name in names if objects.get(ResourceClaim, f"{pod.namespace}/{name}") is None)
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=f"{pod.uid}/{name}",
        annotations={_POD_CLAIM_NAME: named.name},
        owner_references=[_owner(pod)],
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _unmade_volumes(pod: Pod, objects: Objects) -> list[Volume]:
    return [
        each
        for each in pod.spec.volumes or ()
        if each.ephemeral is not None
        and objects.get(PersistentVolumeClaim, f"{pod.namespace}/{pod.name}-{each.name}") is None
    ]


def _volume_claim(pod: Pod, volume: Volume, objects: Objects) -> PersistentVolumeClaim:
    given: dict[str, Any] = (volume.ephemeral or {}).get("volumeClaimTemplate") or {}
    try:
        template = msgspec.convert(given, PersistentVolumeClaim)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"pod {pod.key}: volume {volume.name}: ephemeral.volumeClaimTemplate: {error}") from None
    return _new_volume_claim(template, f"{pod.name}-{volume.name}", pod, [_owner(pod)], objects)


def _new_volume_claim(
    template: PersistentVolumeClaim, name: str, pod: Pod, owners: list[OwnerReference] | None, objects: Objects
) -> PersistentVolumeClaim:
    """The claim as it is stored first: unbound, of the default class where it names none."""
    spec = template.spec
    kept = {key: text for key, text in template.annotations.items() if key == BETA_STORAGE_CLASS_ANNOTATION}
    if spec.storage_class_name is None and not kept:
        spec = replace(spec, storage_class_name=_default_class(objects))
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=f"{pod.uid}/{name}",
        labels=template.metadata.labels,
        annotations=kept or None,
        owner_references=owners,
    )
    return PersistentVolumeClaim(metadata=metadata, spec=replace(spec, volume_name=""))


def _default_class(objects: Objects) -> str | None:
    """The name of the default StorageClass, of several the newest."""
    defaults = [each for each in objects.all(StorageClass).values() if each.annotations.get(_DEFAULT_CLASS) == "true"]
    created = {each.name: each.metadata.creation_timestamp for each in defaults}
    newest = sorted(created, key=lambda name: (-(at.timestamp() if (at := created[name]) else 0.0), name))
    return newest[0] if newest else None


def _owner(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)


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
