"""The resources that nodes offer and that are asked of them, as priorities weigh them; scores that are kept by these.

Pods of one template come one after another, and between two of them one node has changed, not five thousand. Nodes of
one kind fill up in the same steps, so the score of a node that has changed is, as a rule, one that was met before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
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
from extender.table.nodes.columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, ResourceFingerprint

_MOST = 2**62  # more than a node has, and no sum with what is allocated leaves int64
_MOST_KEPT = 64
_MOST_FILLS = 512
WorkOut = Callable[[RowIndex], Scores]


class ResourceWeight(NamedTuple):
    """A resource that a priority looks at (ResourceSpec of the configuration)."""

    name: str
    weight: int = 1


ResourceWeights = tuple[ResourceWeight, ...]
CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


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


@dataclass(slots=True)
class _Kept:
    """`scores` of all rows, int16[capacity], as of the moment `at`; those of the fills met since, by fill.

    Of 0..100, so that many rows share what a processor fetches at once.
    """

    scores: NDArray[np.int16]
    at: int
    of_fill: dict[ResourceFingerprint, int] = field(default_factory=dict)

    def follow(self, fills: Mapping[int, ResourceFingerprint], work_out: WorkOut) -> None:
        """Brings the scores of the rows that have changed up to date; `fills`: theirs."""
        new = {fill: row for row, fill in fills.items() if fill not in self.of_fill}
        if new:
            if len(self.of_fill) + len(new) > _MOST_FILLS:
                self.of_fill.clear()
                new = {fill: row for row, fill in fills.items()}
            self.of_fill |= zip(new, work_out(np.array(list(new.values()))).tolist(), strict=True)
        for row, fill in fills.items():
            self.scores[row] = self.of_fill[fill]


class _CachedScores:
    def __init__(self, table: Table) -> None:
        self._nodes, self._capacity = table.nodes, 0
        self._known: dict[Hashable, _Kept | None] = {}

    def of_all_rows(self) -> dict[Hashable, _Kept | None]:
        """Returns the scores by rule and request, as long as there are no more rows than when they were kept."""
        if self._nodes.capacity != self._capacity:
            self._known, self._capacity = {}, self._nodes.capacity
        return self._known


def cached_scores(
    rule: Hashable, resources: ResourceWeights, wanted: Mapping[str, int], table: Table, rows: Rows, work_out: WorkOut
) -> Scores:
    """Returns what `work_out` gives for `rows`: int64[row].

    Args:
        rule: stands, with what is wanted of `resources`, for what `work_out` does.
    """
    if len(rows) == 1 or may_be_devices(resources):  # one row costs no less here; devices are counted elsewhere
        return work_out(rows)
    key = rule, resources, tuple([wanted.get(resource.name, 0) for resource in resources])
    known = table.reader(_CachedScores).of_all_rows()
    met, kept = key in known, known.pop(key, None)
    if not met:
        if len(known) >= _MOST_KEPT:
            del known[next(iter(known))]  # unasked for the longest
        known[key] = None  # perhaps no other pod asks for the same
        return table.nodes.worked_out(work_out, rows)
    changed = None if kept is None else table.journal.since(kept.at, RESOURCES)
    if kept is None or changed is None or len(changed) > MOST_FOLLOWED:
        everywhere = slice(len(table.nodes.names))
        kept = _Kept(np.zeros(table.nodes.capacity, np.int16), 0)
        kept.scores[everywhere] = work_out(everywhere)
    elif changed:
        kept.follow({row: table.nodes.fingerprint(row) for row in changed}, work_out)
    known[key] = kept
    kept.at = table.journal.now
    return kept.scores[rows].astype(np.int64)


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)
