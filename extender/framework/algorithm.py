"""Fit, map, reduce, select: one decision. Source: upstream schedule_one.go (findNodesThatFitPod, prioritizeNodes)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.framework.candidate_limits import DEFAULT_LIMITS, CandidateLimits
from extender.framework.rules import Check, Predicate, Priority, Scores, Verdict
from extender.framework.status import Code, Refusal, merged, unresolvable
from extender.framework.trace import NO_TRACE, Trace
from extender.table import PodInfo, Table
from extender.table.labels import BoolColumn, Rows
from extender.table.podinfo import lazy_attribute

FITS = -1


@dataclass(frozen=True, slots=True)
class WeightedPriority:
    """A priority and how much it counts."""

    priority: Priority
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules that a decision is made by, in their order.

    Attributes:
        filter_order: the predicates' names in the order in which they see nodes, where that is not the order in which
            they look at the pod (upstream has one order for preFilter and one for filter).
        percentage_of_nodes_to_score: how many feasible nodes the scheduler's own search looks for; 0: it decides.
        preemption: how far preemption looks; None: there is none.
        check_all_predicates: a node that one predicate has refused is shown to the others too, for all the reasons
            (alwaysCheckAllPredicates of a Policy).
    """

    name: str
    predicates: Sequence[Predicate]
    priorities: Sequence[WeightedPriority]
    filter_order: Sequence[str] = ()
    percentage_of_nodes_to_score: int = 0
    preemption: CandidateLimits | None = DEFAULT_LIMITS
    check_all_predicates: bool = False


class Fit:
    """What became of each of the rows that were asked about.

    Attributes:
        rows: intp[n]: the rows asked about.
        cause: intp[n]: index into `refusals`, or FITS.
        refusals: the distinct refusals, in the order in which they were met.
        narrowed_by: the plugins that named the nodes that can do at all; they refused all others.
        refused_at_once: the pod was turned down on every node before any was looked at (upstream PreFilter).
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
        """The rows that can take the pod."""
        feasible: Rows = self.rows[self.cause == FITS]
        return feasible

    def refused(self) -> Iterator[tuple[int, Refusal]]:
        """(row, refusal) of every row that cannot."""
        for position in np.flatnonzero(self.cause != FITS):
            yield int(self.rows[position]), self.refusals[self.cause[position]]

    def refusal(self, position: int) -> Refusal | None:
        """The refusal of the row at `position` of `rows`, if it was refused."""
        cause = self.cause[position]
        return None if cause == FITS else self.refusals[cause]

    def with_code(self, code: Code) -> Rows:
        """The rows refused with exactly this code."""
        chosen = [cause for cause, refusal in enumerate(self.refusals) if refusal.code is code]
        return self.rows[np.isin(self.cause, chosen)]

    def by_plugin(self) -> dict[str, int]:
        """How many rows each plugin refused."""
        counts: dict[str, int] = {}
        for cause, rows in enumerate(np.bincount(self.cause[self.cause != FITS], minlength=len(self.refusals))):
            plugin = self.refusals[cause].plugin
            counts[plugin] = counts.get(plugin, 0) + int(rows)
        return counts

    def refuse(self, positions: Rows, refusal: Refusal) -> None:
        """Notes that the rows at `positions` were refused."""
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
        check_all: whether every check sees every row.
    """

    checks: list[tuple[str, Check]] = field(default_factory=list)
    refusal: Refusal | None = None
    only: frozenset[str] | None = None
    only_by: list[str] = field(default_factory=list)
    check_all: bool = False

    def narrow(self, plugin: str, only: frozenset[str]) -> bool:
        """Leaves only the nodes named; whether any is left."""
        self.only = only if self.only is None else self.only & only
        self.only_by = sorted({*self.only_by, plugin})
        if not self.only:
            self.refusal = unresolvable("", _unsatisfied(self.only_by))
        return bool(self.only)


def prepare(profile: Profile, pod: PodInfo, table: Table) -> Prepared:
    """Lets every predicate look at the pod (upstream RunPreFilterPlugins).

    A refusal of every node that no eviction can change ends it at once; one that eviction may change is kept while the
    others are asked, for one of them may know better.
    """
    prepared = Prepared(check_all=profile.check_all_predicates)
    for predicate in profile.predicates:
        made = predicate.prepare(pod, table)
        if isinstance(made, Refusal):
            prepared.refusal = made
            if not made.may_be_preempted:
                break
        elif made is not None:
            prepared.checks.append((predicate.name, made))
            if made.only is not None and not prepared.narrow(predicate.name, made.only):
                break
    if profile.filter_order:
        prepared.checks.sort(key=lambda check: profile.filter_order.index(check[0]))
    return prepared


def run(prepared: Prepared, table: Table, rows: Rows, trace: Trace = NO_TRACE) -> Fit:
    """Which of `rows` can take the pod; each row's refusal is that of the first predicate that turned it down."""
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
        _run_all(prepared, fit, np.arange(len(rows)) if standing is None else standing, trace)
        return fit
    for name, check in prepared.checks:
        asked = rows if standing is None else rows[standing]
        if not len(asked):
            break
        verdict = check.refuse(asked)
        trace.checked(name, asked, verdict)
        standing = fit.refuse_all(standing, verdict)
    return fit


def _run_all(prepared: Prepared, fit: Fit, positions: Rows, trace: Trace) -> None:
    asked = fit.rows[positions]
    for name, check in prepared.checks:
        verdict = check.refuse(asked)
        trace.checked(name, asked, verdict)
        for mask, refusal in verdict:
            fit.refuse_too(positions[mask], refusal)


def find_fit(profile: Profile, pod: PodInfo, table: Table, rows: Rows, trace: Trace = NO_TRACE) -> Fit:
    """Which of `rows` can take the pod, pods nominated to a node counted as if they stood there.

    A node with nominated pods of the same or higher priority must do both with and without them, for nobody knows
    whether they will come (upstream RunFilterPluginsWithNominatedPods); what it lacks with them is told first.
    Predicates that had nothing to say without them are not asked again (upstream Skip).
    """
    prepared = prepare(profile, pod, table)
    fit = run(prepared, table, rows, trace)
    if prepared.refusal is None:
        for name, awaited in awaited_pods(pod, table):
            at = np.flatnonzero(rows == table.nodes.row_of.get(name, -1))
            with table.supposing(placed=[(info, name) for info in awaited]):
                then = run(prepare(_still_asked(profile, prepared), pod, table), table, rows[at])
            for refusal in then.refusals:
                fit.refuse(at, refusal)
    return fit


def _still_asked(profile: Profile, prepared: Prepared) -> Profile:
    heard = {plugin for plugin, _ in prepared.checks}
    return replace(profile, predicates=[each for each in profile.predicates if each.name in heard])


def awaited_pods(pod: PodInfo, table: Table) -> list[tuple[str, list[PodInfo]]]:
    """(node, nominated pods that `pod` must leave room for)."""
    return [
        (name, awaited)
        for name, infos in table.nominated.items()
        if (awaited := [info for info in infos.values() if info.priority >= pod.priority and info.uid != pod.uid])
    ]


class PluginScores(NamedTuple):
    """What one priority made of the feasible rows: int64[n] each; `scores` are normalised, not weighted."""

    plugin: str
    weight: int
    raw: Scores
    scores: Scores


class Scoring(NamedTuple):
    """The scores of the feasible rows. `total` int64[n] is the weighted sum over plugins."""

    rows: Rows
    total: Scores
    by_plugin: Sequence[PluginScores]


def score(profile: Profile, pod: PodInfo, table: Table, rows: Rows, trace: Trace = NO_TRACE) -> Scoring:
    """Every priority's map and reduce over the feasible `rows`, weighted and added up (upstream prioritizeNodes)."""
    total = np.zeros(len(rows), np.int64)
    by_plugin: list[PluginScores] = []
    for weighted in profile.priorities:
        scorer = weighted.priority.prepare(pod, table, rows)
        if scorer is None:
            continue
        raw = scorer.map(rows)
        scores = scorer.reduce(raw)
        total += scores if weighted.weight == 1 else scores * weighted.weight
        by_plugin.append(PluginScores(weighted.priority.name, weighted.weight, raw, scores))
        trace.scored(weighted.priority.name, weighted.weight, rows, raw, scores)
    return Scoring(rows, total, by_plugin)


def _unsatisfied(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"
