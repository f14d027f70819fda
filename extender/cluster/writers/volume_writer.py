"""Binds volumes to claims and selects nodes for claims (upstream volumeBinder.bindAPIUpdate)."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.statuses import MERGE
from extender.model.meta import Object
from extender.model.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)

_ENCODE = msgspec.json.Encoder().encode
_VOLUME = msgspec.json.Decoder(PersistentVolume)
_CLAIM = msgspec.json.Decoder(PersistentVolumeClaim)
T = TypeVar("T", bound=Object)


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
        return self._client.call_for(decoder.decode, "PATCH", path, body, content_type=MERGE)
