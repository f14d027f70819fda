"""Handles extended resources that device classes provide. Containers request such a resource by name (KEP-5004).

Source: upstream extendeddynamicresources.go, extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from extender.model.devices import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    RequestMapping,
    ResourceClaim,
    ResourceClaimSpec,
)
from extender.model.meta import ObjectMeta, OwnerReference
from extender.model.pod import Container, Pod
from extender.model.quantity import NANO, nano
from extender.model.requests import RESOURCE_NAMES, is_extended
from extender.table import Table
from extender.table.journal import Cursor

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
CLAIM_NAME = "<extended-resources>"  # the API does not allow this name, so no real claim has it


@lru_cache(RESOURCE_NAMES)
def may_be_backed(resource: str) -> bool:
    """Returns True if a device class may provide a resource of this name.

    Source: upstream IsDRAExtendedResourceName.
    """
    return is_extended(resource) or resource.startswith(IMPLICIT_PREFIX)


def class_behind(resource: str, table: Table) -> DeviceClass | None:
    """Returns the device class that provides an extended resource, None if there is no such class."""
    if not table.objects.all(DeviceClass):
        return None
    return table.reader(_ClassesByResource).of(resource)


class _ClassesByResource:
    """Maps a resource name to the device class that provides the resource; rebuilt when a class changes."""

    def __init__(self, table: Table) -> None:
        self._objects = table.objects
        self._every_has_its_resource = table.features.behaviours.every_class_has_its_resource
        self._changes = Cursor(table.journal, DeviceClass.__name__)
        self._classes: dict[str, DeviceClass] = {}

    def of(self, resource: str) -> DeviceClass | None:
        if self._changes.advance():
            self._classes = self._read()
        return self._classes.get(resource)

    def _read(self) -> dict[str, DeviceClass]:
        by_resource: dict[str, DeviceClass] = {}
        # Classes are sorted by name, because that is the order in which the API server lists them.
        for _, device_class in sorted(self._objects.all(DeviceClass).items()):
            named = device_class.spec.extended_resource_name
            other = by_resource.get(named) if named is not None else None
            is_taken = other is not None and _created(device_class) <= _created(other)
            if not is_taken or self._every_has_its_resource:
                by_resource[f"{IMPLICIT_PREFIX}{device_class.name}"] = device_class
            if named is not None and not is_taken:
                by_resource[named] = device_class
        return by_resource


def _created(device_class: DeviceClass) -> float:
    created = device_class.metadata.creation_timestamp
    return created.timestamp() if created else float("-inf")


def claim_for(pod: Pod) -> ResourceClaim:
    """Returns a claim for the pod's extended resources. It has no requests yet, because these depend on the node."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    metadata = ObjectMeta(
        name=CLAIM_NAME,
        namespace=pod.namespace,
        uid=f"{pod.uid}-extended-resources",
        annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        owner_references=[owner],
    )
    return ResourceClaim(metadata=metadata)


def with_requests(claim: ResourceClaim, pod: Pod, classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """Returns a copy of the claim with the device requests of the pod's containers.

    `classes`: the device class of each extended resource.
    """
    devices = DeviceClaim(requests=requests_and_mappings(pod, classes)[0])
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices=devices))


def requests_and_mappings(
    pod: Pod, classes: Mapping[str, DeviceClass]
) -> tuple[list[DeviceRequest], list[RequestMapping]]:
    """Returns the device requests for the pod's containers, and a mapping from containers to requests.

    An init container that runs to completion uses the devices of containers that start later. It requests only the
    devices that it needs beyond those.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource in sorted(classes):
        containers = _ContainerRequests(pod, resource, classes[resource].name)
        requests += containers.requests()
        mappings += containers.mappings
    return sorted(requests, key=lambda request: request.name), mappings


class _ContainerRequests:
    """Computes the device requests of all containers of a pod for one extended resource."""

    def __init__(self, pod: Pod, resource: str, class_name: str) -> None:
        self._resource = resource
        self._class_name = class_name
        self._init = len(pod.init_containers)
        self._containers = [*pod.init_containers, *pod.containers]
        self._lasting: dict[int, tuple[str, int]] = {}
        self.mappings: list[RequestMapping] = []

    def requests(self) -> Iterator[DeviceRequest]:
        passing = [i for i in range(self._init) if self._containers[i].restart_policy != "Always"]
        for index in sorted(set(range(len(self._containers))) - set(passing)):
            request = self._request(index, ())
            if request is not None:
                self._lasting[index] = request
        lasting = len(self.mappings)
        largest = self._largest(passing)
        if largest is not None:
            own = {_request_name(index, self._containers[index], self._resource) for index in passing}
            self.mappings[lasting:] = [
                mapping._replace(request_name=largest[0]) if mapping.request_name in own else mapping
                for mapping in self.mappings[lasting:]
            ]
            yield self._device_request(*largest)
        for request in self._lasting.values():
            yield self._device_request(*request)

    def _largest(self, passing: Sequence[int]) -> tuple[str, int] | None:
        largest = None
        for index in passing:
            request = self._request(index, [self._lasting[i] for i in sorted(self._lasting) if i >= index])
            if request is not None and (largest is None or request[1] > largest[1]):
                largest = request
        return largest

    def _request(self, index: int, reusable: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        """Returns the device request of a container, as (name, number of devices); None if none is needed.

        Adds every request that the container uses to `mappings`.

        `index`: the index of the container. `reusable`: requests of other containers; their devices are used first.
        """
        container = self._containers[index]
        nanos = nano((container.resources.requests or {}).get(self._resource)) if container.resources else 0
        wanted = 0 if nanos % NANO else nanos // NANO
        if not wanted:
            return None
        for name, count in reusable:
            self._map(container, name)
            wanted -= count
            if wanted <= 0:
                return None
        name = _request_name(index, container, self._resource)
        self._map(container, name)
        return name, wanted

    def _map(self, container: Container, request_name: str) -> None:
        self.mappings.append(RequestMapping(container.name, self._resource, request_name))

    def _device_request(self, name: str, count: int) -> DeviceRequest:
        return DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=self._class_name, count=count))


def _request_name(index: int, container: Container, resource: str) -> str:
    requested = sorted((container.resources.requests or {}) if container.resources else ())
    return f"container-{index}-request-{requested.index(resource) if resource in requested else 0}"
