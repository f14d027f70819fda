"""Scores nodes by their resources: NodeResourcesFit with its scoring strategy, NodeResourcesBalancedAllocation.

An allocation is what nodes offer of each resource, and what their pods and this pod request. A strategy turns it into
scores of 0..100: int64[column]. A resource does not count on a node that offers none of it.

Scores are cached, which speeds up the scheduling of replicas: between two of them, usually only one node has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.devices.allocations import devices_of
from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.policy_fields import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.model.quantity import INT64_MAX
from extender.model.requests import is_counted, is_scalar
from extender.plugins.node_resources_fit import NAME
from extender.table import PodInfo, Table
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


Strategy = Callable[[Allocation], Scores]
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2
Fractions = NDArray[np.float64]


def least_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that stays free, 0..100: int64[column] (upstream leastResourceScorer)."""
    free = _percentages(allocation.allocatable - allocation.requested, allocation)
    return _average(allocation, np.maximum(free, 0, out=free))


def most_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that is in use, 0..100: int64[column] (upstream mostResourceScorer)."""
    in_use = np.minimum(allocation.requested, allocation.allocatable)
    return _average(allocation, _percentages(in_use, allocation))


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """Maps the share of resources in use to a score along a line (upstream requestedToCapacityRatioScorer)."""

    shape: tuple[ShapePoint, ...]

    def __call__(self, allocation: Allocation) -> Scores:
        utilization = _percentages(np.minimum(allocation.requested, allocation.allocatable), allocation)
        utilization[allocation.requested > allocation.allocatable] = MAX_UTILIZATION
        scores = score_by_utilization(self.shape)[utilization]
        counts = allocation.offered & (scores > 0)
        total = (scores * allocation.weights * counts).sum(axis=0)
        weights = (allocation.weights * counts).sum(axis=0)
        # Rounds halves up like Go's math.Round, but with exact integers.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _percentages(amounts: Scores, allocation: Allocation) -> Scores:
    """Returns `amounts` in percent of what the nodes offer; overwrites `amounts`."""
    if allocation.products_overflow:
        exact: Scores = (amounts.astype(object) * MAX_SCORE // allocation.divisors).astype(np.int64)
        return exact
    amounts *= MAX_SCORE
    amounts //= allocation.divisors
    return amounts


def _average(allocation: Allocation, scores: Scores) -> Scores:
    """Returns the weighted mean of the scores of the resources that each node offers; 0 if it offers none."""
    weights = allocation.weights if allocation.all_offered else allocation.weights * allocation.offered
    averages: Scores = (scores * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)
    return averages


@dataclass(frozen=True, slots=True)
class NodeResourcesFitScore(PerNode):
    """Prefers emptier nodes, fuller nodes, or nodes near a given utilization, depending on `strategy`."""

    strategy: Strategy = least_allocated
    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        has_pod_level = table.features.behaviours.pod_level_requests_in_score
        requests = pod.requests_with_defaults if has_pod_level else pod.container_requests_with_defaults
        return _AllocationScorer(self.strategy, self.resources, requests, table, nonzero=True)


class _AllocationScorer(Scorer):
    """Scores nodes by a strategy. If `nonzero` is True, default requests are assumed for pods that request nothing."""

    sees_pods = True

    def __init__(
        self,
        strategy: Strategy,
        resources: ResourceWeights,
        requests: Mapping[str, int],
        table: Table,
        *,
        nonzero: bool,
    ) -> None:
        self._strategy = strategy
        self._resources = resources
        self._requests = requests
        self._table = table
        self._nonzero = nonzero
        self.sees_resources_only = not may_be_devices(resources)

    def map(self, rows: Rows) -> Scores:
        return cached_scores(self._strategy, self._resources, self._requests, self._table, rows, self._compute)

    def _compute(self, columns: ResourceColumns, index: RowIndex) -> Scores:
        return self._strategy(
            allocation_of(self._resources, self._requests, self._table, columns, index, nonzero=self._nonzero)
        )


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation(PerNode):
    """Prefers nodes that use the resources evenly (upstream BalancedAllocation). Skips pods without requests."""

    resources: ResourceWeights = CPU_AND_MEMORY
    name: str = BALANCED_ALLOCATION

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        # Unlike NodeResourcesFit, scores count the resized requests in the pod's status.
        footprint = dict(pod.footprint.requests)
        requests = {resource.name: footprint.get(resource.name, 0) for resource in self.resources}
        if not any(requests.values()):
            return None
        return _AllocationScorer(_balanced, self.resources, requests, table, nonzero=False)


def _balanced(allocation: Allocation) -> Scores:
    divisors = allocation.divisors.astype(np.float64)
    scores = _balance(allocation.requested / divisors, allocation)
    scores -= _balance(allocation.allocated / divisors, allocation)
    # Go rounds towards zero; the sum is never negative, so rounding down is the same.
    return _HALF + (_HALF + scores) // 2


def _balance(fractions: Fractions, allocation: Allocation) -> Scores:
    """Returns 100 if all resources are used to the same fraction, and less if the fractions differ: int64[column].

    Resources that a node does not offer do not count. `fractions`, float64[resource, column], is overwritten.
    """
    np.minimum(fractions, 1, out=fractions)
    if allocation.all_offered and len(allocation.weights) == 2:
        deviation = fractions[0]
        deviation -= fractions[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
    else:
        deviation = _deviation(fractions, allocation.offered)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    scores: Scores = deviation.astype(np.int64)
    return scores


def _deviation(fractions: Fractions, offered: BoolColumn) -> Fractions:
    """Returns the standard deviation of the used fractions of offered resources: float64[column].

    It is 0 for a node that offers fewer than two of the resources.
    """
    count = np.count_nonzero(offered, axis=0)
    if len(fractions) < 2:
        return np.zeros(len(count))
    divisor = np.maximum(count, 1)
    counted = np.where(offered, fractions, 0.0)
    mean = counted.sum(axis=0) / divisor
    squares = np.where(offered, (counted - mean) * (counted - mean), 0.0).sum(axis=0)
    deviation = np.sqrt(squares / divisor)
    # Two fractions are compared directly, as upstream does, because the general formula may differ in the last bit.
    return np.where(count == 2, _half_difference(fractions, offered), np.where(count > 2, deviation, 0.0))


def _half_difference(fractions: Fractions, offered: BoolColumn) -> Fractions:
    most = np.where(offered, fractions, -np.inf).max(axis=0)
    least = np.where(offered, fractions, np.inf).min(axis=0)
    half: Fractions = np.abs((most - least) / 2)
    return half
