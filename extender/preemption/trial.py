"""What-if: does the pod fit once others have left?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from extender.framework.algorithm import FITS, Prepared, Profile, awaited_pods, run
from extender.framework.rules import Check, Predicate, Verdict, applicable_rules
from extender.framework.status import Refusal
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, Rows


class Asked(NamedTuple):
    """A predicate that sees pods, and its check. None: with all pods in place it turns the pod down everywhere."""

    predicate: Predicate
    check: Check | None

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict | None:
        return self.check.filter_with_pods_removed(rows, gone) if self.check else None


class Trial:
    """One pod tried on nodes that some of their pods are thought to have left.

    As everywhere, a node with nominated pods of the same or higher priority must do both with and without them. Checks
    that see a node's own pods only answer that at once; for the others such nodes are tried one after another.

    Predicates that had nothing to say of the pod at first are not asked again (upstream Skip).
    """

    def __init__(self, profile: Profile, pod: PodInfo, table: Table) -> None:
        self._pod, self._table = pod, table
        self._fixed = Prepared()
        self._asked: list[Asked] = []
        for predicate in applicable_rules(profile.predicates, pod):
            self._prepare(predicate)
        self._awaited = {
            table.nodes.row_of[name]: infos for name, infos in awaited_pods(pod, table) if name in table.nodes.row_of
        }
        self.awaited = [(info, row) for row, infos in self._awaited.items() for info in infos]
        self._far_sighted = [asked.predicate for asked in self._asked if not _sees_own_pods_only(asked)]

    def possible(self, rows: Rows) -> BoolColumn:
        """Whether each row passes the checks that no eviction changes: bool[len(rows)]."""
        possible: BoolColumn = run(self._fixed, self._table, rows).cause == FITS
        return possible

    def fits(self, rows: Rows, gone: HypotheticalRemovals) -> BoolColumn:
        """Whether each row passes all other checks, each node by itself without its pods among `gone`.

        `gone` is made with this trial's `awaited`. bool[len(rows)].
        """
        fits = np.ones(len(rows), np.bool_)
        untold: list[Predicate] = []
        for asked in self._asked:
            verdict = asked.filter_with_pods_removed(rows, gone)
            if verdict is None:
                untold.append(asked.predicate)
            for mask, _ in verdict or ():
                fits &= ~mask
        if untold:
            fits = self._fits_singly(untold, rows, fits, gone, with_awaited=False)
        if self._awaited and self._far_sighted:
            at_awaited = fits & np.isin(rows, list(self._awaited))
            fits &= ~at_awaited | self._fits_singly(self._far_sighted, rows, at_awaited, gone, with_awaited=True)
        return fits

    def _prepare(self, predicate: Predicate) -> None:
        made = predicate.prepare(self._pod, self._table)
        if isinstance(made, Refusal):
            if made.may_be_preempted:
                self._asked.append(Asked(predicate, None))
            else:
                self._fixed.refusal = made
        elif made is not None:
            if made.only is not None:
                self._fixed.narrow(predicate.name, made.only)
            if made.sees_pods:
                self._asked.append(Asked(predicate, made))
            else:
                self._fixed.checks.append((predicate.name, made))

    def _fits_singly(
        self,
        predicates: Sequence[Predicate],
        rows: Rows,
        wanted: BoolColumn,
        gone: HypotheticalRemovals,
        *,
        with_awaited: bool,
    ) -> BoolColumn:
        """Whether the predicates, prepared anew for one node after another, let each row pass: bool[len(rows)].

        Rows that are not `wanted` are not tried.
        """
        fits = np.zeros(len(rows), np.bool_)
        left = _by_row(self._table, gone.slots)
        for position in np.flatnonzero(wanted).tolist():
            row = int(rows[position])
            come = self._awaited[row] if with_awaited else ()
            with self._table.supposing(placed=[(info, self._table.nodes.names[row]) for info in come]):
                fits[position] = all(self._passes(predicate, row, left.get(row, [])) for predicate in predicates)
        return fits

    def _passes(self, predicate: Predicate, row: int, left: Sequence[int]) -> bool:
        """Whether the predicate, prepared anew, lets the row pass without the pods in the slots `left`."""
        rows, slots = np.array([row], np.intp), np.array(left, np.intp)
        made = predicate.prepare(self._pod, self._table)
        if isinstance(made, Check):
            verdict = made.filter_with_pods_removed(rows, HypotheticalRemovals(self._table, slots))
            if verdict is not None:
                return _lets_pass(verdict)
        with self._table.supposing(gone=[self._table.pods.info(slot).uid for slot in left]):
            made = predicate.prepare(self._pod, self._table)
            return made is None or (isinstance(made, Check) and _lets_pass(made.refuse(rows)))


def _sees_own_pods_only(asked: Asked) -> bool:
    return asked.check is not None and asked.check.sees_own_pods_only


def _lets_pass(verdict: Verdict) -> bool:
    return not any(mask.any() for mask, _ in verdict)


def _by_row(table: Table, slots: Rows) -> dict[int, list[int]]:
    """The slots of the pods on each row."""
    by_row: dict[int, list[int]] = {}
    for slot, row in zip(slots.tolist(), table.pods.row[slots].tolist(), strict=True):
        by_row.setdefault(row, []).append(slot)
    return by_row
