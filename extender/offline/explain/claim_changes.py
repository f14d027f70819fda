"""Changes to the claims of a pod, for volumes and for devices, and to what they name, that would let it run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.model.devices.claims import (
    EXACT_COUNT,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from extender.model.devices.slices import DeviceClass, ResourceSlice
from extender.model.meta import Object, ObjectMeta
from extender.model.volumes.pod_volumes import ClaimUse
from extender.model.volumes.storage import (
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
from extender.offline.explain.spec_changes import subsets
from extender.offline.state import ClusterState
from extender.table import PodInfo

Exact = TypeVar("Exact", bound=ExactDeviceRequest)

_MOST_CLASSES, _MOST_COUNT, _MOST_TOGETHER = 16, 64, 2
_SIZE_OF_EMPTY = 2  # a claim that is made anew loses its data; a class that is made anew is that of other claims too


class ClaimStep(NamedTuple):
    """Objects as they would be. `size`: 1 for each name or selector, and for each device less; 2 for what is lost."""

    text: str
    size: float
    objects: tuple[Object, ...]


def volume_steps(state: ClusterState, info: PodInfo) -> Iterator[ClaimStep]:
    """Changes to claims for volumes, the smallest first."""
    yield from _together([list(_of_volume_claim(state, use)) for use in info.claims])


def device_steps(state: ClusterState, info: PodInfo) -> Iterator[ClaimStep]:
    """Changes to claims for devices, the smallest first."""
    yield from _together([list(_of_device_claim(state, claim)) for claim in device_claims(state, info)])


def device_claims(state: ClusterState, info: PodInfo) -> list[ResourceClaim]:
    """The claims for devices of the pod that exist and have none yet."""
    pod, made = (
        info.pod,
        {each.name: each.resource_claim_name for each in info.pod.status.resource_claim_statuses or ()},
    )
    names = [each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims or ()]
    found = (state.table.objects.get(ResourceClaim, f"{pod.namespace}/{name}") for name in names)
    return [claim for claim in found if claim is not None and claim.allocation is None]


def _together(choices: Sequence[Sequence[ClaimStep]]) -> Iterator[ClaimStep]:
    """Each step by itself, then of several claims at once; of equally many the smaller first."""
    for count in range(1, min(len(choices), _MOST_TOGETHER) + 1):
        steps = [chosen for some in combinations(choices, count) for chosen in product(*some)]
        for chosen in sorted(steps, key=lambda each: sum(step.size for step in each)):
            objects = tuple(obj for step in chosen for obj in step.objects)
            yield ClaimStep(" and ".join(step.text for step in chosen), sum(step.size for step in chosen), objects)


# ---- volumes


def _of_volume_claim(state: ClusterState, use: ClaimUse) -> Iterator[ClaimStep]:
    claim = state.table.objects.get(PersistentVolumeClaim, use.key)
    classes = state.table.objects.all(StorageClass)
    waiting = [each for each in classes.values() if each.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER]
    if claim is None:
        for each in waiting[:_MOST_CLASSES] if use.owner is None else ():
            yield ClaimStep(
                f"create PersistentVolumeClaim {use.key} of StorageClass {each.name}", 1, (_new(use, each),)
            )
        return
    lost = bool(claim.spec.volume_name)
    emptied = f", with an empty volume in place of {claim.spec.volume_name}" if lost else ""
    for each in waiting[:_MOST_CLASSES]:
        if lost or each.name != claim.class_name:
            text = f"make PersistentVolumeClaim {use.key} anew of StorageClass {each.name}{emptied}"
            yield ClaimStep(text, _SIZE_OF_EMPTY if lost else 1, (_anew(claim, each),))
    if lost or not claim.class_name:
        return
    wanted = classes.get(claim.class_name)
    if wanted is None:
        for provisioner in _provisioners(state)[:1]:
            wanted = StorageClass(ObjectMeta(claim.class_name), provisioner, WAIT_FOR_FIRST_CONSUMER)
            text = f"create StorageClass {wanted.name} with provisioner {provisioner} and {WAIT_FOR_FIRST_CONSUMER}"
            yield ClaimStep(text, 1, (wanted,))
    elif wanted.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        text = f"make StorageClass {wanted.name} anew with volumeBindingMode {WAIT_FOR_FIRST_CONSUMER}"
        yield ClaimStep(text, _SIZE_OF_EMPTY, (replace(wanted, volume_binding_mode=WAIT_FOR_FIRST_CONSUMER),))


def _new(use: ClaimUse, of_class: StorageClass) -> PersistentVolumeClaim:
    spec = PersistentVolumeClaimSpec(
        access_modes=["ReadWriteOnce"],
        resources=VolumeResources({STORAGE: "1Gi"}),
        storage_class_name=of_class.name,
    )
    return PersistentVolumeClaim(ObjectMeta(use.name, use.namespace, use.key), spec)


def _anew(claim: PersistentVolumeClaim, of_class: StorageClass) -> PersistentVolumeClaim:
    """The claim as if it had just been made."""
    theirs = (BETA_STORAGE_CLASS_ANNOTATION, BIND_COMPLETED_ANNOTATION, SELECTED_NODE_ANNOTATION)
    annotations = {key: value for key, value in claim.annotations.items() if key not in theirs}
    return replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations or None, deletion_timestamp=None),
        spec=replace(claim.spec, storage_class_name=of_class.name, volume_name=""),
        status=VolumePhase(),
    )


def _provisioners(state: ClusterState) -> list[str]:
    """The drivers that there are, by name."""
    objects = state.table.objects
    named = {each.name for each in objects.all(CSIDriver).values()}
    named |= {driver.name for each in objects.all(CSINode).values() for driver in each.drivers}
    return sorted(named | {each.provisioner for each in objects.all(StorageClass).values() if each.provisions})


# ---- devices


def _of_device_claim(state: ClusterState, claim: ResourceClaim) -> Iterator[ClaimStep]:
    requests, devices = list(claim.requests), claim.spec.devices
    referred = {
        name for each in (*(devices.constraints or ()), *(devices.config or ())) for name in each.requests or ()
    }
    most = _most_devices(state)
    for at, request in enumerate(requests):
        for text, size, changed in _of_request(state, request, referred, most):
            spec = replace(
                claim.spec, devices=replace(devices, requests=[*requests[:at], changed, *requests[at + 1 :]])
            )
            told = f"{text} in request {request.name} of ResourceClaim {claim.key}"
            yield ClaimStep(told, size, (replace(claim, spec=spec),))


def _of_request(
    state: ClusterState, request: DeviceRequest, referred: set[str], most: int
) -> Iterator[tuple[str, float, DeviceRequest]]:
    """Changes to the request; of a prioritized list to one alternative, where others of no class are dropped.

    An alternative that a constraint or a configuration refers to stays: the API server would refuse the claim.
    """
    if request.exactly is not None:
        for text, size, exactly in _less_of(state, request.exactly, most):
            yield text, size, replace(request, exactly=exactly)
        return
    alternatives, classes = request.first_available or [], state.table.objects.all(DeviceClass)
    lost = [each for each in alternatives if each.device_class_name not in classes]
    lost = [each for each in lost if f"{request.name}/{each.name}" not in referred]
    if 0 < len(lost) < len(alternatives):
        kept = [each for each in alternatives if each not in lost]
        yield _dropping(lost), len(lost), replace(request, first_available=kept)
    for chosen in alternatives:
        gone = [each for each in lost if each is not chosen]
        dropping = f"{_dropping(gone)} and " if gone else ""
        for text, size, less in _less_of(state, chosen, most):
            left = [less if each is chosen else each for each in alternatives if each not in gone]
            told = f"{dropping}{text} in alternative {chosen.name}"
            yield told, size + len(gone), replace(request, first_available=left)


def _dropping(alternatives: Sequence[DeviceSubRequest]) -> str:
    dropped = (f"{each.name} of DeviceClass {each.device_class_name}" for each in alternatives)
    return f"drop alternative {' and '.join(dropped)}, which does not exist,"


def _less_of(state: ClusterState, request: Exact, most: int) -> Iterator[tuple[str, float, Exact]]:
    classes = state.table.objects.all(DeviceClass)
    if request.device_class_name not in classes:
        for name in sorted(classes)[:_MOST_CLASSES]:
            text = f"name DeviceClass {name} instead of {request.device_class_name}, which does not exist,"
            yield text, 1, replace(request, device_class_name=name)
        return
    if request.allocation_mode == EXACT_COUNT:
        largest = min(request.count - 1, most)
        for count in range(largest, max(largest - _MOST_COUNT, 0), -1):
            text = f"ask for {count} device{'s' if count > 1 else ''} instead of {request.count}"
            yield text, request.count - count, replace(request, count=count)
    selectors = request.selectors or []
    for gone in subsets(range(len(selectors))):
        left = [each for at, each in enumerate(selectors) if at not in gone]
        told = " and ".join(each.cel.expression for each in (selectors[at] for at in gone) if each.cel)
        yield f"drop the selector {told}", len(gone), replace(request, selectors=left or None)


def _most_devices(state: ClusterState) -> int:
    """No node can give a claim more devices; no limit where one device serves several claims."""
    on_node = Counter[str]()
    for each in state.table.objects.all(ResourceSlice).values():
        devices = each.spec.devices or ()
        if any(device.allow_multiple_allocations for device in devices):
            return sys.maxsize
        on_node[each.spec.node_name or ""] += len(devices)
    shared = on_node.pop("", 0)
    return shared + max(on_node.values(), default=0)
