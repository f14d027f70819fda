"""NodeResourcesFit: what the pod asks for must be free on the node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.engine.devices.extended_resources import class_behind, may_be_backed
from extender.engine.rules import NO_REFUSAL, Check, Verdict
from extender.engine.status import Code, Refusal, unschedulable
from extender.model.requests import is_counted, is_extended
from extender.table import Gone, PodInfo, Table
from extender.table.labels import BoolColumn, Rows
from extender.table.nodes import PODS

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
CROWDED = unschedulable(NAME)


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Upstream noderesources.Fit, Filter. The arguments name extended resources, or groups of them, to overlook."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        wanted = {name: amount for name, amount in pod.requests.items() if amount and self._counts(name)}
        backed = frozenset(name for name in wanted if may_be_backed(name) and class_behind(name, table))
        return _Check(wanted, backed, table)

    def _counts(self, resource: str) -> bool:
        ignored = resource in self.ignored_resources or resource.split("/")[0] in self.ignored_resource_groups
        return is_counted(resource) and not (ignored and is_extended(resource))


class _Check(Check):
    sees_pods = True
    sees_own_pods_only = True

    def __init__(self, wanted: dict[str, int], backed: frozenset[str], table: Table) -> None:
        # What a device class stands behind is left to DynamicResources where no device plugin offers it
        # (upstream shouldDelegateResourceToDRA).
        self._wanted, self._backed, self._table = wanted, backed, table

    def refuse(self, rows: Rows) -> Verdict:
        nodes, wanted = self._table.nodes, self._wanted
        known = {name: index for name in wanted if (index := nodes.resources.get(name)) is not None}
        nowhere = wanted.keys() - known.keys() - self._backed  # no node has ever had any
        indices = [PODS, *known.values()]
        amounts = np.array([1, *[wanted[name] for name in known]])[:, np.newaxis]
        offered = nodes.allocatable.take(rows, axis=1)[indices]
        short = amounts > offered - nodes.requested.take(rows, axis=1)[indices]
        for position, name in enumerate(known, start=1):
            if name in self._backed:
                short[position] &= offered[position] > 0
        if not (nowhere or short.any()):
            return NO_REFUSAL
        too_small = np.logical_or.reduce((short & (amounts > offered))[1:], axis=0) | bool(nowhere)
        lacking = dict(zip(known, short[1:], strict=True)) | dict.fromkeys(nowhere, np.ones(len(rows), np.bool_))
        reasons = [(f"Insufficient {name}", lacking[name]) for name in wanted if name in lacking]
        return _verdict([(TOO_MANY_PODS, short[0]), *reasons], too_small)

    def refuse_without(self, rows: Rows, gone: Gone) -> Verdict:
        short = self._short(PODS, 1, rows, gone)
        for resource, amount in self._wanted.items():
            index = self._table.nodes.resources.get(resource)
            lacking = True if index is None else self._short(index, amount, rows, gone)
            if resource in self._backed:
                lacking &= index is not None and self._table.nodes.allocatable[index][rows] > 0
            short |= lacking
        return [(short, CROWDED)]

    def _short(self, index: int, amount: int, rows: Rows, gone: Gone) -> BoolColumn:
        nodes = self._table.nodes
        free = nodes.allocatable[index] - nodes.requested[index] + gone.freed(index)
        short: BoolColumn = amount > free[rows]
        return short


def _verdict(lacking: list[tuple[str, BoolColumn]], too_small: BoolColumn) -> Verdict:
    """One refusal for each combination of what is lacking; final where the node is too small even when empty."""
    met = [(reason, mask) for reason, mask in lacking if mask.any()]
    if not met:
        return NO_REFUSAL
    combination = too_small.astype(np.int64)
    for bit, (_, mask) in enumerate(met, start=1):
        combination |= mask.astype(np.int64) << bit
    return [(combination == code, _refusal(int(code), met)) for code in np.unique(combination) if code]


def _refusal(combination: int, met: list[tuple[str, BoolColumn]]) -> Refusal:
    reasons = tuple(reason for bit, (reason, _) in enumerate(met, start=1) if combination >> bit & 1)
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if combination & 1 else Code.UNSCHEDULABLE
    return Refusal(NAME, code, reasons)
