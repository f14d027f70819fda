"""Implements the predicate of NodeResourcesFit: the pod's requests must fit into the free resources of a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.devices.pod_claims import class_behind, may_be_backed
from extender.framework.rules import NO_REFUSAL, Check, PerNode, Verdict
from extender.framework.status import Code, Refusal, unschedulable
from extender.model.requests import is_counted, is_extended
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.node_columns import PODS, NodeColumns

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"
CROWDED = unschedulable(NAME)
_BITS = 32


@dataclass(frozen=True, slots=True)
class NodeResourcesFitFilter(PerNode):
    """Refuses nodes with too few free resources. Its attributes name the extended resources and groups to ignore."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check:
        requests = {name: amount for name, amount in pod.requests.items() if amount and self._counts(name)}
        backed = frozenset(name for name in requests if may_be_backed(name) and class_behind(name, table))
        return _NodeResourcesFitCheck(requests, backed, table.nodes)

    def _counts(self, resource: str) -> bool:
        ignored = resource in self.ignored_resources or resource.split("/")[0] in self.ignored_resource_groups
        return is_counted(resource) and not (ignored and is_extended(resource))


class _NodeResourcesFitCheck(Check):
    sees_pods = True
    sees_own_pods_only = True
    sees_resources_only = True

    def __init__(self, requests: dict[str, int], backed: frozenset[str], nodes: NodeColumns) -> None:
        self._requests = requests
        # DynamicResources provides these resources where no device plugin offers them (shouldDelegateResourceToDRA).
        self._backed = backed
        self._nodes = nodes

    def refuse(self, rows: Rows) -> Verdict:
        return self.refuse_requested(rows, self._nodes.requested)

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        nodes, index = self._nodes, self._nodes.index_of(rows)
        lacking: list[tuple[str, BoolColumn]] = []
        too_small = np.zeros(len(rows), np.bool_)
        # Resources are compared one at a time, because small arrays stay in the processor's cache.
        for name, amount in (("pods", 1), *self._requests.items()):
            resource = nodes.resources.get(name)
            if resource is None:
                if name not in self._backed:
                    lacking.append((f"Insufficient {name}", np.ones(len(rows), np.bool_)))
                    too_small[:] = True
                continue
            offered = nodes.allocatable[resource][index]
            short = offered - requested[resource][index] < amount
            if name in self._backed:
                short &= offered > 0
            if np.count_nonzero(short):
                if index is not rows:
                    offered, short = offered[rows], short[rows]
                lacking.append((TOO_MANY_PODS if resource == PODS else f"Insufficient {name}", short))
                too_small |= short & (offered < amount) & (resource != PODS)
        return _verdict(lacking, too_small)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        short: BoolColumn = gone.free(PODS, rows) < 1
        for resource, amount in self._requests.items():
            index = self._nodes.resources.get(resource)
            lacking = True if index is None else gone.free(index, rows) < amount
            if resource in self._backed:
                lacking &= index is not None and self._nodes.allocatable[index][rows] > 0
            short |= lacking
        return [(short, CROWDED)]

    def refuse_beside(self, slots: Rows, gone: HypotheticalRemovals) -> BoolColumn | None:
        if gone.has_capped_sums:
            return None
        short = gone.free_beside(PODS, slots) < 1
        for resource, amount in self._requests.items():
            index = self._nodes.resources.get(resource)
            if index is not None and resource not in self._backed:
                short |= gone.free_beside(index, slots) < amount
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
