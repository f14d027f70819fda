"""Finds the pods that may be evicted, sorts them by importance, and picks the node where eviction costs least.

A pod's slot is its index in the table's pod columns.
"""

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
# Added to every priority before summing, so that more victims of negative priority do not cost less.
_PRIORITY_OFFSET = 2**31


def by_importance(table: Table, slots: Rows) -> tuple[Rows, IntColumn]:
    """Sorts pods by row, then by descending priority, then by ascending start time (upstream MoreImportantPod).

    Equally important pods are in the order of their namespaces and names. Upstream's sort is not stable, so there their
    order is arbitrary (docs/differences.md).

    Returns:
        The sorted slots, intp[n], and their ranks, int64[n]. Two ranks are equal only if the pods are equally important
        and on one node.
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
    """Sorts pods of equal rank, which are adjacent in `slots`, by namespace and name; changes `slots`."""
    tied = np.flatnonzero(np.bincount(rank)[rank] > 1)
    names = [info.sort_key for info in table.pods.at(slots[tied])]
    order = sorted(range(len(tied)), key=lambda i: (rank[tied[i]], names[i]))
    slots[tied] = slots[tied[order]]


class VictimColumns(NamedTuple):
    """Pods on any number of nodes. Pods of one node are adjacent, the most important first.

    Attributes:
        slots: intp[n]: the slots of the pods, which are indices into the table's pod columns.
        rows: intp[n]: the rows of the pods' nodes.
        violating: bool[n]: True if evicting the pod would violate a PodDisruptionBudget.
        rank: int64[n]: smaller for more important pods; equal only for equally important pods on one node.
    """

    slots: Rows
    rows: Rows
    violating: BoolColumn
    rank: IntColumn

    def only(self, chosen: BoolColumn | Rows) -> VictimColumns:
        """Returns the chosen pods: `chosen` is a bool mask of the pods, or their positions in the order wanted."""
        return VictimColumns(self.slots[chosen], self.rows[chosen], self.violating[chosen], self.rank[chosen])

    def joined(self, others: VictimColumns) -> VictimColumns:
        """Returns these pods followed by the pods of `others`, which must be on other nodes."""
        return VictimColumns(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))

    def begins(self) -> Rows:
        """Returns the index of each node's first victim, followed by the number of victims: intp[nodes + 1]."""
        changes = np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1
        return np.concatenate(([0], changes, [len(self.rows)])) if len(self.rows) else np.zeros(1, np.intp)

    def without(self, reprieved: BoolColumn) -> VictimColumns:
        """Returns the pods for which `reprieved`, bool[n], is False: those that must leave.

        Of equally important pods, those whose eviction violates a budget come first, as upstream lists them.
        """
        victims = self.only(~reprieved)
        if not victims.violating.any():
            return victims
        return victims.only(np.lexsort((~victims.violating, victims.rank)))


NO_VICTIMS = VictimColumns(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.bool_), np.zeros(0, np.int64))


def potential_victims(pod: PodInfo, table: Table, rows: Rows) -> VictimColumns:
    """Returns all pods on `rows` with a lower priority than `pod`."""
    pods = table.pods
    is_searched = np.zeros(table.nodes.capacity, np.bool_)
    is_searched[rows] = True
    lesser = (pods.row >= 0) & (pods.priority < pod.priority) & is_searched[pods.row]
    slots, rank = by_importance(table, np.flatnonzero(lesser))
    return VictimColumns(slots, pods.row[slots], violating(table, slots), rank)


def violating(table: Table, slots: Rows) -> BoolColumn:
    """Returns bool[n]: True if evicting the pod would violate a budget (upstream FilterVictimsWithPDBViolation).

    `slots` must be sorted by `by_importance`. Each node is judged alone: the evictions that a budget allows are used
    for the more important pods first. A pod that violates one budget does not use up an eviction that another allows.
    """
    violating = np.zeros(len(slots), np.bool_)
    covered = _covered_by_budget(table, slots)
    for key, budget in table.objects.all(PodDisruptionBudget).items():
        if key in covered:
            positions = np.sort(np.concatenate(covered[key]))
            positions = _not_disrupted(table, budget, slots, positions[~violating[positions]])
            rows = table.pods.row[slots[positions]]
            nth_on_node = np.arange(len(positions)) - np.searchsorted(rows, rows)
            violating[positions[nth_on_node >= budget.status.disruptions_allowed]] = True
    return violating


def _covered_by_budget(table: Table, slots: Rows) -> dict[str, list[Rows]]:
    """Returns, by the key of each budget, the positions in `slots` of the pods that it covers."""
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


def _not_disrupted(table: Table, budget: PodDisruptionBudget, slots: Rows, positions: Rows) -> Rows:
    """Returns the positions without pods whose eviction the API server has granted; the budget has counted those."""
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return positions
    is_undisrupted = [info.pod.name not in disrupted for info in table.pods.at(slots[positions])]
    return positions[np.array(is_undisrupted, np.bool_)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can take the preemptor once its victims, in upstream's order, have left.

    `num_pdb_violations` is the number of victims that a PodDisruptionBudget protects.
    """

    node: str
    victims: tuple[PodInfo, ...]
    num_pdb_violations: int


class Candidates(Mapping[str, Candidate]):
    """Candidates by node name. This object keeps no reference to the table."""

    def __init__(self, table: Table, victims: VictimColumns, num_pdb_violations: IntColumn | None = None) -> None:
        """Builds the candidates; if `num_pdb_violations`, int64[nodes], is None, `victims.violating` is counted."""
        begins = victims.begins()
        names = table.nodes.names_of(victims.rows[begins[:-1]])
        if num_pdb_violations is None:
            num_pdb_violations = _sums(victims.violating, begins)
        self._index = dict(zip(names, range(len(names)), strict=True))
        self._begins = begins
        self._victims = table.pods.at(victims.slots)
        self._num_pdb_violations = num_pdb_violations
        self.best = names[_pick_one_node(table, victims, begins, num_pdb_violations)] if names else None
        """The node to nominate, the first of equally cheap ones; None without candidates."""

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __getitem__(self, node: str) -> Candidate:
        index = self._index[node]
        victims = self._victims[self._begins[index] : self._begins[index + 1]]
        return Candidate(node, tuple(victims), int(self._num_pdb_violations[index]))


def candidates_of(table: Table, chosen: Mapping[str, Candidate]) -> Candidates:
    """Returns the candidates that another extender has left; their nodes and victims must be in the table."""
    uids = [victim.uid for candidate in chosen.values() for victim in candidate.victims]
    slots = np.array([table.pods.slot_of[uid] for uid in uids], np.intp)
    victims = VictimColumns(slots, table.pods.row[slots], np.zeros(len(slots), np.bool_), np.arange(len(slots)))
    violations = [candidate.num_pdb_violations for candidate in chosen.values()]
    return Candidates(table, victims, np.array(violations, np.int64))


def _pick_one_node(table: Table, victims: VictimColumns, begins: Rows, num_pdb_violations: IntColumn) -> int:
    """Returns the index of the node where preemption costs least (upstream pickOneNodeForPreemption).

    If nodes are equal by one cost, the next cost decides. If they are equal by all costs, the first node is picked.
    """
    first_victims = begins[:-1]
    priority = table.pods.priority[victims.slots]
    costs = (
        num_pdb_violations,
        priority[first_victims],
        _sums(priority + _PRIORITY_OFFSET, begins),
        np.diff(begins),
        -table.pods.started[victims.slots[first_victims]],
    )
    cheapest = np.arange(len(first_victims))
    for cost in costs:
        cheapest = cheapest[cost[cheapest] == cost[cheapest].min()]
    return int(cheapest[0])


def _sums(numbers: NDArray[np.generic], begins: Rows) -> IntColumn:
    """Returns the sum of `numbers` over each node's victims: int64[nodes]."""
    sums = np.concatenate(([0], np.cumsum(numbers, dtype=np.int64)))
    return np.diff(sums[begins])
