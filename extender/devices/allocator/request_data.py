"""Prepares the requests and constraints of claims for the allocator.

Source: structured validateDeviceRequest, constraint.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from extender.devices.cel.values import Semver
from extender.devices.device import PoolDevice
from extender.model.devices import (
    ALL,
    EXACT_COUNT,
    DeviceAttribute,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from extender.model.quantity import Quantity

AttributeValue = tuple[str, object]  # (kind, value), so that the number 1 and the text "1" differ


@dataclass(frozen=True, slots=True)
class AttributeConstraint:
    """Requires that an attribute has the same value on all devices, or a different value on each device.

    Attributes:
        requests: the requests and subrequests that the constraint applies to; empty means all requests.
        by_meaning: True if versions are compared as semantic versions, and a value of no known type is an error
            (`Behaviours.attributes_fail_when_read`). False if versions are compared as texts, and such a value differs
            from all others.
    """

    attribute: str
    requests: frozenset[str]
    distinct: bool
    by_meaning: bool = False

    def applies_to(self, request: str, parent: str) -> bool:
        """Returns True if the constraint applies to the request. A subrequest like `gpu/large` has the parent `gpu`."""
        return not self.requests or request in self.requests or parent in self.requests

    def value_of(self, device: PoolDevice) -> AttributeValue | None:
        """Returns the device's value of the attribute; None if the device does not have the attribute."""
        attributes = device.spec.attributes or {}
        value = attributes.get(self.attribute)
        if value is None:
            domain, _, name = self.attribute.partition("/")
            value = attributes.get(name) if name and domain == device.id.driver else None
        return None if value is None else _comparable(value, by_meaning=self.by_meaning)

    def is_fault(self, value: AttributeValue | None) -> bool:
        """Returns True if a device with this value ends the allocation with an error."""
        return self.by_meaning and value is not None and value[0] == _UNKNOWN

    def allows(self, value: AttributeValue, chosen: Sequence[AttributeValue]) -> bool:
        """Returns True if a device with this value may be added to devices with the values `chosen`."""
        if not chosen:
            return True
        return value not in chosen if self.distinct else value == chosen[0] and value[0] != _UNKNOWN


_UNKNOWN = "unknown"


def constraint_of(constraint: DeviceConstraint, *, by_meaning: bool = False) -> AttributeConstraint | None:
    """Returns the constraint as an AttributeConstraint; None if its kind is unknown."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    if attribute is None:
        return None
    requests = frozenset(constraint.requests or ())
    return AttributeConstraint(attribute, requests, constraint.match_attribute is None, by_meaning)


def _comparable(attribute: DeviceAttribute, *, by_meaning: bool) -> AttributeValue:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        version = Semver.parse(attribute.version_value) if by_meaning else None
        return "version", attribute.version_value if version is None else version
    return _UNKNOWN, None


class AllocationError(Exception):
    """Raised if a claim, a device class or a pool is invalid.

    `claim` is the index of the claim at fault. Before showing `text`, the caller puts "claim NAMESPACE/NAME" in front.
    `claim` is None if `text` is already complete. If `of_node` is True, the claim may be allocated on another node.
    """

    def __init__(self, text: str, claim: int | None = None, *, of_node: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.claim = claim
        self.of_node = of_node


@dataclass(frozen=True, slots=True, eq=False)
class RequestData:
    """A device request, or one of the alternatives in its prioritized list (upstream requestData).

    Attributes:
        name: the name of the request; for an alternative, `request/subrequest`.
        own_name: `subrequest` for an alternative; otherwise the same as `name`.
        parent: the name of the request, without the subrequest.
        fault: the error that makes the request impossible to satisfy, or "".
    """

    claim: int
    name: str
    own_name: str
    parent: str
    request: ExactDeviceRequest
    device_class: DeviceClass | None
    fault: str = ""
    takes_all: bool = False
    count: int = 0
    admin: bool = False
    tolerations: Sequence[DeviceToleration] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def is_alternative(self) -> bool:
        """True if this is one of the alternatives in a prioritized list."""
        return self.name != self.parent

    def error(self, text: str, *, of_node: bool = False) -> AllocationError:
        return AllocationError(f", request {self.own_name}: {text}", self.claim, of_node=of_node)

    @property
    def selectors(self) -> Iterator[tuple[str, int, str]]:
        """Yields (name, index, CEL expression) of each selector of the device class, then of the request.

        The name is the name of the device class, or "" for a selector of the request. The index is the selector's index
        in the spec of the class or request.
        """
        if self.device_class is not None:
            for index, selector in enumerate(self.device_class.spec.selectors or ()):
                yield self.device_class.name, index, _expression(selector)
        for index, selector in enumerate(self.request.selectors or ()):
            yield "", index, _expression(selector)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimData:
    """One claim, prepared for the allocator.

    Attributes:
        requests: the alternatives of each request; only a prioritized list has more than one.
    """

    requests: tuple[tuple[RequestData, ...], ...]
    constraints: tuple[AttributeConstraint, ...]
    fault: str = ""


ClaimsToAllocate = tuple[ClaimData, ...]


def claim_data(
    index: int, claim: ResourceClaim, classes: Mapping[str, DeviceClass], *, by_meaning: bool = False
) -> ClaimData:
    """Returns the claim for the allocator; for `by_meaning`, see `AttributeConstraint`."""
    constraints = [
        constraint_of(constraint, by_meaning=by_meaning) for constraint in claim.spec.devices.constraints or ()
    ]
    fault = ""
    if None in constraints:
        fault = f", constraint #{constraints.index(None)}: empty constraint (unsupported constraint type?)"
    return ClaimData(
        tuple(tuple(_alternatives(index, request, classes)) for request in claim.requests),
        tuple(constraint for constraint in constraints if constraint is not None),
        fault,
    )


def _alternatives(claim: int, request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> Iterator[RequestData]:
    if request.first_available:
        for sub in request.first_available:
            yield _request_data(claim, sub, sub.name, request.name, f"{request.name}/{sub.name}", classes)
    else:
        exactly = request.exactly or ExactDeviceRequest()
        yield _request_data(claim, exactly, request.name, request.name, request.name, classes)


def _request_data(
    claim: int, request: ExactDeviceRequest, own_name: str, parent: str, name: str, classes: Mapping[str, DeviceClass]
) -> RequestData:
    mode = request.allocation_mode or EXACT_COUNT
    return RequestData(
        claim,
        name,
        own_name,
        parent,
        request,
        classes.get(request.device_class_name),
        fault=_fault(request, mode, classes),
        takes_all=mode == ALL,
        count=request.count or 1,
        admin=bool(request.admin_access),
        tolerations=request.tolerations or (),
        capacity=(request.capacity.requests if request.capacity else None) or {},
    )


def _fault(request: ExactDeviceRequest, mode: str, classes: Mapping[str, DeviceClass]) -> str:
    if request.derived_attributes:
        return "cannot handle request with derived attributes, the feature is disabled"
    for index, selector in enumerate(request.selectors or ()):
        if selector.cel is None:
            return f"selector #{index}: CEL expression empty (unsupported selector type?)"
    class_name = request.device_class_name
    if not class_name:
        return "missing device class name (unsupported request type?)"
    if class_name not in classes:
        missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
        return f"could not retrieve device class {class_name}: {missing}"
    return "" if mode in (EXACT_COUNT, ALL) else f"unsupported count mode {mode}"


def _expression(selector: DeviceSelector) -> str:
    return selector.cel.expression if selector.cel else ""
