"""Runs the predicates of a profile over the nodes, and its priorities over the feasible rows.

Start with `find_fit`, which calls `prepare` (upstream PreFilter) and `run` (upstream Filter) and returns a `Fit`; then
`score`.

Source: upstream schedule_one.go, findNodesThatFitPod and prioritizeNodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.framework.profile import Profile
from extender.framework.rules import Check, Scores, Verdict
from extender.framework.status import Code, Refusal, merged, unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.nominated import AwaitedPods
from extender.table.podinfo import lazy_attribute

FITS = -1


class Fit:
    """The outcome of filtering for each row that was checked.

    Attributes:
        rows: intp[n]: the checked rows.
        cause: intp[n]: for each checked row, the index of its refusal in `refusals`; FITS if it has none.
        refusals: the refusals of the checks, in the order of the checks. Several rows may have the same refusal.
        narrowed_by: the plugins that restricted the pod to nodes with certain names (upstream PreFilterResult).
        refused_at_once: True if a predicate refused all nodes before any node was checked (upstream PreFilter).
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self.narrowed_by: Sequence[str] = ()
        self.refused_at_once = False

    @lazy_attribute
    def cause(self) -> NDArray[np.intp]:
        return np.full(len(self.rows), FITS)

    @property
    def feasible(self) -> Rows:
        """The rows that can take the pod."""
        return self.rows[self.cause == FITS] if self.refusals else self.rows

    def refused(self) -> Iterator[tuple[int, Refusal]]:
        """Yields (row, refusal) for each row that cannot take the pod."""
        for position in np.flatnonzero(self.cause != FITS):
            yield int(self.rows[position]), self.refusals[self.cause[position]]

    def refusal(self, position: int) -> Refusal | None:
        """Returns the refusal of `rows[position]`, or None if that row fits."""
        cause = self.cause[position]
        return None if cause == FITS else self.refusals[cause]

    @property
    def error(self) -> Refusal | None:
        """The first error that refuses a row; None if there is no error. An error fails the whole attempt."""
        errors = ((cause, each) for cause, each in enumerate(self.refusals) if each.code is Code.ERROR)
        return next((each for cause, each in errors if np.any(self.cause == cause)), None)

    def with_code(self, code: Code) -> Rows:
        """Returns the rows whose refusal has this code."""
        chosen = [cause for cause, refusal in enumerate(self.refusals) if refusal.code is code]
        return self.rows[np.isin(self.cause, chosen)]

    def by_plugin(self) -> dict[str, int]:
        """Returns the number of rows that each plugin refused."""
        counts: dict[str, int] = {}
        for cause, rows in enumerate(np.bincount(self.cause[self.cause != FITS], minlength=len(self.refusals))):
            plugin = self.refusals[cause].plugin
            counts[plugin] = counts.get(plugin, 0) + int(rows)
        return counts

    def add_earlier(self, nominated: Fit) -> None:
        """Adds the result of an earlier check of the nominated node alone (upstream evaluateNominatedNode).

        If PreFilter restricts the pod to certain nodes, the nominated node may be refused because of the restriction.
        The refusal of the earlier check then replaces that refusal. As in kube-scheduler, the plugin of the earlier
        refusal is added to `narrowed_by`. Nothing changes if the earlier check ended in an error.
        """
        if not self.narrowed_by or self.refused_at_once or nominated.error is not None:
            return
        refusal, before = nominated.refusals[nominated.cause[0]], _outside(self.narrowed_by)
        outside = [cause for cause, each in enumerate(self.refusals) if each == before]
        self.refuse(np.flatnonzero(np.isin(self.rows, nominated.rows) & np.isin(self.cause, outside)), refusal)
        self.narrowed_by = sorted({*self.narrowed_by, refusal.plugin})
        for cause in outside:
            self.refusals[cause] = _outside(self.narrowed_by)

    def accept(self, rows: Rows) -> None:
        """Makes these rows feasible, and drops their refusals."""
        self.cause[np.isin(self.rows, rows)] = FITS

    def refuse(self, positions: Rows, refusal: Refusal) -> None:
        self.cause[positions] = len(self.refusals)
        self.refusals.append(refusal)

    def refuse_too(self, positions: Rows, refusal: Refusal) -> None:
        """Refuses rows. If another check has already refused a row, the reasons are merged."""
        for cause in np.unique(self.cause[positions]):
            same_cause = positions[self.cause[positions] == cause]
            self.refuse(same_cause, refusal if cause == FITS else merged(self.refusals[cause], refusal))

    def refuse_all(self, positions: Rows | None, verdict: Verdict) -> Rows | None:
        """Records the refusals of a verdict; returns the positions of the rows that are still feasible.

        Args:
            positions: intp[n]: the positions of the checked rows, one for each entry of a mask. None, here and as the
                result, means all rows.
        """
        feasible: BoolColumn | None = None
        for mask, refusal in verdict:
            if np.count_nonzero(mask):  # np.count_nonzero is faster than any(), which calls back into Python
                positions = np.arange(len(self.rows)) if positions is None else positions
                self.refuse(positions[mask], refusal)
                feasible = ~mask if feasible is None else feasible & ~mask
        return positions if positions is None or feasible is None else positions[feasible]


@dataclass(slots=True)
class Prepared:
    """The predicates of a profile, prepared for one pod.

    Attributes:
        checks: (plugin, check) of the predicates that apply to the pod.
        refusal: a refusal that applies to the pod on every node, or None.
        only: the names of the only possible nodes (upstream PreFilterResult); None means that all are possible.
        only_by: the plugins that named the nodes in `only`, sorted.
        check_all: True if each check sees every row, even rows that another check has refused.
    """

    checks: list[tuple[str, Check]] = field(default_factory=list)
    refusal: Refusal | None = None
    only: frozenset[str] | None = None
    only_by: list[str] = field(default_factory=list)
    check_all: bool = False

    def narrow(self, plugin: str, only: frozenset[str]) -> bool:
        """Removes the nodes that are not in `only` from the possible nodes; returns False if no node is left."""
        self.only = only if self.only is None else self.only & only
        self.only_by = sorted({*self.only_by, plugin})
        if not self.only:
            self.refusal = unresolvable("", _unsatisfied(self.only_by))
        return bool(self.only)


def prepare(profile: Profile, pod: PodInfo, table: Table, *, narrowed: bool = True) -> Prepared:
    """Prepares every predicate for the pod (upstream RunPreFilterPlugins).

    Stops at a refusal of the pod that no eviction can change. Continues after a refusal that evictions may change,
    because another predicate may refuse the pod regardless of evictions. Raises DeadlineExceeded.

    Args:
        narrowed: False to treat all nodes as possible, even if predicates name the only possible nodes.
    """
    prepared = Prepared(check_all=profile.check_all_predicates)
    for predicate in profile.predicates:
        table.deadline.check(predicate.name)
        prepared_rule = predicate.prepare(pod, table)
        if prepared_rule is None:
            continue
        if isinstance(prepared_rule, Refusal):
            prepared.refusal = prepared_rule
            if not prepared_rule.may_be_preempted:
                break
        else:
            prepared.checks.append((predicate.name, prepared_rule))
            if prepared_rule.only is not None and not prepared.narrow(predicate.name, prepared_rule.only):
                break
    if profile.filter_order:
        prepared.checks.sort(key=lambda check: profile.filter_order.index(check[0]))
    if not narrowed:
        prepared.only = None
    return prepared


def run(prepared: Prepared, table: Table, rows: Rows) -> Fit:
    """Runs the checks over `rows`; a row is refused by the first check that it fails.

    Raises DeadlineExceeded.
    """
    fit = Fit(rows)
    fit.narrowed_by = prepared.only_by
    feasible: Rows | None = None
    if prepared.refusal is not None:
        fit.refused_at_once = True
        fit.refuse(np.arange(len(rows)), prepared.refusal)
        return fit
    if prepared.only is not None:
        feasible = fit.refuse_all(feasible, outside(prepared.only, prepared.only_by, table, rows))
    if prepared.check_all:
        _run_all(prepared, table, fit, np.arange(len(rows)) if feasible is None else feasible)
        return fit
    for name, check in prepared.checks:
        remaining = rows if feasible is None else rows[feasible]
        if not len(remaining):
            break
        table.deadline.check(name)
        feasible = fit.refuse_all(feasible, check.refuse(remaining))
    return fit


def outside(only: frozenset[str], plugins: Sequence[str], table: Table, rows: Rows) -> Verdict:
    """Refuses the rows of all nodes except the nodes in `only`, to which the plugins restrict the pod."""
    chosen = [table.nodes.row_of[name] for name in only if name in table.nodes.row_of]
    return [(~np.isin(rows, np.array(chosen, np.intp)), _outside(plugins))]


def _run_all(prepared: Prepared, table: Table, fit: Fit, positions: Rows) -> None:
    rows = fit.rows[positions]
    for name, check in prepared.checks:
        table.deadline.check(name)
        for mask, refusal in check.refuse(rows):
            fit.refuse_too(positions[mask], refusal)


def find_fit(profile: Profile, pod: PodInfo, table: Table, rows: Rows, *, narrowed: bool = True) -> Fit:
    """Runs the predicates over `rows` for one pod (upstream RunFilterPluginsWithNominatedPods).

    Nominated pods of the same or a higher priority may or may not arrive on their nodes. So the pod must fit on such a
    node both with and without the nominated pods. If the pod fits in neither case, the refusal with the nominated pods
    is reported. Predicates that did not apply without the nominated pods are not prepared again (upstream Skip). Raises
    DeadlineExceeded.

    Args:
        narrowed: False to check all `rows`, even if predicates restrict the pod to nodes with certain names.
    """
    prepared = prepare(profile, pod, table, narrowed=narrowed)
    fit = run(prepared, table, rows)
    if prepared.refusal is None and (awaited := _awaited_among(rows, profile, pod, table)):
        checks = [check for _, check in prepared.checks if check.sees_pods]
        if all(check.sees_resources_only for check in checks):
            _refuse(fit, run(_with_requested(prepared, awaited, table), table, np.unique(awaited.rows)))
            return fit
        by_row = awaited.by_row()
        # Checks that depend only on a node's own pods can run once for all nodes, with every nominated pod placed.
        one_by_one = not all(check.sees_own_pods_only for check in checks)
        for group in [[row] for row in by_row] if one_by_one else [list(by_row)]:
            placed = [(info, table.nodes.names[row]) for row in group for info in by_row[row]]
            with table.hypothetically(placed=placed):
                applicable = prepare(_without_skipped(profile, prepared), pod, table, narrowed=narrowed)
                _refuse(fit, run(applicable, table, np.array(group, np.intp)))
    return fit


def _refuse(fit: Fit, with_nominated: Fit) -> None:
    """Refuses, in `fit`, every row that is refused in `with_nominated`, with the same refusal."""
    position_of = np.zeros(fit.rows.max() + 1, np.intp)
    position_of[fit.rows] = np.arange(len(fit.rows))
    positions = position_of[with_nominated.rows]
    for cause, refusal in enumerate(with_nominated.refusals):
        fit.refuse(positions[with_nominated.cause == cause], refusal)


def _awaited_among(rows: Rows, profile: Profile, pod: PodInfo, table: Table) -> AwaitedPods:
    awaited = awaited_pods(profile, pod, table)
    return awaited.only(np.isin(awaited.rows, rows)) if awaited else awaited


def awaited_pods(profile: Profile, pod: PodInfo, table: Table) -> AwaitedPods:
    """Returns the pods that are nominated to nodes of the table and whose resources `pod` must leave free."""
    return table.nominated.awaited_by(pod, lambda scheduler_name: profile.shares_scheduler(pod, scheduler_name))


def _with_requested(prepared: Prepared, awaited: AwaitedPods, table: Table) -> Prepared:
    """Returns a copy whose checks count the `awaited` pods as running on their nominated nodes."""
    requested = table.nodes.requested.copy()
    may_be_capped = table.pods.huge_rows or table.nominated.has_huge_requests
    awaited.add_to(requested, is_capped=bool(may_be_capped) and table.features.behaviours.request_sums_are_capped)
    checks = [
        (name, _RequestedCheck(check, requested) if check.sees_pods else check) for name, check in prepared.checks
    ]
    return replace(prepared, checks=checks)


@dataclass(slots=True, eq=False)
class _RequestedCheck(Check):
    """Wraps a check so that it uses the given requests, int64[resource, row], instead of the table's."""

    _check: Check
    _requested: IntColumn

    def refuse(self, rows: Rows) -> Verdict:
        return self._check.refuse_requested(rows, self._requested)


def _without_skipped(profile: Profile, prepared: Prepared) -> Profile:
    """Returns the profile with only the predicates that have a check in `prepared`."""
    applicable = {plugin for plugin, _ in prepared.checks}
    return replace(profile, predicates=[predicate for predicate in profile.predicates if predicate.name in applicable])


def _outside(plugins: Sequence[str]) -> Refusal:
    """Returns the refusal of a node that is not among the nodes to which the plugins restrict the pod."""
    return unresolvable("", f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}]")


def _unsatisfied(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"


class PluginScores(NamedTuple):
    """One priority's scores of the feasible rows, int64[n]. `scores` are normalised, but not weighted."""

    plugin: str
    weight: int
    raw: Scores
    scores: Scores


class Scoring(NamedTuple):
    """The scores of the feasible rows. `total` is the sum of all plugins' weighted scores: int64[n]."""

    rows: Rows
    total: Scores
    by_plugin: Sequence[PluginScores]


def score(profile: Profile, pod: PodInfo, table: Table, rows: Rows) -> Scoring:
    """Scores the feasible `rows` by every priority of the profile, and adds up the weighted scores.

    Raises DeadlineExceeded.
    """
    total = np.zeros(len(rows), np.int64)
    by_plugin: list[PluginScores] = []
    for weighted in profile.priorities:
        table.deadline.check(weighted.priority.name)
        scorer = weighted.priority.prepare(pod, table, rows)
        if scorer is None:
            continue
        raw = scorer.map(rows)
        scores = scorer.reduce(raw)
        total += scores if weighted.weight == 1 else scores * weighted.weight
        by_plugin.append(PluginScores(weighted.priority.name, weighted.weight, raw, scores))
    return Scoring(rows, total, by_plugin)
