"""Implements the predicate of NodeResourcesFit: the pod's requests must fit into the free resources of a node.

Checks are cached by requests. A cached check remembers which nodes are short of a resource, so for the next replica it
compares only the nodes that changed. Nodes with equal resources are compared only once (`DistinctResources`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.rules import NO_REFUSAL, Check, PerNode, Verdict
from extender.framework.status import Code, Refusal, unschedulable
from extender.model.devices import DeviceClass
from extender.model.requests import is_counted, is_extended
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.distinct_resources import ResourceColumns
from extender.table.journal import BEGINNING, MOST_FOLLOWED, RESOURCES, Cursor
from extender.table.labels import BoolColumn, IntColumn, RowIndex, Rows
from extender.table.node_columns import PODS, NodeColumns

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
CROWDED = unschedulable(NAME)
_MAX_CHECKS = 256
_BITS = 32


@dataclass(frozen=True, slots=True)
class NodeResourcesFitFilter(PerNode):
    """Refuses nodes with too few free resources. Its attributes name the extended resources and groups to ignore."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        checks = table.reader(_CheckCache).checks_of(self)
        requests = tuple(pod.requests.items())
        check = checks.get(requests)
        if check is None:
            counted = {name: amount for name, amount in requests if amount and self._counts(name)}
            backed = frozenset(name for name in counted if may_be_backed(name) and class_behind(name, table))
            check = _NodeResourcesFitCheck(counted, backed, table)
            # A check with resources that no node has is not cached, because pods may name any number of them.
            if all(name in table.nodes.resources or name in backed for name, _ in requests):
                if len(checks) >= _MAX_CHECKS:
                    checks.clear()
                checks[requests] = check
        return check

    def _counts(self, resource: str) -> bool:
        ignored = resource in self.ignored_resources or resource.split("/")[0] in self.ignored_resource_groups
        return is_counted(resource) and not (ignored and is_extended(resource))


class _CheckCache:
    """Caches checks for one table by rule and requests, until device classes or offered resources change."""

    def __init__(self, table: Table) -> None:
        self._nodes = table.nodes
        self._resource_changes = -1
        self._class_changes = Cursor(table.journal, DeviceClass.__name__)
        self._by_rule: dict[NodeResourcesFitFilter, dict[tuple[tuple[str, int], ...], _NodeResourcesFitCheck]] = {}

    def checks_of(self, rule: NodeResourcesFitFilter) -> dict[tuple[tuple[str, int], ...], _NodeResourcesFitCheck]:
        if self._class_changes.advance() or self._nodes.offered.changes != self._resource_changes:
            self._by_rule.clear()
            self._resource_changes = self._nodes.offered.changes
        return self._by_rule.setdefault(rule, {})


class _NodeResourcesFitCheck(Check):
    sees_pods = True
    sees_own_pods_only = True
    sees_resources_only = True

    def __init__(self, requests: dict[str, int], backed: frozenset[str], table: Table) -> None:
        nodes: NodeColumns = table.nodes
        self._requests = requests
        # DynamicResources provides these resources where no device plugin offers them (shouldDelegateResourceToDRA).
        self._backed = backed
        self._nodes = nodes
        self._distinct = table.distinct_resources
        self._offered = [name for name in requests if name in nodes.resources]
        self._offered_nowhere = requests.keys() - set(self._offered) - backed
        self._indices = np.array([PODS, *[nodes.resources[name] for name in self._offered]])
        self._amounts = np.array([1, *[requests[name] for name in self._offered]])[:, np.newaxis]
        self._index_amounts = tuple(zip(self._indices.tolist(), self._amounts.ravel().tolist(), strict=True))
        self._used_before = False
        self._short_by_id: BoolColumn | None = None  # bool[id of resources]: True if a resource is short
        self._cursor = BEGINNING

    def refuse(self, rows: Rows) -> Verdict:
        if not (self._offered_nowhere or np.count_nonzero(self._lacking(rows))):
            return NO_REFUSAL
        return self.refuse_requested(rows, self._nodes.requested)

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        short, offered = self._shortage(rows, requested)
        too_small = np.logical_or.reduce((short & (self._amounts > offered))[1:], axis=0) | bool(self._offered_nowhere)
        lacking = dict(zip(self._offered, short[1:], strict=True))
        lacking |= dict.fromkeys(self._offered_nowhere, np.ones(len(rows), np.bool_))
        reasons = [(f"Insufficient {name}", lacking[name]) for name in self._requests if name in lacking]
        return _verdict([(TOO_MANY_PODS, short[0]), *reasons], too_small)

    def _lacking(self, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: True if an offered resource is short. From the second call, results are stored."""
        distinct = self._distinct
        short_by_id = self._short_by_id
        if not self._used_before:
            self._used_before = True  # results are stored only from the second pod on
            return distinct.values(self._lacking_in, rows)
        distinct.follow()
        is_usable = short_by_id is not None and len(short_by_id) >= len(distinct)
        changed = distinct.changes.since(self._cursor, RESOURCES) if is_usable else None
        if short_by_id is None or changed is None or len(changed) > MOST_FOLLOWED:
            self._short_by_id = short_by_id = np.zeros(distinct.requested.shape[1], np.bool_)
            short_by_id[: len(distinct)] = self._lacking_in(distinct, slice(len(distinct)))
        else:
            for number in changed:
                short_by_id[number] = self._is_short(number)
        self._cursor = distinct.changes.now
        return short_by_id[distinct.id_of[rows]]

    def _lacking_in(self, columns: ResourceColumns, index: RowIndex) -> BoolColumn:
        offered = columns.allocatable
        requested = columns.requested
        lacking: BoolColumn | None = None
        # Resources are compared one at a time, because small arrays stay in the processor's cache.
        for position, (resource, amount) in enumerate(self._index_amounts):
            short = offered[resource, index] - requested[resource, index] < amount
            if position and self._offered[position - 1] in self._backed:
                short &= offered[resource, index] > 0
            lacking = short if lacking is None else np.logical_or(lacking, short, out=lacking)
        assert lacking is not None, "every pod counts as one of the pods that a node may have"
        return lacking

    def _is_short(self, number: int) -> bool:
        """Returns True if an offered resource is short on the nodes that share one id in `DistinctResources`.

        For a single id, this takes a tenth of the time of `_lacking_in`. A resource counts as short even if devices may
        provide the resource instead, because `refuse_requested` checks again.

        `number`: the id.
        """
        offered = self._distinct.allocatable[:, number]
        requested = self._distinct.requested[:, number]
        return any(amount > offered[resource] - requested[resource] for resource, amount in self._index_amounts)

    def _shortage(self, rows: Rows, requested: IntColumn) -> tuple[BoolColumn, NDArray[np.int64]]:
        """Returns which rows are short of a resource, bool[resource, row], and what they offer, int64[resource, row].

        Resource 0 is the number of pods. Then come the requested resources that any node offers.
        """
        offered = self._nodes.allocatable[self._indices][:, rows]
        short = self._amounts > offered - requested[self._indices][:, rows]
        for position, name in enumerate(self._offered, start=1):
            if name in self._backed:
                short[position] &= offered[position] > 0
        return short, offered

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        short = self._short(PODS, 1, rows, gone)
        for resource, amount in self._requests.items():
            index = self._nodes.resources.get(resource)
            lacking = True if index is None else self._short(index, amount, rows, gone)
            if resource in self._backed:
                lacking &= index is not None and self._nodes.allocatable[index][rows] > 0
            short |= lacking
        return [(short, CROWDED)]

    def _short(self, index: int, amount: int, rows: Rows, gone: HypotheticalRemovals) -> BoolColumn:
        free = self._nodes.allocatable[index] - self._nodes.requested[index] + gone.freed(index)
        short: BoolColumn = amount > free[rows]
        return short


def _verdict(lacking: list[tuple[str, BoolColumn]], too_small: BoolColumn) -> Verdict:
    """Returns one refusal for each combination of lacking resources.

    The refusal is final (unresolvable) if the node is too small even when empty.
    """
    reasons = [(reason, mask) for reason, mask in lacking if mask.any()]
    if not reasons:
        return NO_REFUSAL
    combination = too_small.astype(np.int64)
    short = np.zeros(len(too_small), np.bool_)
    for position, (_, mask) in enumerate(reasons, start=1):
        combination = combination << 1 | mask
        short |= mask
        if not position % _BITS:  # renumbers the combinations, because an int64 holds only 63 bits
            combination = np.unique(combination, return_inverse=True)[1]
    groups = [short & (combination == code) for code in np.unique(combination[short])]
    return [(group, _refusal(int(group.argmax()), reasons, too_small)) for group in groups]


def _refusal(row: int, reasons: list[tuple[str, BoolColumn]], too_small: BoolColumn) -> Refusal:
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if too_small[row] else Code.UNSCHEDULABLE
    return Refusal(NAME, code, tuple(reason for reason, mask in reasons if mask[row]))
