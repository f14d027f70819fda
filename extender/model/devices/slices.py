"""Defines the devices that drivers offer: resource slices, device classes and taint rules (resource.k8s.io)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from extender.model.meta import Int64, NodeSelector, Object, Value
from extender.model.quantity import Quantity, nano

QualifiedName = str  # "domain/identifier"; without a domain, the driver's name is the domain


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


class DeviceTaint(Value, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceToleration(Value, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class Device(Value, frozen=True):
    name: str = ""
    attributes: dict[QualifiedName, DeviceAttribute] | None = None
    capacity: dict[QualifiedName, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
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
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object, frozen=True):
    """A taint that an administrator adds to devices, in addition to the taints in their ResourceSlices."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
