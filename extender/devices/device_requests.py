"""Prepares the requests and constraints of claims for the allocator.

It also computes how much of a device's capacity a request consumes (KEP-5075).

Source: structured validateDeviceRequest, constraint.go, consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from extender.devices.cel.values import Semver
from extender.devices.inventory import PREVENTING_EFFECTS, Amounts, PoolDevice, qualified
from extender.model.devices import (
    ALL,
    EXACT_COUNT,
    CapacityRange,
    CapacityRequestPolicy,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
)
from extender.model.node import Taint, untolerated
from extender.model.pod import TimedToleration
from extender.model.quantity import INT64_MAX, NANO, Quantity, nano

AttributeValue = tuple[str, object]  # (kind, value), so that the number 1 and the text "1" differ
_MILLI = NANO // 1000
_BEYOND = "capacity request cannot be represented in the device's range arithmetic"


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
    of_type = {"string": attribute.string_value, "int": attribute.int_value, "bool": attribute.bool_value}
    for kind, value in of_type.items():
        if value is not None:
            return kind, value
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
    tolerations: Sequence[TimedToleration] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def is_alternative(self) -> bool:
        """True if this is one of the alternatives in a prioritized list."""
        return self.name != self.parent

    def is_repelled_by(self, taints: Iterable[Taint]) -> bool:
        """Returns True if the request does not tolerate some taint that keeps pods away (upstream ToleratesTaint)."""
        return bool(untolerated(taints, self.tolerations, PREVENTING_EFFECTS))

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


class CapacityError(Exception):
    """Raised for a capacity that cannot be used in a calculation; the message says why."""


def consumed(
    requests: Mapping[str, Quantity],
    capacity: Mapping[str, DeviceCapacity],
    *,
    fractional: bool = False,
    domain: str | None = None,
) -> Amounts | None:
    """Returns how much of each capacity of a device a request would take; None if the device cannot satisfy it.

    If the request names no amount for a capacity, it takes the default of the capacity's policy, or the whole capacity
    if there is no default. Amounts are in billionths. Amounts that other requests have taken are ignored.

    Args:
        fractional: True if the step of a range may be in thousandths (DRAFractionalCapacityRange).
        domain: the domain of names without one; None if the names in requests must equal those of the device
            (`Behaviours.capacities_have_domains`).

    Raises:
        CapacityError: an amount cannot be represented, is negative, or is requested twice.
    """
    if domain is not None:
        requests = _as_spelt_in(capacity, requests, domain)
    if not requests.keys() <= capacity.keys():
        return None
    if any(offered.invalid_step is not None for offered in capacity.values()):
        return None
    amounts = {
        name: _amount(name, requests.get(name), offered, fractional, domain) for name, offered in capacity.items()
    }
    if any(_violates(amounts[name], offered.request_policy, fractional) for name, offered in capacity.items()):
        return None
    return amounts


def _as_spelt_in(
    capacity: Mapping[str, DeviceCapacity], requests: Mapping[str, Quantity], domain: str
) -> dict[str, Quantity]:
    """Returns the requests by the names that the device uses. Raises CapacityError if one is requested twice."""
    spelling = {qualified(name, domain): name for name in capacity}
    spelt: dict[str, Quantity] = {}
    for name, quantity in sorted(requests.items()):
        full = qualified(name, domain)
        if full != name and full in requests:
            raise CapacityError(f'capacity "{name}" requested both as "{name}" and as "{full}"')
        spelt[spelling.get(full, full)] = quantity
    return spelt


def has_room(amounts: Amounts, capacity: Mapping[str, DeviceCapacity], *taken: Mapping[str, int]) -> bool:
    """Returns True if `amounts` fit into the capacity after the `taken` amounts are subtracted; all in billionths."""
    return all(
        amount + sum(share.get(name, 0) for share in taken) <= nano(capacity[name].value)
        for name, amount in amounts.items()
    )


def quantity_of(nanos: int) -> str:
    """Returns an amount in billionths as the text of a Kubernetes quantity with decimal units."""
    for suffix, unit in (("", NANO), ("m", NANO // 10**3), ("u", NANO // 10**6)):
        if not nanos % unit:
            return f"{nanos // unit}{suffix}"
    return f"{nanos}n"


def _amount(name: str, requested: Quantity, offered: DeviceCapacity, fractional: bool, domain: str | None) -> int:
    policy = offered.request_policy
    if domain is not None:
        name = qualified(name, domain)
        if requested is not None and nano(requested) < 0:  # rounding up to a valid value would hide it
            raise CapacityError(f'capacity "{name}": capacity value is negative: request {requested}')
    if requested is None:
        default = policy.default if policy else None
        amount = nano(offered.value if default is None else default)
    elif policy is None:
        amount = nano(requested)
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _into_range(name, nano(requested), policy.valid_range, fractional)
    else:
        amount = _into_values(nano(requested), policy)
    if amount < 0:
        raise CapacityError(f'capacity "{name}": capacity value is negative')
    return amount


def _into_values(requested: int, policy: CapacityRequestPolicy) -> int:
    """Returns the request rounded up to the next valid value of the policy; unchanged if the policy lists no values."""
    return min((value for value in map(nano, policy.valid_values or ()) if value >= requested), default=requested)


def _into_range(name: str, requested: int, valid: CapacityRange, fractional: bool) -> int:
    """Returns the request rounded up to the next value that the range allows: the minimum plus whole steps."""
    lowest = nano(valid.min)
    if requested < lowest or valid.step is None:
        return max(requested, lowest)
    unit, text = _unit(valid, fractional), quantity_of(requested)
    if unit == _MILLI and (requested % _MILLI or requested > INT64_MAX * _MILLI):
        raise CapacityError(f'capacity "{name}": {_BEYOND}: request {text} is not a representable milli value')
    if requested > INT64_MAX * unit:
        raise CapacityError(f'capacity "{name}": {_BEYOND}: request {text} exceeds MaxInt64')
    first, step = -(-lowest // unit), -(-nano(valid.step) // unit)
    amount = first + -(-(-(-requested // unit) - first) // step) * step
    if amount > INT64_MAX:
        past = "the milli-value range" if unit == _MILLI else "MaxInt64"
        raise CapacityError(f'capacity "{name}": {_BEYOND}: rounding request {text} up to the next step passes {past}')
    return amount * unit


def _unit(valid: CapacityRange, fractional: bool) -> int:
    """Returns the unit for calculations with the range `valid`, in billionths (upstream useMilli).

    The unit is 1/1000 if `fractional` is True, and the bounds and the step of the range are multiples of 1/1000. If
    not, the unit is 1.
    """
    bounds = [nano(bound) for bound in (valid.min, valid.max, valid.step) if bound is not None]
    in_milli = fractional and all(bound % _MILLI == 0 and bound <= INT64_MAX * _MILLI for bound in bounds)
    return _MILLI if in_milli and nano(valid.step) >= _MILLI else NANO


def _violates(amount: int, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    if policy is None or (policy.default is not None and amount == nano(policy.default)):
        return False
    if policy.valid_range is not None:
        return _out_of_range(amount, policy.valid_range, fractional)
    return bool(policy.valid_values) and all(amount != nano(share) for share in policy.valid_values or ())


def _out_of_range(amount: int, valid: CapacityRange, fractional: bool) -> bool:
    if valid.max is not None and amount > nano(valid.max):
        return True
    if valid.step is None:
        return False
    unit = _unit(valid, fractional)
    if amount % unit and unit == _MILLI:
        return True
    return (-(-amount // unit) - -(-nano(valid.min) // unit)) % -(-nano(valid.step) // unit) != 0
