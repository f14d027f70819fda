"""Selects victims on all nodes at once: removes all potential victims, then reprieves as many as possible.

In each round, every node gets one of its pods back. If the preemptor no longer fits on a node, that pod is removed
again.

Source: upstream DefaultPreemption.SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A predicate that depends on placed pods, and its check.

    The check is None if the predicate refuses every node before any pod is removed.
    """

    predicate: Predicate
    check: Check | None

    def filter_with_pods_removed(self, rows: Rows, removals: HypotheticalRemovals) -> Verdict | None:
        return self.check.filter_with_pods_removed(rows, removals) if self.check else None

    @property
    def sees_own_pods_only(self) -> bool:
        return self.check is not None and self.check.sees_own_pods_only


class DryRun:
    """Checks if one pod would fit on nodes if some of their pods were removed.

    Other pods may be nominated to a node. Those with the same or a higher priority may or may not arrive, so the pod
    must fit with them and without them. Checks that depend only on the node's own pods cover both cases at once. The
    other checks run a second time for each node with such pods. Predicates that do not apply to the pod are prepared
    only once (upstream Skip).

    Args:
        narrowed: False to try nodes even if PreFilter excludes them (upstream SelectVictimsOnNode runs Filter only).
    """

    def __init__(self, profile: Profile, pod: PodInfo, table: Table, *, narrowed: bool = True) -> None:
        self._narrowed = narrowed
        self._pod = pod
        self._table = table
        self._fixed = Prepared()
        self._dependent: list[_PodDependent] = []
        for predicate in profile.predicates:
            self._prepare(predicate)
        self._awaited = awaited_pods(profile, pod, table)
        self._cross_node = [rule.predicate for rule in self._dependent if not rule.sees_own_pods_only]
        self._nominated = self._awaited.by_row() if self._cross_node else {}

    def rows_that_fit(self, rows: Rows, victims: VictimColumns) -> Rows:
        """Returns the rows where the pod fits once the victims have left."""
        rows = rows[self._may_help(rows)]
        fitting: Rows = rows[self._fits(rows, self._removals(victims))]
        return fitting

    def select_victims(self, potential: VictimColumns) -> VictimColumns:
        """Returns the victims on each node where evictions make the pod fit, as few victims as possible.

        Pods that a PodDisruptionBudget protects are reprieved first, and other pods after them. In both cases, the most
        important pods come first.
        """
        return self.select_victims_and_rows(potential)[0]

    def select_victims_and_rows(self, potential: VictimColumns) -> tuple[VictimColumns, Rows]:
        """Returns what `select_victims` returns, and the rows of all nodes that fit without the `potential` victims."""
        removals = self._removals(potential)
        rows = potential.rows[potential.begins()[:-1]]
        rows = rows[self._may_help(rows)]
        rows = rows[self._fits(rows, removals)]
        helps = np.zeros(self._table.nodes.capacity, np.bool_)
        helps[rows] = True
        removed = potential.only(helps[potential.rows])
        return removed.without(self._reprieved(removed, removals)), rows

    def _prepare(self, predicate: Predicate) -> None:
        check = predicate.prepare(self._pod, self._table)
        if isinstance(check, Refusal):
            if check.may_be_preempted:
                self._dependent.append(_PodDependent(predicate, None))
            else:
                self._fixed.refusal = check
        elif check is not None:
            if check.only is not None and self._narrowed:
                self._fixed.narrow(predicate.name, check.only)
            if check.sees_pods:
                self._dependent.append(_PodDependent(predicate, check))
            else:
                self._fixed.checks.append((predicate.name, check))

    def _removals(self, victims: VictimColumns) -> HypotheticalRemovals:
        own = victims.on_own_node(self._table)
        return HypotheticalRemovals(self._table, victims.slots[own], self._awaited)

    def _may_help(self, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: True if the row passes the checks whose verdict no eviction can change."""
        may_help: BoolColumn = run(self._fixed, self._table, rows).cause == FITS
        return may_help

    def _reprieved(self, removed: VictimColumns, removals: HypotheticalRemovals) -> BoolColumn:
        """Returns bool[n]: True for each of the `removed` pods that can stay, because the preemptor fits beside it."""
        begins = removed.unit_begins()
        rows = removed.rows[begins[:-1]]
        unit = np.repeat(np.arange(len(rows)), np.diff(begins))
        own = np.flatnonzero(removed.on_own_node(self._table))
        own_begins = np.searchsorted(own, begins)
        has_whole_groups = len(own) < len(unit) or len(rows) < len(unit)
        stays = np.zeros(len(rows), np.bool_)
        for units in _rounds(rows, np.logical_or.reduceat(removed.violating, begins[:-1])):
            pods = own[_ranges(own_begins[units], own_begins[units + 1])] if has_whole_groups else units
            slots = removed.slots[pods]
            removals.reprieve(slots)
            stays[units] = self._fits(rows[units], removals)
            removals.remove(slots[~stays[unit[pods]]])
        return stays[unit]

    def _fits(self, rows: Rows, removals: HypotheticalRemovals) -> BoolColumn:
        """Returns bool[n]: True for nodes that pass all checks about pods once the removed pods have left."""
        fits = np.ones(len(rows), np.bool_)
        one_by_one: list[Predicate] = []
        for rule in self._dependent:
            verdict = rule.filter_with_pods_removed(rows, removals)
            if verdict is None:
                one_by_one.append(rule.predicate)
            for mask, _ in verdict or ():
                fits &= ~mask
        if one_by_one:
            fits = self._fits_one_by_one(one_by_one, rows, fits, removals, with_nominated=False)
        if self._nominated:
            to_check = fits & np.isin(rows, list(self._nominated))
            with_nominated = self._fits_one_by_one(self._cross_node, rows, to_check, removals, with_nominated=True)
            fits &= ~to_check | with_nominated
        return fits

    def _fits_one_by_one(
        self,
        predicates: Sequence[Predicate],
        rows: Rows,
        to_check: BoolColumn,
        removals: HypotheticalRemovals,
        *,
        with_nominated: bool,
    ) -> BoolColumn:
        """Returns bool[len(rows)]: True if `to_check`, bool[len(rows)], is True and all predicates accept the row.

        The predicates are prepared again for each row.
        """
        fits = np.zeros(len(rows), np.bool_)
        removed = _by_row(self._table, removals.slots)
        for position in np.flatnonzero(to_check).tolist():
            row = int(rows[position])
            nominated = self._nominated[row] if with_nominated else ()
            with self._table.hypothetically(placed=[(info, self._table.nodes.names[row]) for info in nominated]):
                fits[position] = all(self._passes(predicate, row, removed.get(row, [])) for predicate in predicates)
        return fits

    def _passes(self, predicate: Predicate, row: int, removed: Sequence[int]) -> bool:
        """Returns True if the predicate accepts the node on `row` without the pods in the `removed` slots."""
        rows = np.array([row], np.intp)
        check = predicate.prepare(self._pod, self._table)
        if isinstance(check, Check):
            removals = HypotheticalRemovals(self._table, np.array(removed, np.intp))
            verdict = check.filter_with_pods_removed(rows, removals)
            if verdict is not None:
                return _accepts_all(verdict)
        with self._table.hypothetically(removed=[self._table.pods.info(slot).uid for slot in removed]):
            check = predicate.prepare(self._pod, self._table)
            return check is None or (isinstance(check, Check) and _accepts_all(check.refuse(rows)))


def _rounds(rows: Rows, violating: BoolColumn) -> Iterator[Rows]:
    """Yields the indices of the units to put back in each round: at most one unit on each node.

    Units whose eviction violates a budget come first. `rows`, intp[unit], has the row of each unit's node.
    """
    # The sort is stable, so more important pods and groups stay before less important ones.
    order = np.lexsort((~violating, rows))
    begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
    units_on_node = np.diff(begins, append=len(rows))
    for nth in range(units_on_node.max(initial=0)):
        yield order[begins[units_on_node > nth] + nth]


def _ranges(begins: Rows, ends: Rows) -> Rows:
    """Returns the numbers begins[0] to ends[0] - 1, then begins[1] to ends[1] - 1, and so on, in one array."""
    sizes = ends - begins
    before = np.cumsum(sizes) - sizes
    ranges: Rows = np.repeat(begins - before, sizes) + np.arange(sizes.sum())
    return ranges


def _accepts_all(verdict: Verdict) -> bool:
    return not any(mask.any() for mask, _ in verdict)


def _by_row(table: Table, slots: Rows) -> dict[int, list[int]]:
    """Returns a dict: row of a node -> the slots of the pods on that node."""
    by_row: dict[int, list[int]] = {}
    for slot, row in zip(slots.tolist(), table.pods.row[slots].tolist(), strict=True):
        by_row.setdefault(row, []).append(slot)
    return by_row
