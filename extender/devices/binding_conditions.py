"""Allocated claims on nodes: reach and binding conditions. Source: upstream isClaimReadyForBinding, isClaimTimeout."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from extender.framework.node_affinity import nodes_in_selector
from extender.model.devices.claims import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from extender.table import Table
from extender.table.labels import BoolColumn, Rows


def unavailable(claims: Iterable[ResourceClaim], table: Table, rows: Rows, now: float, timeout: float) -> BoolColumn:
    """Tells the `rows` where one of the allocated claims cannot be used: bool[len(rows)].

    `now` and `timeout` are in seconds: a claim that waits longer for its binding conditions can be used nowhere.
    """
    away = np.zeros(len(rows), np.bool_)
    for claim in claims:
        allocation = claim.allocation
        if allocation is None:
            continue
        if allocation.node_selector is not None:
            away |= ~nodes_in_selector(allocation.node_selector, table, rows)
        if is_failed(claim) or is_overdue(claim, now, timeout):
            away[:] = True
    return away


def is_failed(claim: ResourceClaim) -> bool:
    """Tells whether a device has a failure condition, and none before it is still waited for."""
    return _state(claim) is False


def is_overdue(claim: ResourceClaim, now: float, timeout: float) -> bool:
    """Tells whether binding conditions are still waited for after `timeout` seconds."""
    allocation = claim.allocation
    if allocation is None or allocation.allocation_timestamp is None or _state(claim) is not None:
        return False
    return allocation.allocation_timestamp.timestamp() + timeout < now


def is_ready(claim: ResourceClaim) -> bool:
    """Tells whether all binding conditions of its devices hold."""
    return _state(claim) is True


def _state(claim: ResourceClaim) -> bool | None:
    """True: ready; False: failed; None: to be waited for."""
    for result in claim.allocation.results if claim.allocation else ():
        if not result.binding_conditions:
            continue
        status = _status(claim, result)
        if status is None:
            return None
        holding = {condition.type for condition in status.conditions or () if condition.status == "True"}
        if holding.intersection(result.binding_failure_conditions or ()):
            return False
        if not holding.issuperset(result.binding_conditions):
            return None
    return True


def _status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    device = result.driver, result.pool, result.device
    return next((s for s in claim.status.devices or () if (s.driver, s.pool, s.device) == device), None)
