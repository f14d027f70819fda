"""Computes what nodes offer of each resource and what pods request, and caches the scores of priorities.

The cache speeds up the scheduling of replicas: between two of them, usually only one node has changed.
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
from extender.model.quantity import INT64_MAX
from extender.model.requests import is_counted, is_scalar
from extender.table import Table
from extender.table.distinct_resources import ResourceColumns, RuleOfResources
from extender.table.journal import MOST_FOLLOWED, RESOURCES
from extender.table.labels import BoolColumn, RowIndex, Rows
from extender.table.node_columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY

_MAX_AMOUNT = 2**62  # more than any node has, but small enough that sums stay within an int64
_MAX_FACTOR = INT64_MAX // 100  # the largest amount that can be multiplied by a score
_MAX_CACHED = 64


class ResourceWeight(NamedTuple):
    """A resource that a priority considers (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The amounts that nodes offer and pods request, as arrays int64[resource, column] for the scoring strategies.

    A column is a node, or a set of nodes with equal resources.

    Attributes:
        weights: int64[resource, 1].
        allocated: the requests of placed pods.
        requested: the requests of placed pods and of the pod to be placed.
        allocatable: the amounts that nodes offer.
        offered: bool[resource, column]: True if the node offers any of the resource.
        divisors: `allocatable`, with 1 in place of 0 to avoid division by 0.
        all_offered: True if every element of `offered` is True.
        products_overflow: True if amounts times 100 need more than an int64, and have to be computed exactly.
    """

    weights: Scores
    allocated: Scores
    requested: Scores
    allocatable: Scores
    offered: BoolColumn
    divisors: Scores
    all_offered: bool
    products_overflow: bool


def allocation_of(
    resources: ResourceWeights,
    requests: Mapping[str, int],
    table: Table,
    columns: ResourceColumns,
    index: RowIndex,
    *,
    nonzero: bool,
) -> Allocation:
    """Returns what nodes offer of each resource, and what the placed pods and `requests` take.

    Extended resources that the pod does not request, and resources that no node offers, are left out.

    Args:
        columns: the table's nodes, or its `DistinctResources`, with one column for all nodes with equal amounts. If
            devices may provide a resource, only the nodes are allowed, because devices are counted by node.
        index: the columns to return.
        nonzero: True if default requests are assumed for placed pods without requests.
    """
    is_exact = table.features.behaviours.exact_score_fractions
    weights: list[int] = []
    amounts: list[int] = []
    offers: list[tuple[Scores, Scores]] = []
    for resource in resources:
        amount = requests.get(resource.name, 0)
        if not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        offer = _offer(resource.name, table, columns, index, nonzero=nonzero)
        if offer is not None:
            weights.append(resource.weight)
            amounts.append(min(max(amount, 0), INT64_MAX if is_exact else _MAX_AMOUNT))
            offers.append(offer)
    shape = len(offers), len(columns.requested[0, index])
    allocatable = np.array([offer[0] for offer in offers], np.int64).reshape(shape)
    allocated = np.array([offer[1] for offer in offers], np.int64).reshape(shape)
    offered = allocatable != 0
    all_offered = bool(offered.all())
    requested = allocated + np.array(amounts, np.int64)[:, np.newaxis]
    overflows = False
    if is_exact:
        requested = np.where(requested < allocated, INT64_MAX, requested)
        overflows = bool((np.maximum(requested, allocatable) > _MAX_FACTOR).any())
    return Allocation(
        weights=np.array(weights, np.int64)[:, np.newaxis],
        allocated=allocated,
        requested=requested,
        allocatable=allocatable,
        offered=offered,
        divisors=allocatable if all_offered else np.where(offered, allocatable, 1),
        all_offered=all_offered,
        products_overflow=overflows,
    )


def _offer(
    name: str, table: Table, columns: ResourceColumns, index: RowIndex, *, nonzero: bool
) -> tuple[Scores, Scores] | None:
    """Returns (allocatable, allocated) of a resource, or None if no node offers it.

    If a device class provides the resource, devices are counted on nodes that do not list the resource as allocatable.
    """
    resource = table.nodes.resources.get(name)
    device_class = class_behind(name, table) if may_be_backed(name) else None
    if device_class is None:
        return None if resource is None else _in_columns(resource, columns, index, nonzero=nonzero)
    devices, allocated_devices = devices_of(table).totals(device_class).at(np.arange(table.nodes.capacity)[index])
    if resource is None:
        return devices, allocated_devices
    allocatable, allocated = _in_columns(resource, columns, index, nonzero=nonzero)
    by_devices = allocatable == 0
    return np.where(by_devices, devices, allocatable), np.where(by_devices, allocated_devices, allocated)


def _in_columns(resource: int, columns: ResourceColumns, index: RowIndex, *, nonzero: bool) -> tuple[Scores, Scores]:
    requested_as = _NONZERO.get(resource, resource) if nonzero else resource
    return columns.allocatable[resource][index], columns.requested[requested_as][index]


_NONZERO = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}


@dataclass(slots=True)
class _CachedScores:
    """The scores of one rule for certain requests: int16[id], one for each id in `DistinctResources`.

    `cursor`: the position in the journal of the last change that the scores include.
    """

    scores: NDArray[np.int16]
    cursor: int


class _ScoreCache:
    """Caches the scores for one table, by rule and requests.

    The first pod with certain requests stores only the key. The second pod stores the scores, because more such pods
    are then likely.
    """

    def __init__(self, table: Table) -> None:
        self.by_key: dict[Hashable, _CachedScores | None] = {}


def cached_scores(
    rule: Hashable,
    resources: ResourceWeights,
    requests: Mapping[str, int],
    table: Table,
    rows: Rows,
    compute: RuleOfResources[np.int64],
) -> Scores:
    """Returns the scores that `compute` gives for `rows`: int64[len(rows)].

    `rule`: names `compute` in the cache. The cache key is the rule, `resources`, and the requests for these resources.
    """
    # A single row is quick to compute, and the cache does not notice changes of devices.
    if len(rows) == 1 or may_be_devices(resources):
        return compute(table.nodes, rows)
    key = rule, resources, tuple([requests.get(resource.name, 0) for resource in resources])
    cache = table.reader(_ScoreCache).by_key
    distinct = table.distinct_resources
    occurred_before = key in cache
    cached = cache.pop(key, None)
    if not occurred_before:
        if len(cache) >= _MAX_CACHED:
            del cache[next(iter(cache))]  # removes the least recently used entry
        cache[key] = None  # scores are kept only from the second pod with these requests on
        return distinct.values(compute, rows)
    distinct.follow()
    is_usable = cached is not None and len(cached.scores) >= len(distinct)
    changed = distinct.changes.since(cached.cursor, RESOURCES) if cached is not None and is_usable else None
    if cached is None or changed is None or len(changed) > MOST_FOLLOWED:
        cached = _CachedScores(np.zeros(distinct.requested.shape[1], np.int16), distinct.changes.now)
        cached.scores[: len(distinct)] = compute(distinct, slice(len(distinct)))
    elif changed:
        cached.scores[changed] = compute(distinct, np.array(changed, np.intp))
    cache[key] = cached
    cached.cursor = distinct.changes.now
    return cached.scores[distinct.id_of[rows]].astype(np.int64)


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)
