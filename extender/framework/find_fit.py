"""Filtering: a profile's predicates are prepared for a pod and run over rows of the table.

Source: upstream schedule_one.go, findNodesThatFitPod.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from extender.framework.fit import Fit
from extender.framework.profile import Profile
from extender.framework.rules import Check
from extender.framework.status import Refusal, unresolvable
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table import PodInfo, Table
from extender.table.labels import Rows


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


def find_fit(profile: Profile, pod: PodInfo, table: Table, rows: Rows, deadline: Deadline = NO_DEADLINE) -> Fit:
    """Finds which of `rows` can take the pod; pods nominated to a node count as if they stood there.

    A node with nominated pods of the same or higher priority must do both with and without them, for they may
    never come (upstream RunFilterPluginsWithNominatedPods); what it lacks with them is told first.
    Predicates that had nothing to say without them are not asked again (upstream Skip). Raises DeadlineExceeded.
    """
    with table.until(deadline):
        return _find_fit(profile, pod, table, rows)


def _find_fit(profile: Profile, pod: PodInfo, table: Table, rows: Rows) -> Fit:
    prepared = prepare(profile, pod, table)
    fit = run(prepared, table, rows)
    if prepared.refusal is None:
        awaited = _awaited_among(rows, profile, pod, table)
        # What sees its own node only is asked once, with all of them in their places.
        apart = any(check.sees_pods and not check.sees_own_pods_only for _, check in prepared.checks)
        for group in [[each] for each in awaited] if apart else [awaited] if awaited else []:
            at = np.array([position for position, _, _ in group], np.intp)
            with table.hypothetically(placed=[(info, name) for _, name, infos in group for info in infos]):
                then = run(prepare(_still_asked(profile, prepared), pod, table), table, rows[at])
            for cause, refusal in enumerate(then.refusals):
                fit.refuse(at[then.cause == cause], refusal)
    return fit


def _awaited_among(rows: Rows, profile: Profile, pod: PodInfo, table: Table) -> list[tuple[int, str, list[PodInfo]]]:
    """Returns (position in `rows`, node, nominated pods that `pod` must leave room for)."""
    if not table.nominated:
        return []
    positions = np.full(table.nodes.capacity, -1)
    positions[rows] = np.arange(len(rows))
    return [
        (position, name, infos)
        for name, infos in awaited_pods(profile, pod, table)
        if name in table.nodes.row_of and (position := int(positions[table.nodes.row_of[name]])) >= 0
    ]


def _still_asked(profile: Profile, prepared: Prepared) -> Profile:
    heard = {plugin for plugin, _ in prepared.checks}
    return replace(profile, predicates=[each for each in profile.predicates if each.name in heard])


def awaited_pods(profile: Profile, pod: PodInfo, table: Table) -> list[tuple[str, list[PodInfo]]]:
    """Returns (node, nominated pods that `pod` must leave room for)."""
    return [
        (name, awaited)
        for name, infos in table.nominated.items()
        if (awaited := [each for each in infos.values() if each.priority >= pod.priority and profile.awaits(pod, each)])
    ]


def _unsatisfied(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"
