"""Filtering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from extender.framework.profile import Profile
from extender.framework.rules import Check, Verdict
from extender.framework.status import Code, Refusal, merged, unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.podinfo import lazy_attribute
from extender.table.pods.nominated import AwaitedPods

FITS = -1


class Fit:
    """The outcome for each of the rows asked about.

    Attributes:
        rows: intp[n]: the rows asked about.
        cause: intp[n]: index into `refusals`, or FITS.
        refusals: the distinct refusals, in the order in which they were met.
        narrowed_by: the plugins that named the nodes that can do at all; they refused all others.
        refused_at_once: the pod was refused on every node before any was looked at (upstream PreFilter).
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self.narrowed_by: Sequence[str] = ()
        self.refused_at_once = False

    @lazy_attribute
    def cause(self) -> NDArray[np.intp]:
        return np.full(len(self.rows), FITS, np.intp)

    @property
    def feasible(self) -> Rows:
        """Returns the rows that can take the pod."""
        return self.rows[self.cause == FITS] if self.refusals else self.rows

    def refused(self) -> Iterator[tuple[int, Refusal]]:
        """Yields (row, refusal) of every row that cannot take it."""
        for position in np.flatnonzero(self.cause != FITS):
            yield int(self.rows[position]), self.refusals[self.cause[position]]

    def refusal(self, position: int) -> Refusal | None:
        """Returns the refusal of the row at `position` of `rows`, if it was refused."""
        cause = self.cause[position]
        return None if cause == FITS else self.refusals[cause]

    def with_code(self, code: Code) -> Rows:
        """Returns the rows refused with exactly this code."""
        chosen = [cause for cause, refusal in enumerate(self.refusals) if refusal.code is code]
        return self.rows[np.isin(self.cause, chosen)]

    def by_plugin(self) -> dict[str, int]:
        """Returns the number of rows that each plugin refused."""
        counts: dict[str, int] = {}
        for cause, rows in enumerate(np.bincount(self.cause[self.cause != FITS], minlength=len(self.refusals))):
            plugin = self.refusals[cause].plugin
            counts[plugin] = counts.get(plugin, 0) + int(rows)
        return counts

    def refuse(self, positions: Rows, refusal: Refusal) -> None:
        self.cause[positions] = len(self.refusals)
        self.refusals.append(refusal)

    def refuse_too(self, positions: Rows, refusal: Refusal) -> None:
        """Notes a further refusal of rows that may have been refused before."""
        for cause in np.unique(self.cause[positions]):
            at = positions[self.cause[positions] == cause]
            self.refuse(at, refusal if cause == FITS else merged(self.refusals[cause], refusal))

    def refuse_all(self, positions: Rows | None, verdict: Verdict) -> Rows | None:
        """Notes a verdict on the rows at `positions` (None: on all); returns the positions that still stand."""
        standing: BoolColumn | None = None
        for mask, refusal in verdict:
            if np.count_nonzero(mask):  # any() takes a detour through Python
                positions = np.arange(len(self.rows)) if positions is None else positions
                self.refuse(positions[mask], refusal)
                standing = ~mask if standing is None else standing & ~mask
        return positions if positions is None or standing is None else positions[standing]


@dataclass(slots=True)
class Prepared:
    """A profile's predicates made ready for one pod.

    Attributes:
        checks: (plugin, check) of the predicates that have something to say.
        refusal: what turned the pod down on every node, if anything did.
        only: the names of the nodes that can do at all; None: any may.
        only_by: the plugins that named them.
        check_all: every check sees every row.
    """

    checks: list[tuple[str, Check]] = field(default_factory=list)
    refusal: Refusal | None = None
    only: frozenset[str] | None = None
    only_by: list[str] = field(default_factory=list)
    check_all: bool = False

    def narrow(self, plugin: str, only: frozenset[str]) -> bool:
        """Leaves only the nodes named, and returns True if any is left."""
        self.only = only if self.only is None else self.only & only
        self.only_by = sorted({*self.only_by, plugin})
        if not self.only:
            self.refusal = unresolvable("", _unsatisfied(self.only_by))
        return bool(self.only)


def prepare(profile: Profile, pod: PodInfo, table: Table) -> Prepared:
    """Prepares every predicate for the pod (upstream RunPreFilterPlugins).

    A refusal of every node that no eviction can change ends it at once; one that eviction may change is kept while the
    other predicates are asked, since one of them may refuse the pod for good. Raises DeadlineExceeded.
    """
    prepared = Prepared(check_all=profile.check_all_predicates)
    for predicate in profile.predicates:
        table.deadline.check(predicate.name)
        made = predicate.prepare(pod, table)
        if made is None:
            continue
        if isinstance(made, Refusal):
            prepared.refusal = made
            if not made.may_be_preempted:
                break
        else:
            prepared.checks.append((predicate.name, made))
            if made.only is not None and not prepared.narrow(predicate.name, made.only):
                break
    if profile.filter_order:
        prepared.checks.sort(key=lambda check: profile.filter_order.index(check[0]))
    return prepared


def run(prepared: Prepared, table: Table, rows: Rows) -> Fit:
    """Runs the checks over `rows`; each row's refusal is that of the first predicate that refused it.

    Raises DeadlineExceeded.
    """
    fit = Fit(rows)
    fit.narrowed_by = prepared.only_by
    standing: Rows | None = None
    if prepared.refusal is not None:
        fit.refused_at_once = True
        fit.refuse(np.arange(len(rows)), prepared.refusal)
        return fit
    if prepared.only is not None:
        chosen = [table.nodes.row_of[name] for name in prepared.only if name in table.nodes.row_of]
        outside = ~np.isin(rows, np.array(chosen, np.intp))
        refusal = unresolvable("", f"node(s) didn't satisfy plugin(s) [{' '.join(prepared.only_by)}]")
        standing = fit.refuse_all(standing, [(outside, refusal)])
    if prepared.check_all:
        _run_all(prepared, table, fit, np.arange(len(rows)) if standing is None else standing)
        return fit
    for name, check in prepared.checks:
        asked = rows if standing is None else rows[standing]
        if not len(asked):
            break
        table.deadline.check(name)
        standing = fit.refuse_all(standing, check.refuse(asked))
    return fit


def _run_all(prepared: Prepared, table: Table, fit: Fit, positions: Rows) -> None:
    asked = fit.rows[positions]
    for name, check in prepared.checks:
        table.deadline.check(name)
        for mask, refusal in check.refuse(asked):
            fit.refuse_too(positions[mask], refusal)


def find_fit(profile: Profile, pod: PodInfo, table: Table, rows: Rows) -> Fit:
    """Finds which of `rows` can take the pod; pods nominated to a node count as if they stood there.

    A node with nominated pods of the same or higher priority must do both with and without them, for they may
    never come (upstream RunFilterPluginsWithNominatedPods); what it lacks with them is told first.
    Predicates that had nothing to say without them are not asked again (upstream Skip). Raises DeadlineExceeded.
    """
    prepared = prepare(profile, pod, table)
    fit = run(prepared, table, rows)
    if prepared.refusal is None and (awaited := _awaited_among(rows, profile, pod, table)):
        seeing = [check for _, check in prepared.checks if check.sees_pods]
        if all(check.sees_resources_only for check in seeing):
            _refuse(fit, run(_with_requested(prepared, awaited, table), table, np.unique(awaited.rows)))
            return fit
        by_row = awaited.by_row()
        # What sees its own node only is asked once, with all of them in their places.
        apart = not all(check.sees_own_pods_only for check in seeing)
        for group in [[row] for row in by_row] if apart else [list(by_row)]:
            placed = [(info, table.nodes.names[row]) for row in group for info in by_row[row]]
            with table.hypothetically(placed=placed):
                still_asked = prepare(_still_asked(profile, prepared), pod, table)
                _refuse(fit, run(still_asked, table, np.array(group, np.intp)))
    return fit


def _refuse(fit: Fit, then: Fit) -> None:
    """Refuses the rows that are refused with their nominated pods."""
    position_of = np.zeros(fit.rows.max() + 1, np.intp)
    position_of[fit.rows] = np.arange(len(fit.rows))
    at = position_of[then.rows]
    for cause, refusal in enumerate(then.refusals):
        fit.refuse(at[then.cause == cause], refusal)


def _awaited_among(rows: Rows, profile: Profile, pod: PodInfo, table: Table) -> AwaitedPods:
    awaited = awaited_pods(profile, pod, table)
    return awaited.only(np.isin(awaited.rows, rows)) if awaited else awaited


def awaited_pods(profile: Profile, pod: PodInfo, table: Table) -> AwaitedPods:
    """Returns the nominated pods that `pod` must leave room for, on known nodes."""
    return table.nominated.awaited_by(pod, lambda scheduler_name: profile.awaits_those_of(pod, scheduler_name))


def _with_requested(prepared: Prepared, awaited: AwaitedPods, table: Table) -> Prepared:
    """Returns the checks as they are with what the pods will take of their nodes."""
    requested = table.nodes.requested.copy()
    awaited.add_to(requested)
    checks = [(name, _WithRequested(check, requested) if check.sees_pods else check) for name, check in prepared.checks]
    return replace(prepared, checks=checks)


class _WithRequested(Check):
    def __init__(self, check: Check, requested: IntColumn) -> None:
        self._check, self._requested = check, requested

    def refuse(self, rows: Rows) -> Verdict:
        return self._check.refuse_requested(rows, self._requested)


def _still_asked(profile: Profile, prepared: Prepared) -> Profile:
    heard = {plugin for plugin, _ in prepared.checks}
    return replace(profile, predicates=[each for each in profile.predicates if each.name in heard])


def _unsatisfied(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"
