"""Defines ResourceClaims, their requests and their allocated devices (resource.k8s.io)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from extender.model.devices.slices import DeviceSelector, DeviceToleration, QualifiedName
from extender.model.meta import Condition, Int64, NodeSelector, Object, Value
from extender.model.quantity import Quantity

EXACT_COUNT = "ExactCount"
ALL = "All"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
RESOURCE_CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"


class CapacityRequirements(Value, frozen=True):
    requests: dict[QualifiedName, Quantity] | None = None


class ExactDeviceRequest(Value, frozen=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = EXACT_COUNT
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: list[Any] | None = None


class DeviceSubRequest(ExactDeviceRequest, frozen=True):
    """One of the alternatives of a device request (`first_available`). The API does not allow adminAccess in it."""

    name: str = ""


class DeviceRequest(Value, frozen=True):
    """A request for devices; exactly one of `exactly` and `first_available` is set."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(Value, frozen=True):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Value, frozen=True):
    requests: list[str] | None = None
    opaque: dict[str, Any] | None = None


class DeviceClaim(Value, frozen=True):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceClaimConfiguration] | None = None


class ResourceClaimSpec(Value, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Value, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[QualifiedName, Quantity] | None = None


class DeviceAllocationConfiguration(Value, frozen=True):
    source: str = ""
    requests: list[str] | None = None
    opaque: dict[str, Any] | None = None


class DeviceAllocationResult(Value, frozen=True):
    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(Value, frozen=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None

    @property
    def results(self) -> Sequence[DeviceRequestAllocationResult]:
        return self.devices.results or ()


class AllocatedDeviceStatus(Value, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] | None = None


class ConsumerReference(Value, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @classmethod
    def of_pod(cls, pod: Object) -> ConsumerReference:
        return cls(resource="pods", name=pod.name, uid=pod.uid)

    @classmethod
    def of_group(cls, group: Object) -> ConsumerReference:
        """Returns the reference that reserves a claim for a PodGroup, whose members share the claim."""
        return cls("scheduling.k8s.io", "podgroups", group.name, group.uid)


class ResourceClaimStatus(Value, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(Object, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def requests(self) -> Sequence[DeviceRequest]:
        return self.spec.devices.requests or ()

    @property
    def allocation(self) -> AllocationResult | None:
        return self.status.allocation

    @property
    def is_for_extended_resources(self) -> bool:
        """True if the scheduler created the claim for a pod's extended resources (KEP-5004)."""
        return self.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"

    def is_reserved_for(self, consumer_uid: str) -> bool:
        """Returns True if the pod, or the members of the PodGroup, may use the claim (upstream IsReservedForPod)."""
        return any(consumer.uid == consumer_uid for consumer in self.status.reserved_for or ())

    def is_only_for(self, pod_uid: str) -> bool:
        """Returns True if the claim is not reserved for any other pod."""
        return all(consumer.uid == pod_uid for consumer in self.status.reserved_for or ())


class PendingClaim(ResourceClaim, frozen=True):
    """The devices that the scheduler has chosen for a claim, until the cached claim has them (upstream in-flight).

    A PendingClaim is not an object of the API. The table keeps it in addition to the real claim, and counts its devices
    as allocated.
    """


class RequestMapping(NamedTuple):
    """The device request that provides an extended resource to a container (from extendedResourceClaimStatus)."""

    container_name: str
    resource_name: str
    request_name: str


class ResourceClaimTemplateSpec(Value, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
