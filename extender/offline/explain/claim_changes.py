"""Suggests changes to a pod's claims: of volumes, with the StorageClasses that they name, and of devices.

A pod gets devices by smaller claims, or by the removal of pods that use another claim.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.devices.plan import ClaimsOfVictims, deallocated
from extender.engine import Decision
from extender.model.devices import (
    EXACT_COUNT,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
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
from extender.offline.explain.suggestion import ClaimStep, SuggestedChange, steps_for_claims, subsets
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.runtime.text import counted, listed

_SIZE_OF_LOST_DATA = 2
_SIZE_OF_SHARED_CLASS = 2  # a StorageClass can only be changed by recreating it, and other claims use it too
_BINDING_ANNOTATIONS = (BETA_STORAGE_CLASS_ANNOTATION, BIND_COMPLETED_ANNOTATION, SELECTED_NODE_ANNOTATION)


def volume_steps(state: ClusterState, pod: Pod) -> Iterator[ClaimStep]:
    """Yields changes to the pod's PersistentVolumeClaims, the smallest first."""
    yield from steps_for_claims([list(_volume_steps_for(state, use)) for use in claims_of(pod)])


def _volume_steps_for(state: ClusterState, use: ClaimUse) -> Iterator[ClaimStep]:
    claim = state.objects.get(PersistentVolumeClaim, use.key)
    default = default_class(state.objects)
    every_class = state.objects.all(StorageClass).values()
    delayed = [each for each in every_class if each.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER]
    classes = sorted(delayed, key=lambda each: each.name != default)[:_MOST_CLASSES]
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


Exact = TypeVar("Exact", bound=ExactDeviceRequest)

_MOST_CLASSES = 16
_MOST_COUNTS = 64
_MOST_CLAIMS_FREED = 32
_MOST_NAMED = 8


class _RequestStep(NamedTuple):
    """A changed request of a ResourceClaim; `text` says how it is changed, `size` is the cost of the change."""

    text: str
    size: float
    request: DeviceRequest


def device_steps(state: ClusterState, pod: Pod) -> Iterator[ClaimStep]:
    """Yields changes to the pod's ResourceClaims, the smallest first."""
    yield from steps_for_claims([list(_steps_for(state, claim)) for claim in _unallocated_claims(state, pod)])


def freed_devices(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests removing all pods that use a claim, so that its devices become free; None if that does not help.

    Preemption frees the devices of claims only with `devicePreemption`.
    """
    if not _unallocated_claims(state, pod):
        return None
    by_uid = {info.uid: info for info in state.infos.values()}
    reserved = [claim for claim in state.objects.all(ResourceClaim).values() if claim.status.reserved_for]
    reserved.sort(key=lambda claim: (len(claim.status.reserved_for or ()), claim.key))
    for claim in reserved[:_MOST_CLAIMS_FREED]:
        users = [by_uid[user.uid] for user in claim.status.reserved_for or () if user.uid in by_uid]
        if not users or any(is_pinned(info.pod) for info in users):
            continue
        free = replace(claim, status=ResourceClaimStatus())
        with state.engine.suppose(objects=[free], remove=users):
            nodes = state.engine.feasible(pod)
        if nodes:
            keys = tuple(info.pod.key for info in users)
            text = f"remove {listed(keys)}, which frees the devices of ResourceClaim {claim.key}"
            return SuggestedChange(
                "free-devices", text, 1 + len(keys), sorted(nodes), removed=keys, set_objects=(free,)
            )
    return None


def preempted_devices(state: ClusterState, decision: Decision) -> Iterator[str]:
    """Yields a note on the devices that the proposed evictions free, if the profile preempts for devices.

    The note says if the pod would fit then, because the pod is decided again without the victims and their claims.
    """
    preemption = decision.preemption
    if preemption is None or preemption.nominated_node is None:
        return
    if not state.profiles.of(decision.pod).device_preemption:
        return
    candidate = preemption.candidates[preemption.nominated_node]
    of_victims = ClaimsOfVictims(state.table)
    claims = of_victims.freed_by([victim.uid for victim in candidate.victims])
    devices = [result.device for claim in claims for result in (claim.allocation.results if claim.allocation else ())]
    if not devices:
        return
    free = [deallocated(claim) for claim in (*claims, *of_victims.left_behind)]
    with state.engine.suppose(objects=free, remove=candidate.victims):
        fits = candidate.node in state.engine.feasible(decision.pod)
    keys = [victim.pod.key for victim in candidate.victims]
    outcome = "then the claim fits" if fits else "the claim does not fit even then"
    yield f"evicting {all_of(keys)} frees {all_of(devices)} of node {candidate.node}; {outcome}"


def all_of(words: Sequence[str]) -> str:
    """Returns `a`, `a and b`, or `a, b and c`; of a long list, the first words and their number."""
    if not 1 < len(words) <= _MOST_NAMED:
        return listed(words, _MOST_NAMED)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _unallocated_claims(state: ClusterState, pod: Pod) -> list[ResourceClaim]:
    """Returns the pod's existing ResourceClaims that have no devices allocated."""
    generated = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    names = [each.resource_claim_name or generated.get(each.name) for each in pod.spec.resource_claims or ()]
    claims = (state.objects.get(ResourceClaim, f"{pod.namespace}/{name}") for name in names)
    return [claim for claim in claims if claim is not None and claim.allocation is None]


def _steps_for(state: ClusterState, claim: ResourceClaim) -> Iterator[ClaimStep]:
    requests = list(claim.requests)
    devices = claim.spec.devices
    referenced = {
        name for each in (*(devices.constraints or ()), *(devices.config or ())) for name in each.requests or ()
    }
    most = _most_devices(state)
    for position, request in enumerate(requests):
        for step in _request_steps(state, request, referenced, most):
            changed = [*requests[:position], step.request, *requests[position + 1 :]]
            spec = replace(claim.spec, devices=replace(devices, requests=changed))
            text = f"{step.text} in request {request.name} of ResourceClaim {claim.key}"
            yield ClaimStep(text, step.size, (replace(claim, spec=spec),))


def _request_steps(
    state: ClusterState, request: DeviceRequest, referenced: set[str], most: int
) -> Iterator[_RequestStep]:
    """Yields changes to a request.

    If a request lists alternatives, an alternative may be dropped if its DeviceClass does not exist. It stays if a
    constraint or a configuration refers to it, because the API server would refuse the claim without it.
    """
    if request.exactly is not None:
        for text, size, exactly in _smaller(state, request.exactly, most):
            yield _RequestStep(text, size, replace(request, exactly=exactly))
        return
    alternatives = request.first_available or []
    classes = state.objects.all(DeviceClass)
    without_class = (each for each in alternatives if each.device_class_name not in classes)
    useless = [each for each in without_class if f"{request.name}/{each.name}" not in referenced]
    if 0 < len(useless) < len(alternatives):
        rest = [each for each in alternatives if each not in useless]
        yield _RequestStep(_dropping(useless), len(useless), replace(request, first_available=rest))
    for alternative in alternatives:
        dropped = [each for each in useless if each is not alternative]
        dropping = f"{_dropping(dropped)} and " if dropped else ""
        for text, size, smaller in _smaller(state, alternative, most):
            rest = [smaller if each is alternative else each for each in alternatives if each not in dropped]
            text = f"{dropping}{text} in alternative {alternative.name}"
            yield _RequestStep(text, size + len(dropped), replace(request, first_available=rest))


def _dropping(alternatives: Sequence[DeviceSubRequest]) -> str:
    names = " and ".join(f"{each.name} of DeviceClass {each.device_class_name}" for each in alternatives)
    return f"drop alternative {names}, which does not exist,"


def _smaller(state: ClusterState, request: Exact, most: int) -> Iterator[tuple[str, float, Exact]]:
    """Yields (text, size, request) for requests with another DeviceClass, fewer devices or fewer selectors."""
    classes = state.objects.all(DeviceClass)
    if request.device_class_name not in classes:
        for name in sorted(classes)[:_MOST_CLASSES]:
            text = f"name DeviceClass {name} instead of {request.device_class_name}, which does not exist,"
            yield text, 1, replace(request, device_class_name=name)
        return
    if request.allocation_mode == EXACT_COUNT:
        largest = min(request.count - 1, most)
        for count in range(largest, max(largest - _MOST_COUNTS, 0), -1):
            text = f"ask for {counted(count, 'device')} instead of {request.count}"
            yield text, request.count - count, replace(request, count=count)
    selectors = request.selectors or []
    for dropped in subsets(range(len(selectors))):
        rest = [selector for position, selector in enumerate(selectors) if position not in dropped]
        expressions = " and ".join(selectors[i].cel.expression for i in dropped if selectors[i].cel)
        yield f"drop the selector {expressions}", len(dropped), replace(request, selectors=rest or None)


def _most_devices(state: ClusterState) -> int:
    """Returns the most devices that one node can give a claim; sys.maxsize if several claims can share a device."""
    per_node = Counter[str]()
    for resource_slice in state.objects.all(ResourceSlice).values():
        devices = resource_slice.spec.devices or ()
        if any(device.allow_multiple_allocations for device in devices):
            return sys.maxsize
        per_node[resource_slice.spec.node_name or ""] += len(devices)
    on_any_node = per_node.pop("", 0)
    return on_any_node + max(per_node.values(), default=0)
