"""The resources that nodes offer and that are asked of them, as priorities weigh them; scores that are kept by these.

Pods of one template come one after another, and between two of them one node has changed, not five thousand.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.devices.allocations import devices_of
from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.rules import Scores
from extender.model.requests import is_counted, is_scalar
from extender.table import Table
from extender.table.journal import MOST_FOLLOWED, RESOURCES
from extender.table.labels import BoolColumn, RowIndex, Rows
from extender.table.nodes.columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY
from extender.table.nodes.distinct_resources import ResourceColumns, RuleOfResources

_MOST = 2**62  # more than a node has, and no sum with what is allocated leaves int64
_MOST_KEPT = 64


class ResourceWeight(NamedTuple):
    """A resource that a priority looks at (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The resources that count for a pod, in the columns asked about: int64[resource, column] each.

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
    resources: ResourceWeights,
    wanted: Mapping[str, int],
    table: Table,
    columns: ResourceColumns,
    at: RowIndex,
    *,
    nonzero: bool,
) -> Allocation:
    """Returns each resource that counts for this pod, in order, in these of the columns.

    Args:
        columns: the table's nodes, or its distinct resources where none may be devices.
        nonzero: placed pods count with defaults.
    """
    weights: list[int] = []
    amounts: list[int] = []
    offers: list[tuple[Scores, Scores]] = []
    for resource in resources:
        amount = wanted.get(resource.name, 0)
        if not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        offer = _offer(resource.name, table, columns, at, nonzero=nonzero)
        if offer is not None:
            weights.append(resource.weight)
            amounts.append(min(max(amount, 0), _MOST))
            offers.append(offer)
    shape = len(offers), len(columns.requested[0, at])
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


def _offer(
    resource: str, table: Table, columns: ResourceColumns, at: RowIndex, *, nonzero: bool
) -> tuple[Scores, Scores] | None:
    """(allocatable, allocated); devices count where a class stands behind the resource and nodes have none."""
    index = table.nodes.resources.get(resource)
    device_class = class_behind(resource, table) if may_be_backed(resource) else None
    if device_class is None:
        return None if index is None else _in_columns(index, columns, at, nonzero=nonzero)
    devices, taken = devices_of(table).totals(device_class).at(np.arange(table.nodes.capacity)[at])
    if index is None:
        return devices, taken
    allocatable, allocated = _in_columns(index, columns, at, nonzero=nonzero)
    by_devices = allocatable == 0
    return np.where(by_devices, devices, allocatable), np.where(by_devices, taken, allocated)


def _in_columns(index: int, columns: ResourceColumns, at: RowIndex, *, nonzero: bool) -> tuple[Scores, Scores]:
    return columns.allocatable[index][at], columns.requested[_counted_as(index) if nonzero else index][at]


def _counted_as(index: int) -> int:
    return NONZERO_CPU if index == CPU else NONZERO_MEMORY if index == MEMORY else index


@dataclass(slots=True)
class _Kept:
    """The scores of distinct resources, int16[id], as of the moment `at` of their changes."""

    scores: NDArray[np.int16]
    at: int


class _CachedScores:
    """The scores by rule and request; None: asked for once."""

    def __init__(self, table: Table) -> None:
        self.known: dict[Hashable, _Kept | None] = {}


def cached_scores(
    rule: Hashable,
    resources: ResourceWeights,
    wanted: Mapping[str, int],
    table: Table,
    rows: Rows,
    work_out: RuleOfResources[np.int64],
) -> Scores:
    """Returns what `work_out` gives for `rows`: int64[row].

    Args:
        rule: stands, with what is wanted of `resources`, for what `work_out` does.
    """
    if len(rows) == 1 or may_be_devices(resources):  # one row costs no less here; devices are counted elsewhere
        return work_out(table.nodes, rows)
    key = rule, resources, tuple([wanted.get(resource.name, 0) for resource in resources])
    known, distinct = table.reader(_CachedScores).known, table.distinct_resources
    met, kept = key in known, known.pop(key, None)
    if not met:
        if len(known) >= _MOST_KEPT:
            del known[next(iter(known))]  # unasked for the longest
        known[key] = None  # perhaps no other pod asks for the same
        return distinct.values(work_out, rows)
    distinct.follow()
    changed = None if kept is None or len(kept.scores) < len(distinct) else distinct.changes.since(kept.at, RESOURCES)
    if kept is None or changed is None or len(changed) > MOST_FOLLOWED:
        kept = _Kept(np.zeros(distinct.requested.shape[1], np.int16), 0)
        kept.scores[: len(distinct)] = work_out(distinct, slice(len(distinct)))
    elif changed:
        kept.scores[changed] = work_out(distinct, np.array(changed, np.intp))
    known[key] = kept
    kept.at = distinct.changes.now
    return kept.scores[distinct.id_of[rows]].astype(np.int64)


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)
