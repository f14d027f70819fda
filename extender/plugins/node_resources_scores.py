"""Scores nodes by their resources: NodeResourcesFit with its scoring strategy, NodeResourcesBalancedAllocation.

An allocation is what nodes offer of each resource, and what their pods and this pod request. A strategy turns it into
scores of 0..100: int64[node]. A resource does not count on a node that offers none of it. Resources are computed one at
a time, because small arrays stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from extender.devices.allocations import devices_of
from extender.devices.pod_claims import class_behind, may_be_backed
from extender.framework.policy_fields import MAX_UTILIZATION, ShapePoint, score_by_utilization
from extender.framework.rules import MAX_SCORE, PerNode, Scorer, Scores
from extender.model.quantity import INT64_MAX
from extender.model.requests import is_counted, is_scalar
from extender.plugins.node_resources_fit import NAME
from extender.table import PodInfo, Table
from extender.table.journal import MOST_FOLLOWED, RESOURCES, Cursor
from extender.table.labels import BoolColumn, IntColumn, RowIndex, Rows
from extender.table.node_columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, NodeColumns

_MAX_AMOUNT = 2**62  # more than any node has, but small enough that sums stay within an int64
LARGEST_IN_FLOAT = 2**53 // 100  # up to this amount, float64 gives each whole percentage exactly
_MAX_FACTOR = INT64_MAX // 100  # the largest amount that can be multiplied by a score


Fractions = NDArray[np.float64]
Amounts = NDArray[Any]  # whole numbers as float64 or int64, see `_percentages`


class ResourceWeight(NamedTuple):
    """A resource that a priority considers (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


class ResourceUse(NamedTuple):
    """The amounts of one resource on each node, as arrays with one entry for each node.

    They are float64, in which NumPy divides three times as fast, unless an amount may be above LARGEST_IN_FLOAT.

    Attributes:
        offered: the amounts that nodes offer.
        taken: the requests of the placed pods.
        requested: these, and the request of the pod to be placed.
        is_offered: bool[node]: True if the node offers any of the resource; None if all are True.
        divisor: `offered`, with 1 in place of 0 to avoid division by 0.
    """

    weight: int
    offered: Amounts
    taken: Amounts
    requested: Amounts
    is_offered: BoolColumn | None
    divisor: Amounts


class Allocation(NamedTuple):
    """The resources that a strategy compares, on each of some nodes.

    Attributes:
        nodes: the number of nodes.
        products_overflow: True if amounts times 100 need more than an int64, and have to be computed exactly.
    """

    resources: Sequence[ResourceUse]
    nodes: int
    products_overflow: bool


def allocation_of(
    resources: ResourceWeights, requests: Mapping[str, int], table: Table, index: RowIndex, *, nonzero: bool
) -> Allocation:
    """Returns what the nodes at `index` offer of each resource, and what the placed pods and `requests` take.

    Extended resources that the pod does not request, and resources that no node offers, are left out. If `nonzero` is
    True, default requests are assumed for placed pods without requests.
    """
    is_exact, largest_amount = table.features.behaviours.exact_score_fractions, table.nodes.largest_amount
    is_float = largest_amount <= LARGEST_IN_FLOAT and not table.pods.huge_rows
    columns = table.reader(_FloatColumns).refreshed() if is_float else None
    may_overflow = is_exact and not is_float
    uses: list[ResourceUse] = []
    for name, weight in resources:
        amount = min(max(requests.get(name, 0), 0), INT64_MAX if is_exact else _MAX_AMOUNT)
        if not is_counted(name) or (not amount and is_scalar(name)):
            continue
        offer = _offer(name, table, columns or table.nodes, index, nonzero=nonzero)
        if offer is None:
            continue
        offered, taken = offer
        requested = np.minimum(taken, INT64_MAX - amount) + amount if may_overflow else taken + amount
        is_everywhere = name in columns.everywhere if columns else offered.all()
        is_offered = None if is_everywhere else offered != 0
        divisor = offered if is_offered is None else np.where(is_offered, offered, 1)
        uses.append(ResourceUse(weight, offered, taken, requested, is_offered, divisor))
    nodes = len(table.nodes.names) if isinstance(index, slice) else len(index)
    return Allocation(uses, nodes, is_exact and largest_amount > _MAX_FACTOR)


class _FloatColumns:
    """Copies what nodes offer and what their pods request to float64[resource, row]; a reader of the table.

    Attributes:
        everywhere: the resources of which every row offers some.
    """

    def __init__(self, table: Table) -> None:
        self._nodes = table.nodes
        self._changed_rows = Cursor(table.journal, RESOURCES)
        self._offer_changes = -1
        self.everywhere: frozenset[str] = frozenset()

    def refreshed(self) -> Self:
        """Copies what has changed since the last call, and returns these columns."""
        nodes, rows = self._nodes, self._changed_rows.read()
        if self._offer_changes != nodes.offer_changes:
            self._offer_changes = nodes.offer_changes
            rows = None
            self.allocatable = nodes.allocatable.astype(np.float64)
            by_all: BoolColumn = np.logical_and.reduce(self.allocatable[:, : len(nodes.names)], axis=1)
            self.everywhere = frozenset(name for name, resource in nodes.resources.items() if by_all[resource])
        if rows is None or len(rows) > MOST_FOLLOWED:
            self.requested = nodes.requested.astype(np.float64)
        else:
            for row in rows:
                self.requested[:, row] = nodes.requested[:, row]
        return self


def _offer(
    name: str, table: Table, columns: NodeColumns | _FloatColumns, index: RowIndex, *, nonzero: bool
) -> tuple[Amounts, Amounts] | None:
    """Returns the amounts that nodes offer and that their pods take of a resource, or None if no node offers it.

    If a device class provides the resource, devices are counted on nodes that do not list the resource as allocatable.
    """
    nodes, resource = table.nodes, table.nodes.resources.get(name)
    device_class = class_behind(name, table) if may_be_backed(name) else None
    if device_class is not None:
        totals = devices_of(table).totals(device_class).at(np.arange(nodes.capacity)[index])
        devices, allocated_devices = (total.astype(columns.requested.dtype) for total in totals)
    if resource is None:
        return None if device_class is None else (devices, allocated_devices)
    requested_as = _NONZERO.get(resource, resource) if nonzero else resource
    offered, taken = columns.allocatable[resource][index], columns.requested[requested_as][index]
    if device_class is None:
        return offered, taken
    by_devices = offered == 0
    return np.where(by_devices, devices, offered), np.where(by_devices, allocated_devices, taken)


_NONZERO = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)


Strategy = Callable[[Allocation], Scores]
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
_HALF = MAX_SCORE // 2


def least_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that stays free, 0..100: int64[node] (upstream leastResourceScorer)."""
    return _average([_free(use) for use in allocation.resources], allocation)


def _free(use: ResourceUse) -> Amounts:
    free: Amounts = use.offered - np.minimum(use.requested, use.offered)
    return free


def most_allocated(allocation: Allocation) -> Scores:
    """Returns the share of the resources that is in use, 0..100: int64[node] (upstream mostResourceScorer)."""
    in_use = [np.minimum(use.requested, use.offered) for use in allocation.resources]
    return _average(in_use, allocation)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """Maps the share of resources in use to a score along a line (upstream requestedToCapacityRatioScorer)."""

    shape: tuple[ShapePoint, ...]

    def __call__(self, allocation: Allocation) -> Scores:
        total, weights = np.zeros((2, allocation.nodes), np.int64)
        by_utilization = score_by_utilization(self.shape)
        for use in allocation.resources:
            utilization = _percentages(np.minimum(use.requested, use.offered), use, allocation)
            utilization[use.requested > use.offered] = MAX_UTILIZATION
            scores = by_utilization[np.maximum(utilization, 0).astype(np.int64)]
            weight = use.weight * ((scores > 0) & (use.offered != 0))
            total += weight * scores
            weights += weight
        # Rounds halves up like Go's math.Round, but with exact integers.
        averages: Scores = (2 * total + weights) // np.maximum(2 * weights, 1)
        return averages


def _percentages(amounts: Amounts, use: ResourceUse, allocation: Allocation) -> Amounts:
    """Returns `amounts`, which are at most what the nodes offer, in percent of that; overwrites `amounts`.

    Before Kubernetes 1.38, products of huge amounts overflow, and the result may be negative, as it is upstream.
    """
    if allocation.products_overflow:
        exact: Amounts = (amounts.astype(object) * MAX_SCORE // use.divisor).astype(np.int64)
        return exact
    amounts *= MAX_SCORE
    if amounts.dtype == np.int64:
        amounts -= np.fmod(amounts, use.divisor)  # Go rounds towards zero
        amounts //= use.divisor
    else:
        amounts /= use.divisor
        np.floor(amounts, out=amounts)
    return amounts


def _average(parts: Sequence[Amounts], allocation: Allocation) -> Scores:
    """Returns the weighted mean of the percentages of the resources that each node offers; 0 if it offers none.

    `parts`: for each resource, the amounts that count, at most what the nodes offer; overwritten.
    """
    total = np.zeros(allocation.nodes)
    weights: IntColumn | int = 0
    for use, part in zip(allocation.resources, parts, strict=True):
        percentages = _percentages(part, use, allocation)
        total += percentages if use.weight == 1 else use.weight * percentages
        weights = weights + (use.weight if use.is_offered is None else use.weight * use.is_offered)
    averages: Scores = total.astype(np.int64) // np.maximum(weights, 1)
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
        return _AllocationScorer(self.strategy, self.resources, requests, table, _nonzero=True)


@dataclass(eq=False)
class _AllocationScorer(Scorer):
    """Scores nodes by a strategy. If `_nonzero` is True, default requests are assumed for pods that request nothing."""

    sees_pods = True

    _strategy: Strategy
    _resources: ResourceWeights
    _requests: Mapping[str, int]
    _table: Table
    _nonzero: bool

    def __post_init__(self) -> None:
        self.sees_resources_only = not may_be_devices(self._resources)

    def map(self, rows: Rows) -> Scores:
        index = self._table.nodes.index_of(rows)
        scores = self._strategy(
            allocation_of(self._resources, self._requests, self._table, index, nonzero=self._nonzero)
        )
        return scores if index is rows else scores[rows]


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
        return _AllocationScorer(_balanced, self.resources, requests, table, _nonzero=False)


def _balanced(allocation: Allocation) -> Scores:
    without_pod, with_pod = _balance(allocation)
    # 50 plus half of 50 plus the difference. The sum is never negative, so rounding down is rounding towards zero.
    with_pod -= without_pod
    with_pod *= 0.5
    with_pod += _HALF + _HALF // 2
    scores: Scores = with_pod.astype(np.int64)
    return scores


def _balance(allocation: Allocation) -> Fractions:
    """Returns 100 if all resources are used to the same fraction, and less if the fractions differ.

    Returns float64[2, node], without and with the pod. Resources that a node does not offer do not count.
    """
    resources = allocation.resources
    fractions = np.empty((len(resources), 2, allocation.nodes))
    for use, (without_pod, with_pod) in zip(resources, fractions, strict=True):
        np.divide(use.taken, use.divisor, out=without_pod)
        np.divide(use.requested, use.divisor, out=with_pod)
    np.minimum(fractions, 1, out=fractions)
    if len(resources) == 2:
        deviation: Fractions = fractions[0] - fractions[1]
        deviation *= 0.5
        np.abs(deviation, out=deviation)
        for use in resources:
            if use.is_offered is not None:
                deviation *= use.is_offered
    else:
        offered = np.array([use.offered != 0 for use in resources])[:, np.newaxis]
        deviation = _deviation(fractions, offered)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    np.floor(deviation, out=deviation)
    return deviation


def _deviation(fractions: Fractions, offered: BoolColumn) -> Fractions:
    """Returns the standard deviation of the used fractions of offered resources: float64[2, node].

    It is 0 for a node that offers fewer than two of the resources.

    Args:
        fractions: float64[resource, 2, node].
        offered: bool[resource, 1, node].
    """
    count = np.count_nonzero(offered, axis=0)
    divisor = np.maximum(count, 1)
    counted = np.where(offered, fractions, 0.0)
    differences = np.where(offered, counted - counted.sum(axis=0) / divisor, 0.0)
    deviation = np.sqrt((differences * differences).sum(axis=0) / divisor)
    # Two fractions are compared directly, as upstream does, because the general formula may differ in the last bit.
    most = np.where(offered, fractions, -np.inf).max(axis=0, initial=-np.inf)
    least = np.where(offered, fractions, np.inf).min(axis=0, initial=np.inf)
    return np.where(count == 2, (most - least) / 2, np.where(count > 2, deviation, 0.0))
