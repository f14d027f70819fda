"""The resources of each node with the pod on it, for the priorities that look at resources.

Source: upstream noderesources resourceAllocationScorer, KEP-5004 for resources that are devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extender.devices.allocations import devices_of
from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.rules import Scores
from extender.model.requests import is_counted, is_scalar
from extender.table import Table
from extender.table.labels import BoolColumn, RowIndex
from extender.table.nodes.columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY


class ResourceWeight(NamedTuple):
    """A resource that a priority looks at (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))
_MOST = 2**62  # more than a node has, and no sum with what is allocated leaves int64


@dataclass(frozen=True, slots=True)
class Allocation:
    """The resources that count for a pod, over the rows asked about: int64[resource, row] each.

    Attributes:
        weights: int64[resource, 1].
        allocated: of the pods that are there.
        requested: with the pod.
        offered: bool[resource, row]: where there is any of it.
        divisors: `allocatable`, with 1 in place of nothing.
    """

    weights: Scores
    allocated: Scores
    requested: Scores
    allocatable: Scores
    offered: BoolColumn
    divisors: Scores
    all_offered: bool


def allocation(
    resources: ResourceWeights, wanted: Mapping[str, int], table: Table, rows: RowIndex, *, nonzero: bool
) -> Allocation:
    """Returns each resource that counts for this pod, in order; with `nonzero`, placed pods count with defaults."""
    weights: list[int] = []
    amounts: list[int] = []
    offers: list[tuple[Scores, Scores]] = []
    for resource in resources:
        amount = wanted.get(resource.name, 0)
        if not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        offer = _offer(resource.name, table, rows, nonzero=nonzero)
        if offer is not None:
            weights.append(resource.weight)
            amounts.append(min(max(amount, 0), _MOST))
            offers.append(offer)
    shape = len(offers), len(table.nodes.present[rows])
    allocatable = np.array([offer[0] for offer in offers], np.int64).reshape(shape)
    allocated = np.array([offer[1] for offer in offers], np.int64).reshape(shape)
    offered = allocatable != 0
    all_offered = bool(offered.all())
    return Allocation(
        weights=np.array(weights, np.int64).reshape(-1, 1),
        allocated=allocated,
        requested=allocated + np.array(amounts, np.int64).reshape(-1, 1),
        allocatable=allocatable,
        offered=offered,
        divisors=allocatable if all_offered else np.where(offered, allocatable, 1),
        all_offered=all_offered,
    )


def _offer(resource: str, table: Table, rows: RowIndex, *, nonzero: bool) -> tuple[Scores, Scores] | None:
    """(allocatable, allocated) by row; devices count where a class stands behind the resource and nodes have none."""
    index = table.nodes.resources.get(resource)
    device_class = class_behind(resource, table) if may_be_backed(resource) else None
    if device_class is None:
        return None if index is None else _of_nodes(index, table, rows, nonzero=nonzero)
    devices, taken = devices_of(table).totals(device_class).at(np.arange(table.nodes.capacity)[rows])
    if index is None:
        return devices, taken
    allocatable, allocated = _of_nodes(index, table, rows, nonzero=nonzero)
    by_devices = allocatable == 0
    return np.where(by_devices, devices, allocatable), np.where(by_devices, taken, allocated)


def _of_nodes(index: int, table: Table, rows: RowIndex, *, nonzero: bool) -> tuple[Scores, Scores]:
    requested = table.nodes.requested[_counted_as(index) if nonzero else index][rows]
    return table.nodes.allocatable[index][rows], requested


def _counted_as(index: int) -> int:
    return NONZERO_CPU if index == CPU else NONZERO_MEMORY if index == MEMORY else index
