"""Defines ResourceClaims, their requests and their allocated devices (resource.k8s.io).

Defines the devices that drivers offer: resource slices, device classes and taint rules (resource.k8s.io).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from extender.model.meta import Condition, Int64, NodeSelector, Object, Value
from extender.model.node import Taint
from extender.model.pod import TimedToleration
from extender.model.quantity import Quantity, nano

QualifiedName = str  # "domain/identifier"; without a domain, the driver's name is the domain
EXACT_COUNT = "ExactCount"
ALL = "All"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
RESOURCE_CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"


class DeviceAttribute(Value, frozen=True):
    """The value of an attribute of a device; exactly one of the fields is set."""

    int_value: Int64 | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: tuple[Int64, ...] | None = msgspec.field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    string_values: tuple[str, ...] | None = msgspec.field(name="strings", default=None)
    version_values: tuple[str, ...] | None = msgspec.field(name="versions", default=None)

    @property
    def values(self) -> tuple[int | str, ...] | None:
        """The values of an attribute that is a list; None for any other attribute."""
        lists = (self.int_values, self.bool_values, self.string_values, self.version_values)
        return next((values for values in lists if values is not None), None)


class CapacityRange(Value, frozen=True):
    min: Quantity = None
    max: Quantity = None
    step: Quantity = None


class CapacityRequestPolicy(Value, frozen=True):
    """Says which amounts of a device's capacity a claim may request (KEP-5075)."""

    default: Quantity = None
    valid_values: list[Quantity] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(Value, frozen=True):
    value: Quantity = None
    request_policy: CapacityRequestPolicy | None = None

    @property
    def invalid_step(self) -> Quantity | None:
        """The step of the policy's range, if it is not above zero. The API server refuses it, but a file may have it.

        No amount is valid for such a capacity, so no request can take the device.
        """
        valid = self.request_policy and self.request_policy.valid_range
        return valid.step if valid and valid.step is not None and nano(valid.step) <= 0 else None


class Counter(Value, frozen=True):
    value: Quantity = None


class CounterSet(Value, frozen=True):
    """Counters shared by the devices of a pool (KEP-4815)."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(Value, frozen=True):
    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: list[str] | None = None


class Device(Value, frozen=True):
    name: str = ""
    attributes: dict[QualifiedName, DeviceAttribute] | None = None
    capacity: dict[QualifiedName, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[Taint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(Value, frozen=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Value, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Object, frozen=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def devices(self) -> Sequence[Device]:
        return self.spec.devices or ()


class CELDeviceSelector(Value, frozen=True):
    expression: str = ""


class DeviceSelector(Value, frozen=True):
    cel: CELDeviceSelector | None = None


class DeviceClassConfiguration(Value, frozen=True):
    """The configuration of a device class; `opaque` is passed to the driver unchanged."""

    opaque: dict[str, Any] | None = None


class DeviceClassSpec(Value, frozen=True):
    selectors: list[DeviceSelector] | None = None
    config: list[DeviceClassConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(Value, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Value, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: Taint = Taint()


class DeviceTaintRule(Object, frozen=True):
    """A taint that an administrator adds to devices, in addition to the taints in their ResourceSlices."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class CapacityRequirements(Value, frozen=True):
    requests: dict[QualifiedName, Quantity] | None = None


class ExactDeviceRequest(Value, frozen=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = EXACT_COUNT
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[TimedToleration] | None = None
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
    tolerations: list[TimedToleration] | None = None
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

    def with_allocation(self, allocation: AllocationResult) -> Self:
        """Returns a copy of the claim that has these devices; its consumers stay."""
        return replace(self, status=replace(self.status, allocation=allocation))

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


class RequestMapping(Value, frozen=True):
    """The device request that provides an extended resource to a container (from extendedResourceClaimStatus)."""

    container_name: str
    resource_name: str
    request_name: str


class ResourceClaimTemplateSpec(Value, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
