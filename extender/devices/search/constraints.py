"""What the devices of one claim must have in common, or not. Source: structured constraint.go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.devices.cel.device import PoolDevice
from extender.model.devices.claims import DeviceConstraint
from extender.model.devices.slices import DeviceAttribute

AttributeValue = tuple[str, object]  # kind and value: 1 and "1" differ


@dataclass(frozen=True, slots=True)
class AttributeConstraint:
    """All devices have the attribute, with the same value or with `distinct` ones.

    `requests` are the requests and subrequests that it holds for; none: all.
    """

    attribute: str
    requests: frozenset[str]
    distinct: bool

    def applies_to(self, request: str, parent: str) -> bool:
        """Whether it holds for a request, or for a subrequest that is part of `parent`."""
        return not self.requests or request in self.requests or parent in self.requests

    def value_of(self, device: PoolDevice) -> AttributeValue | None:
        """The device's value; None if it has none that can be compared."""
        attributes = device.spec.attributes or {}
        found = attributes.get(self.attribute)
        if found is None:
            domain, _, name = self.attribute.partition("/")
            found = attributes.get(name) if name and domain == device.id.driver else None
        return None if found is None else _comparable(found)

    def allows(self, value: AttributeValue, chosen: Sequence[AttributeValue]) -> bool:
        """Whether a device with this value may join those already chosen."""
        if not chosen:
            return True
        return value not in chosen if self.distinct else value == chosen[0] and value[0] != _UNKNOWN


_UNKNOWN = "unknown"


def constraint_of(constraint: DeviceConstraint) -> AttributeConstraint | None:
    """The constraint as it is checked; None for a kind that is not known."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    if attribute is None:
        return None
    requests = frozenset(constraint.requests or ())
    return AttributeConstraint(attribute, requests, distinct=constraint.match_attribute is None)


def _comparable(attribute: DeviceAttribute) -> AttributeValue:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return _UNKNOWN, None
