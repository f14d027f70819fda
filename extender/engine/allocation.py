"""What a node would have requested of it with the pod on it, for the priorities that look at resources.

Source: upstream noderesources resourceAllocationScorer, KEP-5004 for resources that are devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extender.engine.devices.answers import devices_of
from extender.engine.devices.extended_resources import class_behind, may_be_backed
from extender.engine.rules import Scores
from extender.model.requests import is_counted, is_scalar
from extender.table import Table
from extender.table.labels import BoolColumn, Rows
from extender.table.nodes import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that a priority looks at (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class Allocation:
    """One resource over the rows asked about: int64[n] each. `offered` tells where there is any of it: bool[n]."""

    weight: int
    allocated: Scores
    requested: Scores
    allocatable: Scores
    offered: BoolColumn


def allocations(
    resources: Sequence[ResourceWeight], wanted: Mapping[str, int], table: Table, rows: Rows, *, nonzero: bool
) -> list[Allocation]:
    """Each resource that counts for this pod, in order; with `nonzero`, placed pods count with defaults."""
    found = []
    for resource in resources:
        amount = wanted.get(resource.name, 0)
        if not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        offer = _offer(resource.name, table, rows, nonzero=nonzero)
        if offer is not None:
            allocatable, allocated = offer
            found.append(Allocation(resource.weight, allocated, allocated + amount, allocatable, allocatable != 0))
    return found


def _offer(resource: str, table: Table, rows: Rows, *, nonzero: bool) -> tuple[Scores, Scores] | None:
    """(allocatable, allocated) by row; devices count where a class stands behind the resource and nodes have none."""
    index = table.nodes.resources.get(resource)
    device_class = class_behind(resource, table) if may_be_backed(resource) else None
    if device_class is None:
        return None if index is None else _of_nodes(index, table, rows, nonzero=nonzero)
    devices, taken = devices_of(table).totals(device_class).at(rows)
    if index is None:
        return devices, taken
    allocatable, allocated = _of_nodes(index, table, rows, nonzero=nonzero)
    by_devices = allocatable == 0
    return np.where(by_devices, devices, allocatable), np.where(by_devices, taken, allocated)


def _of_nodes(index: int, table: Table, rows: Rows, *, nonzero: bool) -> tuple[Scores, Scores]:
    requested = table.nodes.requested[_counted_as(index) if nonzero else index][rows]
    return table.nodes.allocatable[index][rows], requested


def _counted_as(index: int) -> int:
    return {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}.get(index, index)
