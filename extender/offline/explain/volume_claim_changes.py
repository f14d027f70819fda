"""Suggests changes to a pod's PersistentVolumeClaims and to the StorageClasses that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from extender.model.meta import ObjectMeta
from extender.model.pod import Pod
from extender.model.pod_volumes import ClaimUse, claims_of
from extender.model.storage import (
    BETA_STORAGE_CLASS_ANNOTATION,
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
    VolumePhase,
    VolumeResources,
)
from extender.offline.claims import default_class
from extender.offline.explain.suggestion import ClaimStep, steps_for_claims
from extender.offline.state import ClusterState

_MOST_CLASSES = 16
_SIZE_OF_LOST_DATA = 2
_SIZE_OF_SHARED_CLASS = 2  # a StorageClass can only be changed by recreating it, and other claims use it too
_BINDING_ANNOTATIONS = (BETA_STORAGE_CLASS_ANNOTATION, BIND_COMPLETED_ANNOTATION, SELECTED_NODE_ANNOTATION)


def steps(state: ClusterState, pod: Pod) -> Iterator[ClaimStep]:
    """Yields changes to the pod's PersistentVolumeClaims, the smallest first."""
    yield from steps_for_claims([list(_steps_for(state, use)) for use in claims_of(pod)])


def _steps_for(state: ClusterState, use: ClaimUse) -> Iterator[ClaimStep]:
    claim = state.objects.get(PersistentVolumeClaim, use.key)
    default = default_class(state.objects)
    classes = sorted(
        (
            each
            for each in state.objects.all(StorageClass).values()
            if each.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        ),
        key=lambda each: each.name != default,
    )[:_MOST_CLASSES]
    if claim is None:
        if use.owner is None:
            yield from _created(use, classes)
        return
    yield from _recreated(claim, classes)
    if claim.class_name and not claim.spec.volume_name:
        yield from _changed_class(state, claim.class_name)


def _created(use: ClaimUse, classes: Sequence[StorageClass]) -> Iterator[ClaimStep]:
    for storage_class in classes:
        spec = PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=VolumeResources({STORAGE: "1Gi"}),
            storage_class_name=storage_class.name,
        )
        claim = PersistentVolumeClaim(ObjectMeta(use.name, use.namespace, use.key), spec)
        text = f"create PersistentVolumeClaim {use.key} with StorageClass {storage_class.name}"
        yield ClaimStep(text, 1, (claim,))


def _recreated(claim: PersistentVolumeClaim, classes: Sequence[StorageClass]) -> Iterator[ClaimStep]:
    volume = claim.spec.volume_name
    for storage_class in classes:
        if not volume and storage_class.name == claim.class_name:
            continue
        lost = f", which replaces {volume} by an empty volume" if volume else ""
        text = f"recreate PersistentVolumeClaim {claim.key} with StorageClass {storage_class.name}{lost}"
        yield ClaimStep(text, _SIZE_OF_LOST_DATA if volume else 1, (_unbound(claim, storage_class),))


def _changed_class(state: ClusterState, name: str) -> Iterator[ClaimStep]:
    """Yields a step that creates a missing StorageClass, or makes it bind volumes after the pod's node is chosen."""
    storage_class = state.objects.all(StorageClass).get(name)
    if storage_class is None:
        for provisioner in _provisioners(state)[:1]:
            missing = StorageClass(ObjectMeta(name), provisioner, WAIT_FOR_FIRST_CONSUMER)
            text = f"create StorageClass {name} with provisioner {provisioner} and {WAIT_FOR_FIRST_CONSUMER}"
            yield ClaimStep(text, 1, (missing,))
    elif storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        changed = replace(storage_class, volume_binding_mode=WAIT_FOR_FIRST_CONSUMER)
        text = f"recreate StorageClass {name} with volumeBindingMode {WAIT_FOR_FIRST_CONSUMER}"
        yield ClaimStep(text, _SIZE_OF_SHARED_CLASS, (changed,))


def _unbound(claim: PersistentVolumeClaim, storage_class: StorageClass) -> PersistentVolumeClaim:
    """Returns the claim as if it had just been created with this StorageClass."""
    annotations = {key: value for key, value in claim.annotations.items() if key not in _BINDING_ANNOTATIONS}
    return replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations or None, deletion_timestamp=None),
        spec=replace(claim.spec, storage_class_name=storage_class.name, volume_name=""),
        status=VolumePhase(),
    )


def _provisioners(state: ClusterState) -> list[str]:
    """Returns the names of the storage drivers in the cluster."""
    drivers = {driver.name for driver in state.objects.all(CSIDriver).values()}
    drivers |= {driver.name for node in state.objects.all(CSINode).values() for driver in node.drivers}
    provisioners = {each.provisioner for each in state.objects.all(StorageClass).values() if each.provisions}
    return sorted(drivers | provisioners)
