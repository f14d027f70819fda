"""Binds pods at the API server, and writes what a binding needs first: ResourceClaims, and the volumes of claims.

Source: upstream DynamicResources.bindClaim, volumeBinder.bindAPIUpdate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.kube_client import ApiCall, Caller
from extender.cluster.statuses import MERGE, STRATEGIC_MERGE, patch_status
from extender.errors import Conflict, NotFound, OutcomeUnknown, Refused
from extender.model.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    RESOURCE_CLAIM_FINALIZER,
    AllocationResult,
    ConsumerReference,
    RequestMapping,
    ResourceClaim,
)
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from extender.runtime.clock import Clock
from extender.runtime.ports import Binder, Binding, Check, always
from extender.runtime.threads import HangingCalls

_log = logging.getLogger(__name__)
_ENCODE = msgspec.json.Encoder().encode
# A Binding requires these of its pod. All other conflicts are errors of the storage.
_ABOUT_THE_POD = re.compile(
    "is already assigned to node|is being deleted, cannot be assigned|has non-empty .spec.schedulingGates"
    "|Precondition failed: "
)
_PLAIN = re.compile(r"[a-z0-9.-]*")  # the API server accepts only names of these characters
_TRIES = 5
_API = "resource.k8s.io/v1"
_DECODE = msgspec.json.Decoder(ResourceClaim).decode
_VOLUME = msgspec.json.Decoder(PersistentVolume)
_CLAIM = msgspec.json.Decoder(PersistentVolumeClaim)
T = TypeVar("T", bound=Object)


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, "")


class ApiBinder:
    """A ports.Binder that posts Bindings with the pod's UID as precondition.

    The client may post a Binding twice. The API server then answers with a conflict that names the pod's node; if this
    is the right node, the bind has succeeded. After a status 429, `bind` raises Refused, and the scheduler tries again
    later. Waiting here would use up the time limit of the scheduler's call.

    kube-apiserver answers 409 to a Binding whenever the storage fails, also if etcd has not answered in time and may
    still store the pod. So a conflict is a refusal only if its message says that the pod was in the way.
    """

    def __init__(self, client: Caller) -> None:
        self._client = client

    def bind(self, binding: Binding, check: Check = always) -> None:
        namespace, name, uid, node, annotations = binding
        chosen = {"annotations": dict(annotations)} if annotations else {}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, **chosen},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}/binding"
        try:
            self._client.call(ApiCall("POST", path, _ENCODE(body), check=check))
        except Refused as error:
            # The API server checks the UID before the node, so this conflict is about the same pod.
            if isinstance(error, Conflict) and f'is already assigned to node "{node}"' in str(error):
                return
            # The status code is removed, so that the pod's event has the same text as kube-scheduler's.
            words = str(error).removeprefix(f"{error.status}: ")
            if isinstance(error, Conflict) and not _ABOUT_THE_POD.search(words):
                raise OutcomeUnknown(words) from None
            raise type(error)(words, error.status) from None


class WatchedBinder:
    """A ports.Binder that logs a bind which has not been answered for some seconds."""

    def __init__(self, binder: Binder, hanging: HangingCalls) -> None:
        self._binder = binder
        self._hanging = hanging

    def bind(self, binding: Binding, check: Check = always) -> None:
        with self._hanging.watch(partial(_warn, binding)):
            self._binder.bind(binding, check)


def _warn(binding: Binding, seconds: float) -> None:
    _log.warning("bind has no answer yet pod=%s node=%s seconds=%d", binding.key, binding.node, seconds)


class ApiClaims:
    """A scheduler_ports.ClaimWriter that sends strategic merge patches with UID and version as preconditions.

    If a claim was changed after it was read, the writer reads it again, checks it, and repeats the patch.
    """

    def __init__(self, client: Caller, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def create(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        metadata = {
            "generateName": f"{pod.name}-extended-resources-",
            "namespace": pod.namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            "ownerReferences": claim.metadata.owner_references,
        }
        body = {"apiVersion": _API, "kind": "ResourceClaim", "metadata": metadata, "spec": claim.spec}
        return self._client.call_for(_DECODE, ApiCall("POST", _collection(pod.namespace), _ENCODE(body)))

    def bind(
        self, claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None
    ) -> ResourceClaim:
        current = claim
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._bind(current, consumer, allocation)
            except Conflict:
                if not tries_left:
                    raise
            current = self._read(claim)
            if _is_done(current, consumer, allocation):  # an earlier attempt without an answer was carried out
                return current
            if allocation is not None and _has(current, allocation):  # another member has written the allocation
                allocation = None
            elif allocation is None and current.allocation is not None and _place(current) != _place(claim):
                raise Refused(f"claim {claim.key} got allocated elsewhere in the meantime", 409)
        raise AssertionError("unreachable")

    def release(self, claim: ResourceClaim, uid: str, *, deallocate: bool) -> ResourceClaim | None:
        for tries_left in reversed(range(_TRIES)):
            try:
                current = self._read(claim)
                if not current.is_reserved_for(uid):
                    # Removing the finalizer changes the version, so the API server refuses an allocation in flight.
                    return self._without_finalizer(current) if deallocate and current.allocation is None else current
                if deallocate and current.is_only_for(uid):
                    return self._without_finalizer(self.deallocate(current))
                removal = {"$patch": "delete", "uid": uid}
                return self._patch(current, {"status": {"reservedFor": [removal]}}, "/status")
            except NotFound:
                return None
            except Conflict:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        nothing = {"allocation": None, "reservedFor": None, "devices": None}
        return self._patch(claim, {"status": nothing}, "/status")

    def delete(self, claim: ResourceClaim) -> None:
        try:
            self._without_finalizer(self._read(claim))
            preconditions = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": claim.uid}}
            self._client.call(ApiCall("DELETE", _path(claim), _ENCODE(preconditions)))
        except NotFound:
            pass

    def describe(self, pod: Pod, claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> None:
        status = {"extendedResourceClaimStatus": {"resourceClaimName": claim.name, "requestMappings": mappings}}
        patch_status(self._client, pod, status)

    def _bind(
        self, claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None
    ) -> ResourceClaim:
        if claim.terminating:
            raise Refused(f"claim {claim.key} got deleted in the meantime", 409)
        if (allocation is None) is (claim.allocation is None):
            change = "allocated" if allocation is not None else "deallocated"
            raise Refused(f"claim {claim.key} got {change} elsewhere in the meantime", 409)
        status: dict[str, Any] = {"reservedFor": [consumer]}
        if allocation is not None:
            # The finalizer is not part of the status. It is written first, so that no allocated claim can be deleted.
            claim = self._patch(claim, {"metadata": {"finalizers": [RESOURCE_CLAIM_FINALIZER]}})
            now = datetime.fromtimestamp(int(self._clock.now()), UTC)
            status["allocation"] = msgspec.structs.replace(allocation, allocation_timestamp=now)
        return self._patch(claim, {"status": status}, "/status")

    def _without_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        return self._patch(claim, {"metadata": {"$deleteFromPrimitiveList/finalizers": [RESOURCE_CLAIM_FINALIZER]}})

    def _read(self, claim: ResourceClaim) -> ResourceClaim:
        read = self._client.call_for(_DECODE, ApiCall("GET", _path(claim)))
        if read.uid != claim.uid:
            raise NotFound(f"claim {claim.key} was deleted and created again", 404)
        return read

    def _patch(self, claim: ResourceClaim, patch: dict[str, Any], subresource: str = "") -> ResourceClaim:
        unchanged = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **unchanged}}
        call = ApiCall("PATCH", _path(claim) + subresource, _ENCODE(body), STRATEGIC_MERGE)
        return self._client.call_for(_DECODE, call)


def _is_done(claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None) -> bool:
    if not claim.is_reserved_for(consumer.uid) or claim.allocation is None:
        return False
    return allocation is None or _has(claim, allocation)


def _has(claim: ResourceClaim, allocation: AllocationResult) -> bool:
    return claim.allocation is not None and claim.allocation.devices == allocation.devices


def _place(claim: ResourceClaim) -> object:
    return claim.allocation and (claim.allocation.devices, claim.allocation.node_selector)


def _collection(namespace: str) -> str:
    return f"/apis/{_API}/namespaces/{quote(namespace, '')}/resourceclaims"


def _path(claim: ResourceClaim) -> str:
    return f"{_collection(claim.namespace)}/{quote(claim.name, '')}"


class ApiVolumes:
    """A scheduler_ports.VolumeWriter that sends merge patches with UID and version as preconditions."""

    def __init__(self, client: Caller) -> None:
        self._client = client

    def bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        # A volume that a user reserved gets no annotation, and so stays reserved when the claim is deleted.
        by_controller = {} if volume.is_bound_to(claim) else {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace}
        reference |= {"name": claim.name, "uid": claim.uid, "resourceVersion": claim.metadata.resource_version}
        path = f"/api/v1/persistentvolumes/{quote(volume.name, '')}"
        return self._patch(path, volume, by_controller, {"spec": {"claimRef": reference}}, _VOLUME)

    def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
        path = f"/api/v1/namespaces/{quote(claim.namespace, '')}/persistentvolumeclaims/{quote(claim.name, '')}"
        return self._patch(path, claim, {SELECTED_NODE_ANNOTATION: node_name}, {}, _CLAIM)

    def _patch(
        self,
        path: str,
        obj: Object,
        annotations: dict[str, str],
        patch: dict[str, Any],
        decoder: msgspec.json.Decoder[T],
    ) -> T:
        metadata: dict[str, Any] = {"uid": obj.uid, "resourceVersion": obj.metadata.resource_version}
        if annotations:
            metadata["annotations"] = annotations
        body = _ENCODE({"metadata": metadata, **patch})
        return self._client.call_for(decoder.decode, ApiCall("PATCH", path, body, MERGE))
