"""Creates a pod's claims, reserves them when the pod is placed, and frees or deletes them when it ends.

Claims are created from templates, for ephemeral volumes, and for each replica of a StatefulSet. Everything here changes
a ClusterState in memory, never a real cluster.

Sources: upstream pkg/controller/{resourceclaim,volume/ephemeral,statefulset}, the garbage collector, and
plugin/pkg/admission/storage/storageclass/setdefault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.devices.plan import pending_claim
from extender.devices.pod_claims import claim_for, generated_name, sharing_group
from extender.engine import quantities_of
from extender.engine.decision import Chosen
from extender.engine.group_members import reserved
from extender.errors import MalformedCluster
from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.devices import (
    AllocationResult,
    PendingClaim,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from extender.model.meta import NodeSelector, Object, ObjectMeta, OwnerReference
from extender.model.pod import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from extender.model.pod_groups import PodGroup, SchedulingGroup
from extender.model.pod_volumes import claims_of
from extender.model.quantity import units
from extender.model.selectors import compile_selector
from extender.model.storage import (
    BETA_STORAGE_CLASS_ANNOTATION,
    BIND_COMPLETED_ANNOTATION,
    CSIDriver,
    CSIPersistentVolumeSource,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from extender.model.workloads import StatefulSet
from extender.offline.manifests.admission import Admitted, admitted
from extender.offline.manifests.templates import COMPLETION_INDEX, POD_INDEX, POD_NAME, Workload
from extender.offline.state import ClusterState
from extender.plugins.volume_binding import bound
from extender.snapshots.objects import plain
from extender.table import PodInfo, Table
from extender.table.object_index import Objects
from extender.table.podinfo import twin
from extender.volumes.accessibility import free_volumes, reserved_volume
from extender.volumes.node_volumes import node_term

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_GROUP_VERSION = "scheduling.k8s.io/v1beta1"
_IMMEDIATE = "Immediate"
_AVAILABLE = "Available"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def with_claims(state: ClusterState, pod: Pod) -> Pod:
    """Creates the pod's missing claims in `state`, and returns the pod with their names in its status.

    Raises:
        MalformedCluster: the template of an ephemeral volume has a field of the wrong type.
    """
    for name, source in _missing_volume_claims(pod, state.objects).items():
        owners = [_owner(pod)] if isinstance(source, Volume) else None
        template = _ephemeral_template(pod, source) if isinstance(source, Volume) else source
        _create_volume_claim(state, template, pod, name, owners)
    statuses, group = [], sharing_group(pod, state.table)
    for reference in _ungenerated(pod):
        template_or_none = _template(pod, reference, state.objects)
        if group is not None and reference in (group.spec.resource_claims or ()):
            group = _with_group_claim(state, group, reference, template_or_none)
        elif template_or_none is not None:
            claim = _generated(pod, reference, template_or_none, state.objects)
            state.add(claim)
            statuses.append(PodResourceClaimStatus(name=reference.name, resource_claim_name=claim.name))
    if not statuses:
        return pod
    statuses = [*(pod.status.resource_claim_statuses or ()), *statuses]
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


def create_companions(state: ClusterState, workload: Workload, pods: int = 1) -> None:
    """Adds the objects that a workload's pods need: its controller, and what else is in the manifest's file.

    An object that the cluster already has is not changed, except pod groups. Claims are added last, because a volume
    or a StorageClass in the file may bind them.

    Args:
        pods: how many pods the workload may get.

    Raises:
        MalformedCluster: the API server would refuse one of the objects, or a claim of a StatefulSet's pods.
    """
    if workload.owner is not None:
        state.add(workload.owner)
        if isinstance(workload.owner, StatefulSet):
            _check_claim_templates(state, workload.owner, workload.names(pods))
    behaviours = state.profiles.features.behaviours
    for obj in sorted(workload.companions, key=_creation_order):
        created = admitted(
            obj,
            state.objects,
            limits_priorities=not behaviours.group_priorities_have_no_maximum,
            checks_more=behaviours.more_objects_are_refused,
        )
        if isinstance(created, SchedulingGroup):
            state.add(created)
        elif state.objects.get(type(created), created.key) is None:
            _create(state, created)


def _creation_order(obj: Object) -> int:
    return 2 if isinstance(obj, PersistentVolumeClaim) else 1 if isinstance(obj, SchedulingGroup) else 0


def _check_claim_templates(state: ClusterState, stateful_set: StatefulSet, pods: Sequence[str]) -> None:
    """Checks, for each template, the first claim that the cluster lacks; the claims of other pods differ only by name.

    Raises MalformedCluster if the API server would refuse the claim.
    """
    claims = state.objects.all(PersistentVolumeClaim)
    for template in stateful_set.spec.volume_claim_templates or ():
        names = (f"{template.name}-{pod}" for pod in pods)
        missing = next((name for name in names if f"{stateful_set.namespace}/{name}" not in claims), None)
        if missing is not None:
            metadata = replace(template.metadata, name=missing, namespace=stateful_set.namespace)
            admitted(replace(template, metadata=metadata), state.objects)


def _create(state: ClusterState, obj: Object) -> None:
    if isinstance(obj, PersistentVolumeClaim):
        _store_volume_claim(state, obj)
    elif isinstance(obj, PersistentVolume) and not obj.status.phase:
        state.add(replace(obj, status=replace(obj.status, phase=_AVAILABLE)))
    else:
        state.add(obj)


def admit_new(state: ClusterState, workload: Workload) -> tuple[ClusterState, Admitted]:
    """Returns a cluster that has the claims of a workload's first pod, and the pod as the API server would store it.

    The cluster is a changed copy of `state`. If the pod needs no claims, it is `state` itself.

    Raises:
        MalformedCluster: the API server would refuse the pod; the message has the path of every fault.
    """
    owner = workload.owner
    has_claim_templates = isinstance(owner, StatefulSet) and owner.spec.volume_claim_templates
    copied = state.copy() if has_claim_templates or workload.companions else None
    if copied is not None:
        create_companions(copied, workload)  # before the pod, whose priority class may be among them
    new = (copied or state).admit(workload.manifest)
    notes = [*workload.notes, *new.notes]
    if copied is None:
        if not _needs_claims(new.pod, state.objects):
            return state, Admitted(new.pod, notes)
        copied = state.copy()
        create_companions(copied, workload)
    pod = with_claims(copied, new.pod)
    return copied, Admitted(pod, [*notes, *missing_templates(pod, copied.objects)])


def replica(pod: Pod, name: str, uid: str) -> Pod:
    """Returns a copy of the pod under another name.

    For a pod of a StatefulSet or an indexed Job, the number at the end of `name` is set in the labels. For a
    StatefulSet, the volumes use the claims that belong to `name`.
    """
    metadata = replace(pod.metadata, name=name, uid=uid)
    if COMPLETION_INDEX in pod.labels:
        labels = {**pod.labels, COMPLETION_INDEX: name.rpartition("-")[2]}
        return replace(pod, metadata=replace(metadata, labels=labels))
    if not is_of_stateful_set(pod):
        return replace(pod, metadata=metadata)
    labels = {**pod.labels, POD_INDEX: name.rpartition("-")[2], POD_NAME: name}
    volumes = [
        replace(volume, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=f"{volume.name}-{name}"))
        if _is_replicas_own(volume, pod)
        else volume
        for volume in pod.spec.volumes or ()
    ]
    return replace(pod, metadata=replace(metadata, labels=labels), spec=replace(pod.spec, volumes=volumes or None))


def precomputed(pod: Pod) -> PodInfo:
    """Returns the PodInfo of a template's pod, with the values that its replicas share.

    Raises:
        MalformedCluster: a request is not a quantity.
    """
    info = PodInfo(pod)
    with quantities_of(pod):
        info.precompute()
    return info


def replica_infos(template: PodInfo, replicas: Iterable[Pod]) -> list[PodInfo]:
    """Returns the PodInfos of replicas. They share the values of `template`, unless their labels differ from its."""
    labels = template.pod.labels
    return [twin(template, pod) if pod.labels == labels else PodInfo(pod) for pod in replicas]


def add_claims_like(state: ClusterState, pod: Pod, others: Sequence[Pod]) -> None:
    """Creates the volume claims that `others` lack, as copies of the claims of `pod`.

    All these pods are replicas of the same StatefulSet.
    """
    for volume in pod.spec.volumes or ():
        template = state.objects.get(PersistentVolumeClaim, f"{pod.namespace}/{volume.name}-{pod.name}")
        if template is None or not _is_replicas_own(volume, pod):
            continue
        for other in others:
            name = f"{volume.name}-{other.name}"
            if state.objects.get(PersistentVolumeClaim, f"{other.namespace}/{name}") is None:
                _create_volume_claim(state, template, other, name)


def is_of_stateful_set(pod: Pod) -> bool:
    """Returns True if a StatefulSet controls the pod, so that the pod has a stable name and its own claims."""
    return pod.controller is not None and pod.controller.kind == StatefulSet.__name__


def missing_templates(pod: Pod, objects: Objects) -> list[str]:
    """Returns a note for each ResourceClaimTemplate that the pod names and the cluster lacks."""
    return [
        f"no ResourceClaimTemplate {pod.namespace}/{reference.resource_claim_template_name} is in the cluster"
        for reference in _ungenerated(pod)
        if _template(pod, reference, objects) is None
    ]


def _needs_claims(pod: Pod, objects: Objects) -> bool:
    return bool(_ungenerated(pod) or _missing_volume_claims(pod, objects))


def _is_replicas_own(volume: Volume, pod: Pod) -> bool:
    """Returns True if the volume uses a claim that a StatefulSet creates for this pod only."""
    claim = volume.persistent_volume_claim
    return claim is not None and claim.claim_name == f"{volume.name}-{pod.name}" and is_of_stateful_set(pod)


def _ungenerated(pod: Pod) -> list[PodResourceClaim]:
    """Returns the pod's references to ResourceClaimTemplates for which no claim has been created yet."""
    generated = {status.name for status in pod.status.resource_claim_statuses or ()}
    return [
        reference
        for reference in pod.spec.resource_claims or ()
        if reference.resource_claim_name is None
        and reference.resource_claim_template_name is not None
        and reference.name not in generated
    ]


def _template(pod: Pod, reference: PodResourceClaim, objects: Objects) -> ResourceClaimTemplate | None:
    return objects.get(ResourceClaimTemplate, f"{pod.namespace}/{reference.resource_claim_template_name}")


def _with_group_claim(
    state: ClusterState, group: PodGroup, reference: PodResourceClaim, template: ResourceClaimTemplate | None
) -> PodGroup:
    """Creates the claim that the group's members share, unless it exists; returns the group with the claim's name."""
    statuses = group.status.resource_claim_statuses or []
    if template is None or generated_name(statuses, reference.name) is not None:
        return group
    claim = _generated(group, reference, template, state.objects)
    state.add(claim)
    statuses = [*statuses, PodResourceClaimStatus(name=reference.name, resource_claim_name=claim.name)]
    changed = replace(group, status=replace(group.status, resource_claim_statuses=statuses))
    state.add(changed)
    return changed


def _generated(
    owner: Pod | PodGroup, reference: PodResourceClaim, template: ResourceClaimTemplate, objects: Objects
) -> ResourceClaim:
    names = (f"{owner.name}-{reference.name}-{number}" for number in count(1))
    name = next(name for name in names if objects.get(ResourceClaim, f"{owner.namespace}/{name}") is None)
    metadata = ObjectMeta(
        name=name,
        namespace=owner.namespace,
        uid=f"{owner.uid}/{name}",
        annotations={_POD_CLAIM_NAME: reference.name},
        owner_references=[_owner(owner)],
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _missing_volume_claims(pod: Pod, objects: Objects) -> dict[str, Volume | PersistentVolumeClaim]:
    """Returns {claim name: ephemeral volume, or template of a StatefulSet} for the volume claims that the pod lacks."""
    sources: dict[str, Volume | PersistentVolumeClaim] = {}
    for volume in pod.spec.volumes or ():
        if volume.ephemeral is not None:
            sources[f"{pod.name}-{volume.name}"] = volume
        elif template := _claim_template(volume, pod, objects):
            sources[f"{volume.name}-{pod.name}"] = template
    return {
        name: source
        for name, source in sources.items()
        if objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}") is None
    }


def _claim_template(volume: Volume, pod: Pod, objects: Objects) -> PersistentVolumeClaim | None:
    owner = pod.controller
    if owner is None or not _is_replicas_own(volume, pod):
        return None
    stateful_set = objects.get(StatefulSet, f"{pod.namespace}/{owner.name}")
    templates = (stateful_set.spec.volume_claim_templates or ()) if stateful_set else ()
    return next((template for template in templates if template.name == volume.name), None)


def _ephemeral_template(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    template: dict[str, Any] = (volume.ephemeral or {}).get("volumeClaimTemplate") or {}
    try:
        return msgspec.convert(template, PersistentVolumeClaim)
    except msgspec.ValidationError as error:
        where = f"pod {pod.key}: volume {volume.name}: ephemeral.volumeClaimTemplate"
        raise MalformedCluster(f"{where}.{plain(error, template)}") from None


def _create_volume_claim(
    state: ClusterState,
    template: PersistentVolumeClaim,
    pod: Pod,
    name: str,
    owners: list[OwnerReference] | None = None,
) -> None:
    """Adds a claim of a pod to `state`: unbound, with the labels, the class and the requests of `template`."""
    annotations = {key: text for key, text in template.annotations.items() if key == BETA_STORAGE_CLASS_ANNOTATION}
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=f"{pod.uid}/{name}",
        labels=template.metadata.labels,
        annotations=annotations or None,
        owner_references=owners,
    )
    claim = PersistentVolumeClaim(metadata=metadata, spec=replace(template.spec, volume_name=""))
    _store_volume_claim(state, claim)


def _store_volume_claim(state: ClusterState, claim: PersistentVolumeClaim) -> None:
    """Adds a new claim to `state`. A claim that names no StorageClass gets the default StorageClass.

    The claim is bound at once if it names a free volume, or if no StorageClass delays it and there is a suitable volume
    or a provisioner for it.
    """
    if claim.spec.storage_class_name is None and BETA_STORAGE_CLASS_ANNOTATION not in claim.annotations:
        claim = replace(claim, spec=replace(claim.spec, storage_class_name=default_class(state.objects)))
    volume = _volume_of(state, claim)
    if volume is not None:
        state.add(volume)
        metadata = replace(claim.metadata, annotations={**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"})
        claim = replace(claim, metadata=metadata, spec=replace(claim.spec, volume_name=volume.name))
    state.add(claim)


def _volume_of(state: ClusterState, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Returns the volume that a new claim is bound to; None if the claim stays unbound until a pod uses the claim."""
    if claim.spec.volume_name:
        volume = state.objects.get(PersistentVolume, claim.spec.volume_name)
        return bound(volume, claim) if volume and volume.spec.claim_ref is None else None
    storage_class = state.objects.get(StorageClass, claim.class_name)
    if storage_class is not None and storage_class.volume_binding_mode != _IMMEDIATE:
        return None
    if (volume := _existing_volume(state, claim)) is not None:
        return bound(volume, claim)
    return _provisioned(claim, storage_class) if storage_class is not None and storage_class.provisions else None


def _existing_volume(state: ClusterState, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Returns the volume that the volume controller would bind the claim to: the reserved or the smallest one."""
    reserved = reserved_volume(claim, state.table)
    if reserved is not None:
        return reserved.volume
    free = free_volumes(claim.class_name, state.table)
    suitable = free.suitable(claim).nonzero()[0]
    return free.volumes[suitable[0]].volume if suitable.size else None


def _provisioned(claim: PersistentVolumeClaim, storage_class: StorageClass) -> PersistentVolume:
    """Returns the volume that a StorageClass with immediate binding provisions for a claim.

    It is unknown which zone the driver would choose, so every node in the allowed topologies can use the volume.
    """
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


def default_class(objects: Objects) -> str | None:
    """Returns the name of the newest StorageClass that is marked as the default; None if no class is marked."""
    defaults = [each for each in objects.all(StorageClass).values() if each.annotations.get(_DEFAULT_CLASS) == "true"]
    newest = min(defaults, key=lambda each: (-each.metadata.created_seconds, each.name), default=None)
    return newest.name if newest is not None else None


def _owner(owner: Pod | PodGroup) -> OwnerReference:
    version = "v1" if isinstance(owner, Pod) else _GROUP_VERSION
    return OwnerReference(
        api_version=version, kind=type(owner).__name__, name=owner.name, uid=owner.uid, controller=True
    )


def without_group(pod: Pod, table: Table) -> Pod:
    """Returns the pod without its group. It keeps the claims that it shares with the group."""
    group = sharing_group(pod, table)
    if group is None:
        return pod.with_spec(scheduling_group=None)
    shared, statuses = group.spec.resource_claims or (), group.status.resource_claim_statuses
    claims = [
        PodResourceClaim(named.name, resource_claim_name=name)
        if named in shared and (name := generated_name(statuses, named.name)) is not None
        else named
        for named in pod.spec.resource_claims or ()
    ]
    return pod.with_spec(scheduling_group=None, resource_claims=claims or None)


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
