"""The pods that may be evicted, and in what order; nodes that would do, each with its victims; the one to nominate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.model.workloads import PodDisruptionBudget
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows

_PRIORITY_BITS = 32
# Added to every priority before they are summed, so that more victims of a negative priority are not cheaper.
_PRIORITY_OFFSET = 2**31


def by_importance(table: Table, slots: Rows) -> tuple[Rows, IntColumn]:
    """Sorts pods by row, then by descending priority, then by ascending start (upstream MoreImportantPod).

    Equally important pods are in the order of their namespaces and names. Upstream's sort is not stable, so there the
    order among them is arbitrary.

    Returns:
        The sorted slots, intp[n], and their ranks, int64[n]: equal only for equally important pods of one node.
    """
    pods = table.pods
    key = (pods.row[slots] << _PRIORITY_BITS) - pods.priority[slots]
    started = pods.started[slots]
    order = np.lexsort((started, key))
    slots, key, started = slots[order], key[order], started[order]
    differs = (key[1:] != key[:-1]) | (started[1:] != started[:-1])
    rank = np.concatenate(([0], np.cumsum(differs)))
    if not differs.all():
        _sort_ties_by_name(table, slots, rank)
    return slots, rank


def _sort_ties_by_name(table: Table, slots: Rows, rank: IntColumn) -> None:
    """Sorts slots of equal rank, which are adjacent, by namespace and name, in place."""
    tied = np.flatnonzero(np.bincount(rank)[rank] > 1)
    names = [info.sort_key for info in table.pods.at(slots[tied])]
    order = sorted(range(len(tied)), key=lambda i: (rank[tied[i]], names[i]))
    slots[tied] = slots[tied[order]]


class VictimColumns(NamedTuple):
    """Pods of any number of nodes, those of one node together and the most important first.

    Attributes:
        slots: intp[n]: their slots in the table's pod columns.
        rows: intp[n]: the rows of their nodes.
        violating: bool[n]: evicting the pod would violate a PodDisruptionBudget.
        rank: int64[n]: smaller for the more important; equal only for pods of one node.
    """

    slots: Rows
    rows: Rows
    violating: BoolColumn
    rank: IntColumn

    def only(self, chosen: BoolColumn | Rows) -> VictimColumns:
        """Those that are chosen, bool[n], or those at these positions, in this order: intp[m]."""
        return VictimColumns(self.slots[chosen], self.rows[chosen], self.violating[chosen], self.rank[chosen])

    def joined(self, others: VictimColumns) -> VictimColumns:
        """These and those of other nodes."""
        return VictimColumns(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))

    def begins(self) -> Rows:
        """The index where each node's victims begin; the number of victims at the end: intp[nodes + 1]."""
        changes = np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1
        return np.concatenate(([0], changes, [len(self.rows)])) if len(self.rows) else np.zeros(1, np.intp)

    def without(self, reprieved: BoolColumn) -> VictimColumns:
        """Returns the pods that are not reprieved, bool[n].

        Among equally important ones, those that violate a budget are first, as upstream lists them before it sorts.
        """
        victims = self.only(~reprieved)
        if not victims.violating.any():
            return victims
        return victims.only(np.lexsort((~victims.violating, victims.rank)))


NO_VICTIMS = VictimColumns(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.bool_), np.zeros(0, np.int64))


def potential_victims(pod: PodInfo, table: Table, rows: Rows) -> VictimColumns:
    """Every pod of a lower priority than `pod` on the nodes at `rows`."""
    pods = table.pods
    asked = np.zeros(table.nodes.capacity, np.bool_)
    asked[rows] = True
    lesser = (pods.row >= 0) & (pods.priority < pod.priority) & asked[pods.row]
    slots, rank = by_importance(table, np.flatnonzero(lesser))
    return VictimColumns(slots, pods.row[slots], violating(table, slots), rank)


def violating(table: Table, slots: Rows) -> BoolColumn:
    """Tells the pods whose eviction, in this order, would violate a budget: bool[n] (FilterVictimsWithPDBViolation).

    `slots` are ordered as by `by_importance`. On each node by itself a budget's disruptions go to the more important
    pods first; a pod that violates one budget takes nothing from those after it.
    """
    violating = np.zeros(len(slots), np.bool_)
    covered = _covered_by_budget(table, slots)
    for key, budget in table.objects.all(PodDisruptionBudget).items():
        if key in covered:
            at = np.sort(np.concatenate(covered[key]))
            at = _not_disrupted(table, budget, slots, at[~violating[at]])
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


def _not_disrupted(table: Table, budget: PodDisruptionBudget, slots: Rows, at: Rows) -> Rows:
    """Drops the pods whose eviction the API server has granted already: they are in the budget's count."""
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return at
    kept = [info.pod.name not in disrupted for info in table.pods.at(slots[at])]
    return at[np.array(kept, np.bool_)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can take the preemptor once the victims have left it, in upstream's order.

    `num_pdb_violations` counts those that a PodDisruptionBudget protects.
    """

    node: str
    victims: tuple[PodInfo, ...]
    num_pdb_violations: int


class Candidates(Mapping[str, Candidate]):
    """Candidates by node name; they keep no reference to the table that they come from."""

    def __init__(self, table: Table, victims: VictimColumns, num_pdb_violations: IntColumn | None = None) -> None:
        """`num_pdb_violations`: int64[nodes]; None: they are counted here."""
        begins = victims.begins()
        names = table.nodes.names_of(victims.rows[begins[:-1]])
        self._index = dict(zip(names, range(len(names)), strict=True))
        self._begins = begins
        self._victims = table.pods.at(victims.slots)
        counted = _sums(victims.violating, begins) if num_pdb_violations is None else num_pdb_violations
        self._num_pdb_violations = counted
        self.best = names[_pick_one_node(table, victims, begins, self._num_pdb_violations)] if names else None
        """The node to nominate, the first of several; None without candidates."""

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __getitem__(self, node: str) -> Candidate:
        index = self._index[node]
        victims = self._victims[self._begins[index] : self._begins[index + 1]]
        return Candidate(node, tuple(victims), int(self._num_pdb_violations[index]))


def candidates_of(table: Table, chosen: Mapping[str, Candidate]) -> Candidates:
    """Candidates that an extender has left, on nodes of the table and with victims that stand there."""
    uids = [victim.uid for candidate in chosen.values() for victim in candidate.victims]
    slots = np.array([table.pods.slot_of[uid] for uid in uids], np.intp)
    victims = VictimColumns(slots, table.pods.row[slots], np.zeros(len(slots), np.bool_), np.arange(len(slots)))
    violations = [candidate.num_pdb_violations for candidate in chosen.values()]
    return Candidates(table, victims, np.array(violations, np.int64))


def _pick_one_node(table: Table, victims: VictimColumns, begins: Rows, num_pdb_violations: IntColumn) -> int:
    """The index of the node where preemption costs least; equal ones are compared by the next cost.

    Source: upstream preemption.pickOneNodeForPreemption.
    """
    first = begins[:-1]
    priority = table.pods.priority[victims.slots]
    costs = (
        num_pdb_violations,
        priority[first],
        _sums(priority + _PRIORITY_OFFSET, begins),
        np.diff(begins),
        -table.pods.started[victims.slots[first]],
    )
    left = np.arange(len(first))
    for cost in costs:
        left = left[cost[left] == cost[left].min()]
    return int(left[0])


def _sums(numbers: NDArray[np.generic], begins: Rows) -> IntColumn:
    """The sum over each node's victims: int64[nodes]."""
    sums = np.concatenate(([0], np.cumsum(numbers, dtype=np.int64)))
    return np.diff(sums[begins])
