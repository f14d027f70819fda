"""Scores nodes by their resources: NodeResourcesFit with its scoring strategy, NodeResourcesBalancedAllocation.

An allocation is what nodes offer of each resource, and what their pods and this pod request. A strategy turns it into
scores of 0..100: int64[column]. A resource does not count on a node that offers none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

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
from extender.table.distinct_resources import ResourceColumns
from extender.table.labels import BoolColumn, RowIndex, Rows
from extender.table.node_columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY

_MAX_AMOUNT = 2**62  # more than any node has, but small enough that sums stay within an int64
LARGEST_IN_FLOAT = 2**53 // 100  # up to this amount, float64 gives each whole percentage exactly
_MAX_FACTOR = INT64_MAX // 100  # the largest amount that can be multiplied by a score


Fractions = NDArray[np.float64]
Amounts = NDArray[Any]  # float64 or int64, see `Allocation`


class ResourceWeight(NamedTuple):
    """A resource that a priority considers (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


class Allocation(NamedTuple):
    """The amounts that nodes offer and pods take, as arrays [resource, column] for the scoring strategies.

    The arrays are float64, in which NumPy divides three times as fast, unless an amount is above LARGEST_IN_FLOAT.

    Attributes:
        weights: [resource].
        allocatable: the amounts that nodes offer.
        used: [2, resource, column]: the requests of the placed pods, and these with the pod to be placed.
        offered: bool[resource, column]: True if the node offers any of the resource; None if all are True.
        divisors: `allocatable`, with 1 in place of 0 to avoid division by 0.
        products_overflow: True if amounts times 100 need more than an int64, and have to be computed exactly.
    """

    weights: Amounts
    allocatable: Amounts
    used: Amounts
    offered: BoolColumn | None
    divisors: Amounts
    products_overflow: bool

    @property
    def requested(self) -> Amounts:
        """The requests of the placed pods and of the pod to be placed."""
        requested: Amounts = self.used[1]
        return requested


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
    counted: list[tuple[int, int]] = []
    offers: list[tuple[Scores, Scores]] = []
    for resource in resources:
        amount = requests.get(resource.name, 0)
        if not is_counted(resource.name) or (not amount and is_scalar(resource.name)):
            continue
        offer = _offer(resource.name, table, columns, index, nonzero=nonzero)
        if offer is not None:
            counted.append((resource.weight, amount))
            offers.append(offer)
    is_exact = table.features.behaviours.exact_score_fractions
    shape = len(offers), len(columns.requested[0][index])
    dtype: type = np.float64 if table.nodes.largest_amount <= LARGEST_IN_FLOAT else np.int64
    allocatable: Amounts = np.array([offer[0] for offer in offers], dtype).reshape(shape)
    used: Amounts = np.empty((2, *shape), dtype)
    for position, ((_, allocated), (_, amount)) in enumerate(zip(offers, counted, strict=True)):
        used[0, position] = allocated
        added = min(max(amount, 0), INT64_MAX if is_exact else _MAX_AMOUNT)
        np.add(allocated, added, out=used[1, position], dtype=dtype if is_exact else None)
    overflows = False
    if is_exact and dtype is np.int64:
        used[1][used[1] < used[0]] = INT64_MAX
        overflows = bool((np.maximum(used[1], allocatable) > _MAX_FACTOR).any())
    offered = None if allocatable.all() else allocatable != 0
    return Allocation(
        weights=np.array([weight for weight, _ in counted], dtype),
        allocatable=allocatable,
        used=used,
        offered=offered,
        divisors=allocatable if offered is None else np.where(offered, allocatable, 1),
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
    if device_class is not None:
        devices, allocated_devices = devices_of(table).totals(device_class).at(np.arange(table.nodes.capacity)[index])
    if resource is None:
        return None if device_class is None else (devices, allocated_devices)
    requested_as = _NONZERO.get(resource, resource) if nonzero else resource
    allocatable, allocated = columns.allocatable[resource][index], columns.requested[requested_as][index]
    if device_class is None:
        return allocatable, allocated
    by_devices = allocatable == 0
    return np.where(by_devices, devices, allocatable), np.where(by_devices, allocated_devices, allocated)


_NONZERO = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)


Strategy = Callable[[Allocation], Scores]
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2


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
        scores = score_by_utilization(self.shape)[utilization.astype(np.int64)]
        counts = scores > 0 if allocation.offered is None else allocation.offered & (scores > 0)
        counted = allocation.weights.astype(np.int64)[:, np.newaxis] * counts
        total, weights = (scores * counted).sum(axis=0), counted.sum(axis=0)
        # Rounds halves up like Go's math.Round, but with exact integers.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _percentages(amounts: Amounts, allocation: Allocation) -> Amounts:
    """Returns `amounts`, which are at most what the nodes offer, in percent of that; overwrites `amounts`.

    Before Kubernetes 1.38, products of huge amounts overflow. A negative result is the caller's to replace.
    """
    if allocation.products_overflow:
        exact: Amounts = (amounts.astype(object) * MAX_SCORE // allocation.divisors).astype(np.int64)
        return exact
    amounts *= MAX_SCORE
    if amounts.dtype == np.int64:
        amounts //= allocation.divisors
    else:
        amounts /= allocation.divisors
        np.floor(amounts, out=amounts)
    return amounts


def _average(allocation: Allocation, scores: Amounts) -> Scores:
    """Returns the weighted mean of the scores of the resources that each node offers; 0 if it offers none."""
    weights, offered = allocation.weights, allocation.offered
    if offered is None:
        total, divisors = weights @ scores, max(int(weights.sum()), 1)
    else:
        total, divisors = weights @ (scores * offered), np.maximum(weights @ offered, 1).astype(np.int64)
    averages: Scores = total.astype(np.int64) // divisors
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
        if self.sees_resources_only:
            return self._table.distinct_resources.values(self._compute, rows)
        return self._compute(self._table.nodes, rows)

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
    without_pod, with_pod = _balance(allocation)
    # Go rounds towards zero; the sum is never negative, so rounding down is the same.
    with_pod -= without_pod - _HALF
    with_pod /= 2
    np.floor(with_pod, out=with_pod)
    with_pod += _HALF
    scores: Scores = with_pod.astype(np.int64)
    return scores


def _balance(allocation: Allocation) -> Fractions:
    """Returns 100 if all resources are used to the same fraction, and less if the fractions differ.

    Returns float64[2, column], like `Allocation.used`. Resources that a node does not offer do not count.
    """
    fractions = allocation.used / allocation.divisors
    np.minimum(fractions, 1, out=fractions)
    if allocation.offered is None and len(allocation.weights) == 2:
        deviation = fractions[:, 0] - fractions[:, 1]
        deviation /= 2
        np.abs(deviation, out=deviation)
    else:
        deviation = _deviation(fractions, allocation.allocatable != 0)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    scores: Fractions = np.floor(deviation, out=deviation)
    return scores


def _deviation(fractions: Fractions, offered: BoolColumn) -> Fractions:
    """Returns the standard deviation of the used fractions of offered resources: float64[2, column].

    It is 0 for a node that offers fewer than two of the resources.
    """
    count = np.count_nonzero(offered, axis=0)
    if len(offered) < 2:
        return np.zeros((2, len(count)))
    divisor = np.maximum(count, 1)
    counted = np.where(offered, fractions, 0.0)
    mean = counted.sum(axis=1, keepdims=True) / divisor
    squares = np.where(offered, (counted - mean) * (counted - mean), 0.0).sum(axis=1)
    deviation = np.sqrt(squares / divisor)
    # Two fractions are compared directly, as upstream does, because the general formula may differ in the last bit.
    return np.where(count == 2, _half_difference(fractions, offered), np.where(count > 2, deviation, 0.0))


def _half_difference(fractions: Fractions, offered: BoolColumn) -> Fractions:
    most = np.where(offered, fractions, -np.inf).max(axis=1)
    least = np.where(offered, fractions, np.inf).min(axis=1)
    half: Fractions = np.abs((most - least) / 2)
    return half
