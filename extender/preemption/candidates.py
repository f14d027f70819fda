"""The pods that may be evicted, and in what order; nodes that would do, each with its victims; the one to nominate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.model.workloads import PodDisruptionBudget
from extender.preemption.go_sort import STABLE_UP_TO, slice_order
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows

_PRIORITY_BITS = 32
# Added to every priority before they are summed, so that more victims of a negative priority are not cheaper.
_PRIORITY_OFFSET = 2**31


def by_importance(table: Table, slots: Rows) -> tuple[Rows, IntColumn]:
    """The slots by node, on each node by descending priority, then by ascending start; and their ranks, int64[n].

    Equal ones stand where the scheduler's sort leaves them, if its cache holds them by namespace and name, as it does
    after a list. Pods that have not started are never equal for it: it takes the present time for each of them.
    """
    pods = table.pods
    key = (pods.row[slots] << _PRIORITY_BITS) - pods.priority[slots]
    started = pods.started[slots]
    order = np.lexsort((started, key))
    slots, key, started = slots[order], key[order], started[order]
    differs = (key[1:] != key[:-1]) | (started[1:] != started[:-1])
    if differs.all():
        return slots, np.arange(len(slots))
    slots = _ties_by_name(table, slots, _ranked(differs))
    rank = _ranked(differs | np.isinf(started[1:]))
    for begin, end in _unstable(pods.row[slots], rank):
        cached = _order_of_names(table, slots[begin:end])
        slots[begin:end] = slots[begin:end][cached[slice_order(rank[begin:end][cached].tolist())]]
    return slots, rank


def _ranked(differs: BoolColumn) -> IntColumn:
    """A number that grows wherever one differs from the one before it: int64[n + 1]."""
    return np.concatenate(([0], np.cumsum(differs)))


def _ties_by_name(table: Table, slots: Rows, rank: IntColumn) -> Rows:
    """Puts slots of equal rank, which stand together, into the order of namespaces and names."""
    tied = np.flatnonzero(np.bincount(rank)[rank] > 1)
    by_name = tied[_order_of_names(table, slots[tied])]
    slots[tied] = slots[by_name[np.argsort(rank[by_name], kind="stable")]]
    return slots


def _unstable(rows: Rows, rank: IntColumn) -> list[tuple[int, int]]:
    """The ranges of the nodes whose pods an unstable sort may reorder: too many, and some equal."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(rows)) + 1, [len(rows)]))
    begins, ends = edges[:-1], edges[1:]
    unstable = (ends - begins > STABLE_UP_TO) & (rank[ends - 1] - rank[begins] + 1 < ends - begins)
    return list(zip(begins[unstable].tolist(), ends[unstable].tolist(), strict=True))


def _order_of_names(table: Table, slots: Rows) -> Rows:
    names = [info.sort_key for info in table.pods.at(slots)]
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)


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
        """Those that are not reprieved, bool[n], in upstream's order.

        Where a node had both kinds, upstream lists the violating ones first, and sorts them all by importance again.
        """
        victims = self.only(~reprieved)
        if not self.violating.any():
            return victims
        tied = victims.rank[1:] == victims.rank[:-1]
        unstable = self._unstable(victims, tied)
        if not unstable and not (tied & victims.violating[1:] & ~victims.violating[:-1]).any():
            return victims
        order = np.lexsort((~victims.violating, victims.rank))
        for begin, end in unstable:
            listed = begin + np.argsort(~victims.violating[begin:end], kind="stable")
            order[begin:end] = listed[slice_order(victims.rank[listed].tolist())]
        return victims.only(order)

    def _unstable(self, victims: VictimColumns, tied: BoolColumn) -> list[tuple[int, int]]:
        """The ranges of the nodes where sorting `victims` again is unstable; their pods here were of both kinds."""
        edges = victims.begins()
        edges = edges[np.flatnonzero(np.diff(edges) > STABLE_UP_TO)[:, None] + [0, 1]]
        violating = np.concatenate(([0], np.cumsum(self.violating)))
        first, last = (np.searchsorted(self.rows, victims.rows[edges[:, 0]], side) for side in ("left", "right"))
        violations = violating[last] - violating[first]
        edges = edges[(violations > 0) & (violations < last - first)]
        return [(begin, end) for begin, end in edges.tolist() if tied[begin : end - 1].any()]


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
