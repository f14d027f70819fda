"""Device classes, claims and slices (resource.k8s.io)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.builders.builder import Builder, Object

API = "resource.k8s.io/v1"


def make_device_class(name: str, *cel: str, extended_resource: str | None = None) -> Object:
    spec: Object = {"selectors": [_selector(text) for text in cel]}
    if extended_resource is not None:
        spec["extendedResourceName"] = extended_resource
    return {**Builder(API, "DeviceClass", name).obj(), "spec": spec}


def make_resource_claim(name: str, device_class: str, *, namespace: str = "default", count: int = 1) -> Object:
    return make_claim(name, make_request("device", device_class, count=count), namespace=namespace)


def make_claim(
    name: str, *requests: Object, namespace: str = "default", constraints: list[Object] | None = None
) -> Object:
    devices: Object = {"requests": list(requests)}
    if constraints is not None:
        devices["constraints"] = constraints
    return {**Builder(API, "ResourceClaim", name, namespace).obj(), "spec": {"devices": devices}}


def make_request(name: str, device_class: str, *cel: str, **fields: Any) -> Object:
    """A request for one device, unless the fields (as the API writes them) say otherwise."""
    return {"name": name, "exactly": _request(device_class, cel, fields)}


def make_prioritized_list(name: str, *alternatives: Object) -> Object:
    return {"name": name, "firstAvailable": list(alternatives)}


def make_alternative(name: str, device_class: str, *cel: str, **fields: Any) -> Object:
    """One of a prioritized list."""
    return {"name": name, **_request(device_class, cel, fields)}


def with_allocation(claim: Object, *results: Object, **fields: Any) -> Object:
    """The claim with devices allocated to it: see `make_result`."""
    return {**claim, "status": {"allocation": {"devices": {"results": list(results)}, **fields}}}


def make_result(pool: str, device: str, driver: str = "gpu.example.com", **fields: Any) -> Object:
    return {"request": "device", "driver": driver, "pool": pool, "device": device, **fields}


def make_device(
    name: str,
    attributes: Mapping[str, object] | None = None,
    capacity: Mapping[str, str | Object] | None = None,
    **fields: Any,
) -> Object:
    """Attributes are plain values, or `version("1.2.3")`; capacities are quantities, or what the API writes there."""
    device: Object = {"name": name, **fields}
    if attributes is not None:
        device["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity is not None:
        device["capacity"] = {key: v if isinstance(v, dict) else {"value": v} for key, v in capacity.items()}
    return device


def version(text: str) -> Object:
    return {"version": text}


def make_resource_slice(node: str, driver: str, *devices: str | Object) -> Object:
    """One pool a node, named after it, whole in this slice; devices that are only named have no attributes."""
    return make_slice(f"{node}-{driver}", driver, node, *devices, nodeName=node)


def make_slice(
    name: str, driver: str, pool: str, *devices: str | Object, generation: int = 1, slices: int = 1, **fields: Any
) -> Object:
    """A slice of a pool of so many slices; the fields, as the API writes them, say which nodes reach it."""
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": slices}
    offered = [make_device(device) if isinstance(device, str) else device for device in devices]
    spec = {"driver": driver, "pool": of_pool, **({"devices": offered} if offered else {}), **fields}
    return {**Builder(API, "ResourceSlice", name).obj(), "spec": spec}


def make_device_taint_rule(name: str, taint: Object, **selector: str) -> Object:
    spec = {"deviceSelector": selector, "taint": taint}
    return {**Builder(API, "DeviceTaintRule", name).obj(), "spec": spec}


def _request(device_class: str, cel: tuple[str, ...], fields: Mapping[str, Any]) -> Object:
    request: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", **fields}
    if request["allocationMode"] == "ExactCount":
        request.setdefault("count", 1)
    if cel:
        request["selectors"] = [_selector(text) for text in cel]
    return request


def _selector(cel: str) -> Object:
    return {"cel": {"expression": cel}}


def _attribute(value: object) -> Object:
    match value:
        case dict():
            return value
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case _:
            return {"string": value}
