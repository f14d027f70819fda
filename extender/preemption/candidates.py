"""Nodes that would do, each with its victims, and the one to nominate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.preemption.victims import VictimColumns
from extender.table import PodInfo, Table
from extender.table.labels import IntColumn, Rows

# Added to every priority before they are summed, so that more victims of a negative priority are not cheaper.
_PRIORITY_OFFSET = 2**31


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
        names = [table.nodes.names[row] for row in victims.rows[begins[:-1]].tolist()]
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
