"""Claims that are made with a pod: of templates, for ephemeral volumes, for each replica of a StatefulSet.

Sources: upstream pkg/controller/{resourceclaim,volume/ephemeral,statefulset}, and
plugin/pkg/admission/storage/storageclass/setdefault.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.errors import MalformedCluster
from extender.model.devices.claims import ResourceClaim, ResourceClaimTemplate
from extender.model.meta import NodeSelector, ObjectMeta, OwnerReference
from extender.model.pod import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from extender.model.volume_sources import CSIPersistentVolumeSource, PersistentVolumeClaimSource
from extender.model.volumes.storage import (
    BETA_STORAGE_CLASS_ANNOTATION,
    BIND_COMPLETED_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from extender.model.workloads import StatefulSet
from extender.offline.manifests.admission import Admitted
from extender.offline.manifests.templates import POD_INDEX, POD_NAME, Workload
from extender.offline.state import ClusterState
from extender.scheduler.binding.volumes import bound
from extender.table import Table
from extender.table.objects import Objects
from extender.volumes.pod_volumes import node_term

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_IMMEDIATE = "Immediate"
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
    for name, volume in _unmade_volumes(pod, table.objects).items():
        owners = [_owner(pod)] if isinstance(volume, Volume) else None
        template_of_volume = _ephemeral(pod, volume) if isinstance(volume, Volume) else volume
        _add_volume_claim(table, template_of_volume, pod, name, owners)
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


def admit_new(state: ClusterState, workload: Workload) -> tuple[ClusterState, Admitted]:
    """The first pod as it would be stored, and the cluster with the claims that would be made for it; `state` is kept.

    Raises:
        MalformedCluster: with the path of every fault.
    """
    admitted, owner = state.admit(workload.manifest), workload.owner
    claims = isinstance(owner, StatefulSet) and owner.spec.volume_claim_templates
    if not claims and not needs_claims(admitted.pod, state.table.objects):
        return state, admitted
    copied = state.copy()
    if owner is not None:
        copied.add(owner)
    made = with_claims(copied, admitted.pod)
    return copied, Admitted(made, [*admitted.notes, *missing_templates(made, copied.table.objects)])


def replica(pod: Pod, name: str, uid: str) -> Pod:
    """The pod once more under another name, as its controller makes it: a StatefulSet's with claims of its own."""
    metadata = replace(pod.metadata, name=name, uid=uid)
    if not is_of_stateful_set(pod):
        return replace(pod, metadata=metadata)
    labels = {**pod.labels, POD_INDEX: name.rpartition("-")[2], POD_NAME: name}
    volumes = [
        replace(each, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=f"{each.name}-{name}"))
        if _is_of_replica(each, pod)
        else each
        for each in pod.spec.volumes or ()
    ]
    return replace(pod, metadata=replace(metadata, labels=labels), spec=replace(pod.spec, volumes=volumes or None))


def add_claims_like(state: ClusterState, pod: Pod, others: Sequence[Pod]) -> None:
    """Makes claims for other replicas of the pod, new ones of the same form, where there are none of the name."""
    objects = state.table.objects
    for volume in pod.spec.volumes or ():
        model = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{volume.name}-{pod.name}")
        for other in others if model and _is_of_replica(volume, pod) else ():
            name = f"{volume.name}-{other.name}"
            if model and objects.get(PersistentVolumeClaim, f"{other.namespace}/{name}") is None:
                _add_volume_claim(state.table, model, other, name)


def is_of_stateful_set(pod: Pod) -> bool:
    """Returns True if the pod has a name and claims of its own among replicas."""
    return pod.controller is not None and pod.controller.kind == StatefulSet.__name__


def _is_of_replica(volume: Volume, pod: Pod) -> bool:
    """Returns True if it is a claim that a StatefulSet makes for the pod alone."""
    claim = volume.persistent_volume_claim
    return claim is not None and claim.claim_name == f"{volume.name}-{pod.name}" and is_of_stateful_set(pod)


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


def _unmade_volumes(pod: Pod, objects: Objects) -> dict[str, Volume | PersistentVolumeClaim]:
    """Claims that are not there -> the ephemeral volume that it is for, or the template in the pod's StatefulSet."""
    found: dict[str, Volume | PersistentVolumeClaim] = {}
    for volume in pod.spec.volumes or ():
        if volume.ephemeral is not None:
            found[f"{pod.name}-{volume.name}"] = volume
        elif template := _template_of(volume, pod, objects):
            found[f"{volume.name}-{pod.name}"] = template
    return {
        name: source
        for name, source in found.items()
        if objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}") is None
    }


def _template_of(volume: Volume, pod: Pod, objects: Objects) -> PersistentVolumeClaim | None:
    owner = pod.controller
    if owner is None or not _is_of_replica(volume, pod):
        return None
    found = objects.get(StatefulSet, f"{pod.namespace}/{owner.name}")
    templates = (found.spec.volume_claim_templates or ()) if found else ()
    return next((each for each in templates if each.name == volume.name), None)


def _ephemeral(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    given: dict[str, Any] = (volume.ephemeral or {}).get("volumeClaimTemplate") or {}
    try:
        return msgspec.convert(given, PersistentVolumeClaim)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"pod {pod.key}: volume {volume.name}: ephemeral.volumeClaimTemplate: {error}") from None


def _add_volume_claim(
    table: Table, template: PersistentVolumeClaim, pod: Pod, name: str, owners: list[OwnerReference] | None = None
) -> None:
    """Adds the claim as it is stored first: unbound, of the default class where it names none."""
    spec = template.spec
    kept = {key: text for key, text in template.annotations.items() if key == BETA_STORAGE_CLASS_ANNOTATION}
    if spec.storage_class_name is None and not kept:
        spec = replace(spec, storage_class_name=_default_class(table.objects))
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=f"{pod.uid}/{name}",
        labels=template.metadata.labels,
        annotations=kept or None,
        owner_references=owners,
    )
    claim = PersistentVolumeClaim(metadata=metadata, spec=replace(spec, volume_name=""))
    storage_class = table.objects.get(StorageClass, claim.class_name)
    if storage_class and storage_class.provisions and storage_class.volume_binding_mode == _IMMEDIATE:
        volume = _provisioned(claim, storage_class)
        table.set_object(type(volume).__name__, volume)
        annotations = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        claim = replace(
            claim,
            metadata=replace(metadata, annotations=annotations),
            spec=replace(claim.spec, volume_name=volume.name),
        )
    table.set_object(type(claim).__name__, claim)


def _provisioned(claim: PersistentVolumeClaim, storage_class: StorageClass) -> PersistentVolume:
    """The volume that is made for a claim at once; nobody knows where, so it is within reach of all allowed nodes."""
    name = f"pvc-{claim.uid}"
    topologies = list(map(node_term, storage_class.allowed_topologies or ()))
    spec = PersistentVolumeSpec(
        capacity=claim.spec.resources.requests if claim.spec.resources else None,
        access_modes=claim.spec.access_modes,
        storage_class_name=storage_class.name,
        volume_mode=claim.spec.volume_mode,
        csi=CSIPersistentVolumeSource(driver=storage_class.provisioner, volume_handle=name),
        node_affinity=VolumeNodeAffinity(required=NodeSelector(node_selector_terms=topologies)) if topologies else None,
    )
    return bound(PersistentVolume(metadata=ObjectMeta(name=name, uid=name), spec=spec), claim)


def _default_class(objects: Objects) -> str | None:
    """The name of the default StorageClass, of several the newest."""
    defaults = [each for each in objects.all(StorageClass).values() if each.annotations.get(_DEFAULT_CLASS) == "true"]
    created = {each.name: each.metadata.creation_timestamp for each in defaults}
    newest = sorted(created, key=lambda name: (-(at.timestamp() if (at := created[name]) else 0.0), name))
    return newest[0] if newest else None


def _owner(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
