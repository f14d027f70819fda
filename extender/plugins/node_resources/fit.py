"""NodeResourcesFit, Filter: the pod's requests must be free on the node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.devices.extended_resources import class_behind, may_be_backed
from extender.framework.rules import NO_REFUSAL, Check, PerNode, Verdict
from extender.framework.status import Code, Refusal, unschedulable
from extender.model.devices.slices import DeviceClass
from extender.model.requests import is_counted, is_extended
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.journal import BEGINNING, MOST_FOLLOWED, RESOURCES, Cursor
from extender.table.labels import BoolColumn, IntColumn, RowIndex, Rows
from extender.table.nodes.columns import PODS, NodeColumns
from extender.table.nodes.distinct_resources import ResourceColumns

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
CROWDED = unschedulable(NAME)
_MOST_KEPT = 256
_BITS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class NodeResourcesFitFilter(PerNode):
    """Refuses nodes with too little free. The arguments name extended resources, or groups of them, to overlook."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        checks = table.reader(_Checks).of(self)
        requests = tuple(pod.requests.items())
        check = checks.get(requests)
        if check is None:  # else a pod that asks for the same has been here before
            wanted = {name: amount for name, amount in requests if amount and self._counts(name)}
            backed = frozenset(name for name in wanted if may_be_backed(name) and class_behind(name, table))
            check = _NodeResourcesFitCheck(wanted, backed, table)
            # Of resources that no node has there may be any number, and of any length.
            if all(name in table.nodes.resources or name in backed for name, _ in requests):
                if len(checks) >= _MOST_KEPT:
                    checks.clear()
                checks[requests] = check
        return check

    def _counts(self, resource: str) -> bool:
        ignored = resource in self.ignored_resources or resource.split("/")[0] in self.ignored_resource_groups
        return is_counted(resource) and not (ignored and is_extended(resource))


class _Checks:
    """The checks of a table's pods, by rule and requests: as long as device classes and offered resources stay."""

    def __init__(self, table: Table) -> None:
        self._nodes, self._resource_changes = table.nodes, -1
        self._class_changes = Cursor(table.journal, DeviceClass.__name__)
        self._by_rule: dict[NodeResourcesFitFilter, dict[tuple[tuple[str, int], ...], _NodeResourcesFitCheck]] = {}

    def of(self, rule: NodeResourcesFitFilter) -> dict[tuple[tuple[str, int], ...], _NodeResourcesFitCheck]:
        if self._class_changes.advance() or self._nodes.offered.changes != self._resource_changes:
            self._by_rule.clear()
            self._resource_changes = self._nodes.offered.changes
        return self._by_rule.setdefault(rule, {})


class _NodeResourcesFitCheck(Check):
    sees_pods = True
    sees_own_pods_only = True
    sees_resources_only = True

    def __init__(self, wanted: dict[str, int], backed: frozenset[str], table: Table) -> None:
        nodes: NodeColumns = table.nodes
        # What a device class stands behind is left to DynamicResources where no device plugin offers it
        # (upstream shouldDelegateResourceToDRA).
        self._wanted, self._backed, self._nodes = wanted, backed, nodes
        self._distinct = table.distinct_resources
        self._known = [name for name in wanted if name in nodes.resources]
        self._nowhere = wanted.keys() - set(self._known) - backed  # no node offers any
        self._indices = np.array([PODS, *[nodes.resources[name] for name in self._known]])
        self._amounts = np.array([1, *[wanted[name] for name in self._known]])[:, np.newaxis]
        self._each = tuple(zip(self._indices.tolist(), self._amounts.ravel().tolist(), strict=True))
        self._met = False
        self._kept: BoolColumn | None = None  # bool[id]: where anything is short
        self._at = BEGINNING

    def refuse(self, rows: Rows) -> Verdict:
        if not (self._nowhere or np.count_nonzero(self._lacking(rows))):
            return NO_REFUSAL
        return self.refuse_requested(rows, self._nodes.requested)

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        short, offered = self._shortage(rows, requested)
        too_small = np.logical_or.reduce((short & (self._amounts > offered))[1:], axis=0) | bool(self._nowhere)
        lacking = dict(zip(self._known, short[1:], strict=True))
        lacking |= dict.fromkeys(self._nowhere, np.ones(len(rows), np.bool_))
        reasons = [(f"Insufficient {name}", lacking[name]) for name in self._wanted if name in lacking]
        return _verdict([(TOO_MANY_PODS, short[0]), *reasons], too_small)

    def _lacking(self, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: something may be short on the row. Of amounts that were met it is known."""
        distinct, kept = self._distinct, self._kept
        if not self._met:
            self._met = True  # perhaps no other pod asks for the same
            return distinct.values(self._lacking_at, rows)
        distinct.follow()
        changed = None if kept is None or len(kept) < len(distinct) else distinct.changes.since(self._at, RESOURCES)
        if kept is None or changed is None or len(changed) > MOST_FOLLOWED:
            self._kept = kept = np.zeros(distinct.requested.shape[1], np.bool_)
            kept[: len(distinct)] = self._lacking_at(distinct, slice(len(distinct)))
        else:
            for number in changed:
                kept[number] = self._is_short(number)
        self._at = distinct.changes.now
        return kept[distinct.id_of[rows]]

    def _lacking_at(self, columns: ResourceColumns, at: RowIndex) -> BoolColumn:
        offers, requested = columns.allocatable, columns.requested
        lacking: BoolColumn | None = None
        for position, (index, amount) in enumerate(
            self._each
        ):  # one by one: small arrays stay in the processor's cache
            short = offers[index, at] - requested[index, at] < amount
            if position and self._known[position - 1] in self._backed:
                short &= offers[index, at] > 0
            lacking = short if lacking is None else np.logical_or(lacking, short, out=lacking)
        assert lacking is not None, "every pod takes a place"
        return lacking

    def _is_short(self, number: int) -> bool:
        """`_lacking_at` of one id, where NumPy would take ten times as long; devices are not looked at."""
        offers, requests = self._distinct.allocatable[:, number], self._distinct.requested[:, number]
        return any(amount > offers[index] - requests[index] for index, amount in self._each)

    def _shortage(self, rows: Rows, requested: IntColumn) -> tuple[BoolColumn, NDArray[np.int64]]:
        """Of pods' places and each resource that is wanted: whether it is short, and how much is offered; [.., row]."""
        offered = self._nodes.allocatable[self._indices][:, rows]
        short = self._amounts > offered - requested[self._indices][:, rows]
        for position, name in enumerate(self._known, start=1):
            if name in self._backed:
                short[position] &= offered[position] > 0
        return short, offered

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        short = self._short(PODS, 1, rows, gone)
        for resource, amount in self._wanted.items():
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
    """One refusal for each combination of what is lacking; final where the node is too small even when empty."""
    met = [(reason, mask) for reason, mask in lacking if mask.any()]
    if not met:
        return NO_REFUSAL
    combination, short = too_small.astype(np.int64), np.zeros(len(too_small), np.bool_)
    for position, (_, mask) in enumerate(met, start=1):
        combination = combination << 1 | mask
        short |= mask
        if not position % _BITS_AT_ONCE:  # numbered anew, for an integer has 63 of them
            combination = np.unique(combination, return_inverse=True)[1]
    alike = [short & (combination == code) for code in np.unique(combination[short])]
    return [(rows, _refusal(int(rows.argmax()), met, too_small)) for rows in alike]


def _refusal(row: int, met: list[tuple[str, BoolColumn]], too_small: BoolColumn) -> Refusal:
    reasons = tuple(reason for reason, mask in met if mask[row])
    return Refusal(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE if too_small[row] else Code.UNSCHEDULABLE, reasons)
