"""Victims on every node at once: all potential victims leave, then as many as possible are reprieved.

Source: upstream DefaultPreemption.SelectVictimsOnNode. Each round gives every node one pod back, and takes it away
again where the preemptor no longer fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from extender.framework.find_fit import FITS, Prepared, awaited_pods, run
from extender.framework.profile import Profile
from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Refusal
from extender.preemption.candidates import VictimColumns
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, Rows


class _PodDependent(NamedTuple):
    """A predicate that looks at placed pods, and its check. None: with all pods in place it refuses every node."""

    predicate: Predicate
    check: Check | None

    def filter_with_pods_removed(self, rows: Rows, removals: HypotheticalRemovals) -> Verdict | None:
        return self.check.filter_with_pods_removed(rows, removals) if self.check else None

    @property
    def sees_own_pods_only(self) -> bool:
        return self.check is not None and self.check.sees_own_pods_only


class DryRun:
    """One pod tried on nodes without some of their pods.

    A node with nominated pods of the same or higher priority must do both with and without them. Checks that see a
    node's own pods only answer that at once; for the others such nodes are tried one after another. Predicates that
    have nothing to say of the pod are not asked again (upstream Skip).
    """

    def __init__(self, profile: Profile, pod: PodInfo, table: Table) -> None:
        self._pod, self._table = pod, table
        self._fixed = Prepared()
        self._dependent: list[_PodDependent] = []
        for predicate in profile.predicates:
            self._prepare(predicate)
        self._awaited = awaited_pods(profile, pod, table)
        self._cross_node = [each.predicate for each in self._dependent if not each.sees_own_pods_only]
        self._nominated = self._awaited.by_row() if self._cross_node else {}

    def rows_that_fit(self, rows: Rows, victims: VictimColumns) -> Rows:
        """The rows where the pod fits once the victims have left."""
        rows = rows[self._may_help(rows)]
        fitting: Rows = rows[self._fits(rows, self._removals(victims))]
        return fitting

    def select_victims(self, potential: VictimColumns) -> VictimColumns:
        """The fewest of the potential victims that make room on each node; none where not even all of them do.

        Those that a PodDisruptionBudget protects are reprieved first, then the others, the most important first.
        """
        removals = self._removals(potential)
        rows = potential.rows[potential.begins()[:-1]]
        rows = rows[self._may_help(rows)]
        rows = rows[self._fits(rows, removals)]
        helps = np.zeros(self._table.nodes.capacity, np.bool_)
        helps[rows] = True
        removed = potential.only(helps[potential.rows])
        return removed.without(self._reprieved(removed, removals))

    def _prepare(self, predicate: Predicate) -> None:
        made = predicate.prepare(self._pod, self._table)
        if isinstance(made, Refusal):
            if made.may_be_preempted:
                self._dependent.append(_PodDependent(predicate, None))
            else:
                self._fixed.refusal = made
        elif made is not None:
            if made.only is not None:
                self._fixed.narrow(predicate.name, made.only)
            if made.sees_pods:
                self._dependent.append(_PodDependent(predicate, made))
            else:
                self._fixed.checks.append((predicate.name, made))

    def _removals(self, victims: VictimColumns) -> HypotheticalRemovals:
        return HypotheticalRemovals(self._table, victims.slots, self._awaited)

    def _may_help(self, rows: Rows) -> BoolColumn:
        """Tells the rows that pass the checks that no eviction changes: bool[len(rows)]."""
        may_help: BoolColumn = run(self._fixed, self._table, rows).cause == FITS
        return may_help

    def _reprieved(self, removed: VictimColumns, removals: HypotheticalRemovals) -> BoolColumn:
        """Tells the removed pods that can stay after all: bool[n]."""
        reprieved = np.zeros(len(removed.slots), np.bool_)
        turn = np.lexsort((~removed.violating, removed.rows))  # stable: importance decides among equals
        begins = removed.begins()
        pods_on_node = np.diff(begins)
        for nth in range(pods_on_node.max(initial=0)):
            asked = turn[begins[:-1][pods_on_node > nth] + nth]
            slots = removed.slots[asked]
            removals.reprieve(slots)
            fits = self._fits(removed.rows[asked], removals)
            removals.remove(slots[~fits])
            reprieved[asked] = fits
        return reprieved

    def _fits(self, rows: Rows, removals: HypotheticalRemovals) -> BoolColumn:
        """Tells the rows that pass all checks of placed pods, each node by itself without its removed pods: bool[n]."""
        fits = np.ones(len(rows), np.bool_)
        one_by_one: list[Predicate] = []
        for each in self._dependent:
            verdict = each.filter_with_pods_removed(rows, removals)
            if verdict is None:
                one_by_one.append(each.predicate)
            for mask, _ in verdict or ():
                fits &= ~mask
        if one_by_one:
            fits = self._fits_one_by_one(one_by_one, rows, fits, removals, with_nominated=False)
        if self._nominated:
            at_nominated = fits & np.isin(rows, list(self._nominated))
            with_nominated = self._fits_one_by_one(self._cross_node, rows, at_nominated, removals, with_nominated=True)
            fits &= ~at_nominated | with_nominated
        return fits

    def _fits_one_by_one(
        self,
        predicates: Sequence[Predicate],
        rows: Rows,
        asked: BoolColumn,
        removals: HypotheticalRemovals,
        *,
        with_nominated: bool,
    ) -> BoolColumn:
        """Tells the rows that the predicates, prepared anew for one node after another, let pass: bool[len(rows)].

        Rows that are not `asked`, bool[len(rows)], are not tried.
        """
        fits = np.zeros(len(rows), np.bool_)
        removed = _by_row(self._table, removals.slots)
        for position in np.flatnonzero(asked).tolist():
            row = int(rows[position])
            nominated = self._nominated[row] if with_nominated else ()
            with self._table.hypothetically(placed=[(info, self._table.nodes.names[row]) for info in nominated]):
                fits[position] = all(self._passes(predicate, row, removed.get(row, [])) for predicate in predicates)
        return fits

    def _passes(self, predicate: Predicate, row: int, removed: Sequence[int]) -> bool:
        """Tells whether the predicate, prepared anew, lets the row pass without the pods in the slots `removed`."""
        rows, slots = np.array([row], np.intp), np.array(removed, np.intp)
        made = predicate.prepare(self._pod, self._table)
        if isinstance(made, Check):
            verdict = made.filter_with_pods_removed(rows, HypotheticalRemovals(self._table, slots))
            if verdict is not None:
                return _lets_pass(verdict)
        with self._table.hypothetically(removed=[self._table.pods.info(slot).uid for slot in removed]):
            made = predicate.prepare(self._pod, self._table)
            return made is None or (isinstance(made, Check) and _lets_pass(made.refuse(rows)))


def _lets_pass(verdict: Verdict) -> bool:
    return not any(mask.any() for mask, _ in verdict)


def _by_row(table: Table, slots: Rows) -> dict[int, list[int]]:
    """The slots of the pods on each row."""
    by_row: dict[int, list[int]] = {}
    for slot, row in zip(slots.tolist(), table.pods.row[slots].tolist(), strict=True):
        by_row.setdefault(row, []).append(slot)
    return by_row
