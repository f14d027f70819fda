"""The pods that would have to go: which may, in what order, and which of them a PodDisruptionBudget protects.

Source: upstream preemption.FilterVictimsWithPDBViolation.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from extender.model.workloads import PodDisruptionBudget
from extender.preemption.importance import by_importance
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows


class Victims(NamedTuple):
    """Pods of any number of nodes, those of one node together and the most important first.

    Attributes:
        slots: intp[n]: their slots in the table's pod columns.
        rows: intp[n]: the rows of their nodes.
        violating: bool[n]: whether evicting the pod would violate a PodDisruptionBudget.
    """

    slots: Rows
    rows: Rows
    violating: BoolColumn

    def only(self, chosen: BoolColumn) -> Victims:
        """Those that are chosen, bool[n]."""
        return Victims(self.slots[chosen], self.rows[chosen], self.violating[chosen])

    def joined(self, others: Victims) -> Victims:
        """These and those of other nodes."""
        return Victims(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))

    def begins(self) -> Rows:
        """Where each node's victims begin; the number of victims at the end: intp[nodes + 1]."""
        changes = np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1
        return np.concatenate(([0], changes, [len(self.rows)])) if len(self.rows) else np.zeros(1, np.intp)


NO_VICTIMS = Victims(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.bool_))


def potential_victims(pod: PodInfo, table: Table, rows: Rows) -> Victims:
    """Every pod of a lower priority than `pod` on the nodes at `rows`."""
    pods = table.pods
    asked = np.zeros(table.nodes.capacity, np.bool_)
    asked[rows] = True
    lesser = (pods.row >= 0) & (pods.priority < pod.priority) & asked[pods.row]
    slots = by_importance(table, np.flatnonzero(lesser))
    return Victims(slots, pods.row[slots], violating(table, slots))


def violating(table: Table, slots: Rows) -> BoolColumn:
    """Whether evicting each pod, in this order, would violate a budget: bool[len(slots)].

    `slots` are ordered as by `by_importance`. On each node by itself a budget's disruptions go to the more important
    pods first; a pod that violates one budget takes nothing from those after it.
    """
    violating = np.zeros(len(slots), np.bool_)
    covered = _covered_by_budget(table, slots)
    for key, budget in table.objects.all(PodDisruptionBudget).items():
        if key in covered:
            at = np.sort(np.concatenate(covered[key]))
            at = _still_counted(table, budget, slots, at[~violating[at]])
            rows = table.pods.row[slots[at]]
            nth = np.arange(len(at)) - np.searchsorted(rows, rows)
            violating[at[nth >= budget.status.disruptions_allowed]] = True
    return violating


def _covered_by_budget(table: Table, slots: Rows) -> dict[str, list[Rows]]:
    """Positions in `slots` of the pods that a budget covers, by the budget's key."""
    covered: dict[str, list[Rows]] = defaultdict(list)
    if len(slots) and table.objects.all(PodDisruptionBudget):
        groups = table.pods.group[slots]
        order = np.argsort(groups, kind="stable")
        begins = np.flatnonzero(np.diff(groups[order])) + 1
        for positions in np.split(order, begins):
            group = table.pods.info(int(slots[positions[0]])).group
            for key in table.budgets.covering(group):
                covered[key].append(positions)
    return covered


def _still_counted(table: Table, budget: PodDisruptionBudget, slots: Rows, at: Rows) -> Rows:
    """Without the pods whose eviction the API server has granted already: they are in the budget's count."""
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return at
    counted = [info.pod.name not in disrupted for info in table.pods.at(slots[at])]
    return at[np.array(counted, np.bool_)]
