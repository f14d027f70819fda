"""What a node would have requested of it with the pod on it, for the priorities that look at resources.

Source: upstream noderesources resourceAllocationScorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        index = table.nodes.resources.get(resource.name)
        if index is None or not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        allocatable = table.nodes.allocatable[index][rows]
        allocated = table.nodes.requested[_counted_as(index) if nonzero else index][rows]
        found.append(Allocation(resource.weight, allocated, allocated + amount, allocatable, allocatable != 0))
    return found


def _counted_as(index: int) -> int:
    return {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}.get(index, index)
