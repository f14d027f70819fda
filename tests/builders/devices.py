"""Device classes, claims and slices (resource.k8s.io)."""

from __future__ import annotations

from tests.builders.builder import Builder, Object


def make_device_class(name: str, *cel: str) -> Object:
    selectors = [{"cel": {"expression": text}} for text in cel]
    return {**Builder("resource.k8s.io/v1", "DeviceClass", name).obj(), "spec": {"selectors": selectors}}


def make_resource_claim(name: str, device_class: str, *, namespace: str = "default", count: int = 1) -> Object:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    claim = Builder("resource.k8s.io/v1", "ResourceClaim", name, namespace).obj()
    return {**claim, "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}}


def make_resource_slice(node: str, driver: str, *devices: str) -> Object:
    """One pool a node, named after it, whole in this slice; the devices have no attributes."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": device} for device in devices]}
    return {**Builder("resource.k8s.io/v1", "ResourceSlice", f"{node}-{driver}").obj(), "spec": spec}
