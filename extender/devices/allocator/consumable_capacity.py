"""Computes how much of a device's capacity a request consumes (KEP-5075).

Source: structured consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.devices.device import Amounts, qualified
from extender.model.devices import CapacityRange, CapacityRequestPolicy, DeviceCapacity
from extender.model.quantity import INT64_MAX, NANO, Quantity, nano

_MILLI = NANO // 1000
_BEYOND = "capacity request cannot be represented in the device's range arithmetic"


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
        if domain is None:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        shown = quantity_of(amount) if requested is None else requested
        raise CapacityError(f'capacity "{qualified(name, domain)}": capacity value is negative: request {shown}')
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
    if unit == _MILLI and requested % _MILLI:
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
