"""Volumes, their claims and classes, CSI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.builders.builder import Builder, Object


def make_storage_class(name: str, *, wait: bool = True, provisioner: str = "csi.example.com", **fields: Any) -> Object:
    """`wait`: WaitForFirstConsumer, else Immediate."""
    mode = "WaitForFirstConsumer" if wait else "Immediate"
    storage_class = Builder("storage.k8s.io/v1", "StorageClass", name).obj()
    return {**storage_class, "provisioner": provisioner, "volumeBindingMode": mode, **fields}


def make_pvc(
    name: str,
    *,
    namespace: str = "default",
    storage_class: str | None = None,
    storage: str = "1Gi",
    access_mode: str = "ReadWriteOnce",
    volume: str | None = None,
) -> Object:
    """With a volume the claim is bound to it."""
    claim = Builder("v1", "PersistentVolumeClaim", name, namespace)
    spec = {"accessModes": [access_mode], "resources": {"requests": {"storage": storage}}}
    optional = {"storageClassName": storage_class, "volumeName": volume}
    spec |= {field: given for field, given in optional.items() if given is not None}
    if volume is not None:
        claim.annotation({"pv.kubernetes.io/bind-completed": "yes"})
    return {**claim.obj(), "spec": spec, "status": {"phase": "Bound" if volume else "Pending"}}


def make_pv(
    name: str,
    *,
    storage_class: str = "",
    storage: str = "1Gi",
    access_mode: str = "ReadWriteOnce",
    source: Object | None = None,
    node_terms: Iterable[Object] = (),
    labels: Mapping[str, str] | None = None,
    claim: str | None = None,
) -> Object:
    """`source` is a CSI volume unless given; `claim` is the namespace/name of the claim that it is bound to."""
    spec: Object = {"capacity": {"storage": storage}, "accessModes": [access_mode], "storageClassName": storage_class}
    spec |= source or {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
    terms = list(node_terms)
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if claim is not None:
        claim_namespace, claim_name = claim.split("/")
        uid = f"persistentvolumeclaim-{claim_namespace}-{claim_name}"
        spec["claimRef"] = {"namespace": claim_namespace, "name": claim_name, "uid": uid}
    volume = Builder("v1", "PersistentVolume", name).label(labels).obj()
    return {**volume, "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def make_csi_node(name: str, limits: Mapping[str, int]) -> Object:
    """`limits`: attachable volumes by driver."""
    drivers = [
        {"name": driver, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
        for driver, count in limits.items()
    ]
    return {**Builder("storage.k8s.io/v1", "CSINode", name).obj(), "spec": {"drivers": drivers}}


def make_csi_driver(name: str, **spec: Any) -> Object:
    return {**Builder("storage.k8s.io/v1", "CSIDriver", name).obj(), "spec": spec}


def make_storage_capacity(
    name: str, storage_class: str, *, labels: Mapping[str, str] | None = None, namespace: str = "default", **fields: Any
) -> Object:
    """The capacity that is left to provision on the nodes with these labels (none given: on no node)."""
    capacity = Builder("storage.k8s.io/v1", "CSIStorageCapacity", name, namespace).obj()
    topology = {} if labels is None else {"nodeTopology": {"matchLabels": dict(labels)}}
    return {**capacity, "storageClassName": storage_class, **topology, **fields}


def make_volume_attachment(name: str, node: str, volume: str, *, attacher: str = "csi.example.com") -> Object:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {**Builder("storage.k8s.io/v1", "VolumeAttachment", name).obj(), "spec": spec}
