"""The share of a device's capacity that a request consumes (KEP-5075). Source: structured consumable_capacity.go."""

from __future__ import annotations

from collections.abc import Mapping

from extender.devices.device import Amounts
from extender.model.devices.slices import CapacityRange, CapacityRequestPolicy, DeviceCapacity
from extender.model.quantity import INT64_MAX, NANO, Quantity, nano

_BEYOND = "capacity request cannot be represented in the device's range arithmetic"


class CapacityError(Exception):
    """A capacity that cannot be computed with; the message says why."""


def consumed(requests: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity]) -> Amounts | None:
    """The amount of each capacity of a device that a request consumes, in billionths; None where it does not fit.

    A capacity that is not requested is consumed by the policy's default, or whole. Other requests' shares do not count.

    Raises:
        CapacityError: an amount cannot be represented, or is negative.
    """
    if not requests.keys() <= capacity.keys():
        return None
    amounts = {name: _amount(name, requests.get(name), offered) for name, offered in capacity.items()}
    if any(_violates(amounts[name], offered.request_policy) for name, offered in capacity.items()):
        return None
    return amounts


def has_room(amounts: Amounts, capacity: Mapping[str, DeviceCapacity], *taken: Mapping[str, int]) -> bool:
    """Tells whether `amounts` fit into the capacity beside those already taken; in billionths."""
    return all(
        amount + sum(each.get(name, 0) for each in taken) <= nano(capacity[name].value)
        for name, amount in amounts.items()
    )


def quantity_of(nanos: int) -> str:
    """An amount as a quantity, in decimal units."""
    for suffix, unit in (("", NANO), ("m", NANO // 10**3), ("u", NANO // 10**6)):
        if not nanos % unit:
            return f"{nanos // unit}{suffix}"
    return f"{nanos}n"


def _amount(name: str, requested: Quantity, offered: DeviceCapacity) -> int:
    policy = offered.request_policy
    if requested is None:
        default = policy.default if policy else None
        amount = nano(offered.value if default is None else default)
    elif policy is None:
        amount = nano(requested)
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _into_range(name, nano(requested), policy.valid_range)
    else:
        amount = _into_values(nano(requested), policy)
    if amount < 0:
        raise CapacityError(f'capacity "{name}": capacity value is negative')
    return amount


def _into_values(requested: int, policy: CapacityRequestPolicy) -> int:
    """The request rounded up to the next valid value; as it is, if there is none."""
    return min((value for value in map(nano, policy.valid_values or ()) if value >= requested), default=requested)


def _into_range(name: str, requested: int, valid: CapacityRange) -> int:
    """The request rounded up to the next step from the minimum."""
    lowest = nano(valid.min)
    if requested < lowest or valid.step is None:
        return max(requested, lowest)
    text = quantity_of(requested)
    if requested > INT64_MAX * NANO:
        raise CapacityError(f'capacity "{name}": {_BEYOND}: request {text} exceeds MaxInt64')
    first, step = _whole(lowest), _whole(nano(valid.step))
    amount = first + -(-(_whole(requested) - first) // step) * step
    if amount > INT64_MAX:
        beyond = f"rounding request {text} up to the next step passes MaxInt64"
        raise CapacityError(f'capacity "{name}": {_BEYOND}: {beyond}')
    return amount * NANO


def _whole(nanos: int) -> int:
    """Whole units, rounded up: DRAFractionalCapacityRange is off by default."""
    return -(-nanos // NANO)


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == nano(policy.default)):
        return False
    if policy.valid_range is not None:
        return _out_of_range(amount, policy.valid_range)
    return bool(policy.valid_values) and all(amount != nano(each) for each in policy.valid_values or ())


def _out_of_range(amount: int, valid: CapacityRange) -> bool:
    if valid.max is not None and amount > nano(valid.max):
        return True
    if valid.step is None:
        return False
    return (_whole(amount) - _whole(nano(valid.min))) % _whole(nano(valid.step)) != 0
