"""The nodes' ranking for pods of one template, kept from one replica to the next: the same decisions, at less cost.

What a bind changes is one row and the domains it touches. So the rules that look at a node by itself (`rules.PerNode`)
are asked again only about rows that have changed since the last replica; the others, about topology domains, volumes,
devices, and those of users, are asked anew for each pod, about the nodes that are left. The best nodes are the same as
those of `find_fit` and `score`. Where that cannot be told here, there is no answer, and those two are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from extender.errors import RuleFailed
from extender.framework.profile import Profile
from extender.framework.rules import Check, PerNode, PerTemplate, Predicate, Scorer, Scores, Verdict
from extender.framework.status import Code, Refusal
from extender.table import PodInfo, Table
from extender.table.journal import BEGINNING, FREE_VOLUMES, MOST_FOLLOWED, RESOURCES
from extender.table.labels import BoolColumn, Rows
from extender.table.podinfo import Group
from extender.table.pods.templates import of_one_template

_OUT = np.iinfo(np.int64).min
# Whatever else changes may change what a rule says of any node.
_OF_NO_ACCOUNT = frozenset(
    (
        RESOURCES,
        FREE_VOLUMES,
        "CSINode",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
        "StorageClass",
    )
)
_MOST_KEPT = 128
_MOST_KNOWN = 2048  # nodes that fill up together pass by the same amounts at about the same time


class Best(NamedTuple):
    """The rows with the highest score, ascending; `only`: no other row can take the pod."""

    rows: Rows
    only: bool


class Ranking:
    """The verdicts and scores of the rules per node, for every row.

    `_fits`: bool[row]; `_own`: int64[row]: the weighted scores that need not be normalised; `_raw`: int64[row] for each
    score that is, and is not equal everywhere; `_total`: int64[row]: their sum, _OUT where the pod does not fit.
    """

    def __init__(
        self, profile: Profile, table: Table, checks: Sequence[Check], scorers: Sequence[tuple[Scorer, int]]
    ) -> None:
        self._table, self._profile = table, profile
        plain = [each for each in scorers if type(each[0]).reduce is Scorer.reduce]
        self._moving_checks = [check for check in checks if check.sees_pods]
        self._moving_scorers = [each for each in plain if each[0].sees_pods]
        self._fixed_checks = [check for check in checks if not check.sees_pods]
        self._fixed_scorers = [each for each in plain if not each[0].sees_pods]
        self._normalised = [each for each in scorers if each not in plain]
        self._by_resources = all(each.sees_resources_only for each in self._moving_checks) and all(
            scorer.sees_resources_only for scorer, _ in self._moving_scorers
        )
        self._known: dict[int, tuple[bool, int]] = {}  # by the id of distinct resources
        self._known_at = BEGINNING
        self._begin()
        self._ask_all_others()

    def _begin(self) -> None:
        """Asks every rule about every row."""
        table, rows = self._table, self._table.nodes.rows
        capacity = self._capacity = table.nodes.capacity
        self._cursor = table.journal.now
        self._fits, self._own = np.zeros(capacity, np.bool_), np.zeros(capacity, np.int64)
        self._fits[rows] = _fits(self._fixed_checks, rows)
        self._own[rows] = _sum(self._fixed_scorers, rows)
        self._open, self._fixed = self._fits.copy(), self._own.copy()
        self._rows = np.flatnonzero(self._open)
        self._raw = []
        for scorer, weight in self._normalised:
            raw = np.zeros(capacity, np.int64)
            raw[rows] = scorer.map(rows)
            if len(self._rows) and np.ptp(raw[self._rows]):  # else it makes no difference
                self._raw.append((scorer, weight, raw))
        self._refresh(self._rows)
        self._sum_up()

    def _ask_all_others(self) -> None:
        self._term_changes = self._table.terms.changes
        self._predicates = [each for each in self._profile.predicates if not isinstance(each, PerNode)]
        self._priorities = [each for each in self._profile.priorities if not isinstance(each.priority, PerNode)]

    def _refresh(self, rows: Rows) -> None:
        self._fits[rows] = _fits(self._moving_checks, rows)
        self._own[rows] = self._fixed[rows] + _sum(self._moving_scorers, rows)

    def _sum_up(self) -> None:
        self._feasible = np.flatnonzero(self._fits)
        self._even = np.zeros(self._capacity, np.int64)
        if self._raw and len(self._feasible):
            self._even[self._feasible] = self._normalise(self._feasible)
        self._total = np.where(self._fits, self._own + self._even, _OUT)

    def follow(self) -> bool:
        """Takes in what has changed; False: too much."""
        journal = self._table.journal
        if self._capacity != self._table.nodes.capacity:
            return False
        topics = journal.changed_topics(self._cursor)
        if not _OF_NO_ACCOUNT.issuperset(topics):
            return False
        if self._term_changes != self._table.terms.changes or topics not in ([], [RESOURCES]):
            self._ask_all_others()
        changed = journal.since(self._cursor, RESOURCES)
        self._cursor = journal.now
        if changed is None or len(changed) > MOST_FOLLOWED:
            self._refresh(self._rows)
            self._sum_up()
        elif rows := [row for row in changed if self._open[row]]:
            self._look_again(rows)
        return True

    def _look_again(self, rows: Sequence[int]) -> None:
        moved = False
        for row, (fits, score) in zip(rows, self._asked_about(rows), strict=True):
            moved |= fits != self._fits[row]
            self._fits[row], self._own[row] = fits, self._fixed[row] + score
            self._total[row] = self._own[row] + self._even[row] if fits else _OUT
        if moved:  # what is normalised may differ on all rows
            self._sum_up()

    def _asked_about(self, rows: Sequence[int]) -> list[tuple[bool, int]]:
        """Returns whether each row fits, and its score, by the rules that look at pods.

        Nodes of one kind fill up in the same steps, so it is known as a rule; they are asked about the others at once.
        """
        if not self._by_resources:
            return self._judged(rows)
        distinct = self._table.distinct_resources
        distinct.follow()
        changed = distinct.changes.since(self._known_at, RESOURCES)
        self._known_at = distinct.changes.now
        if changed is None or len(self._known) > _MOST_KNOWN:
            self._known.clear()
        else:
            for number in changed:
                self._known.pop(number, None)
        numbers = distinct.id_of[np.array(rows, np.intp)].tolist()
        new = {number: row for number, row in zip(numbers, rows, strict=True) if number not in self._known}
        if new:
            self._known.update(zip(new, self._judged(list(new.values())), strict=True))
        return [self._known[number] for number in numbers]

    def _judged(self, rows: Sequence[int]) -> list[tuple[bool, int]]:
        at = np.array(rows, np.intp)
        fits, scores = _fits(self._moving_checks, at), _sum(self._moving_scorers, at)
        return list(zip(fits.tolist(), scores.tolist(), strict=True))

    def best(self, pod: PodInfo) -> Best | None:
        """Returns the best of the rows that the other rules leave; None: there are none, or a rule could not tell."""
        everywhere = self._feasible
        rows = self._left(pod, everywhere)
        if rows is None:
            return None
        if len(rows) < 2:
            return Best(rows, only=True) if len(rows) else None
        others = self._score_anew(pod, rows)
        if others is None and rows is everywhere:
            return Best(np.flatnonzero(self._total == self._total.max()), only=False)
        total = self._total[rows] if rows is everywhere or not self._raw else self._own[rows] + self._normalise(rows)
        total = total if others is None else total + others
        return Best(rows[total == total.max()], only=False)

    def _left(self, pod: PodInfo, rows: Rows) -> Rows | None:
        checks = prepared(self._predicates, pod, self._table)
        if checks is None:
            return None
        if len(checks) < len(self._predicates):
            speaking = [predicate for predicate, _ in checks]
            self._predicates = [
                each
                for each in self._predicates
                if not isinstance(each, PerTemplate) or any(each is other for other in speaking)
            ]
        for _, check in checks:
            for mask, refusal in (verdict := check.refuse(rows)):
                if refusal.code is Code.ERROR and mask.any():
                    return None
            rows = _left(rows, verdict)
        return rows

    def _normalise(self, rows: Rows) -> Scores:
        total = np.zeros(len(rows), np.int64)
        for scorer, weight, raw in self._raw:
            total += weight * scorer.reduce(raw[rows])
        return total

    def _score_anew(self, pod: PodInfo, rows: Rows) -> Scores | None:
        total: Scores | None = None
        for each in list(self._priorities):
            if (scorer := each.priority.prepare(pod, self._table, rows)) is not None:
                scores = each.weight * scorer.reduce(scorer.map(rows))
                total = scores if total is None else total + scores
            elif isinstance(each.priority, PerTemplate):
                self._priorities.remove(each)
        return total


def prepared(predicates: Sequence[Predicate], pod: PodInfo, table: Table) -> list[tuple[Predicate, Check]] | None:
    """Returns the predicates that have something to say; None: one of them decides about all nodes at once."""
    checks = []
    for predicate in predicates:
        made = predicate.prepare(pod, table)
        if isinstance(made, Refusal) or (made is not None and made.only is not None):
            return None
        if made is not None:
            checks.append((predicate, made))
    return checks


def _left(rows: Rows, verdict: Verdict) -> Rows:
    refused = [mask for mask, _ in verdict if np.count_nonzero(mask)]
    return rows[~np.logical_or.reduce(refused)] if refused else rows


def _fits(checks: Sequence[Check], rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: no check refuses the row."""
    fits = np.ones(len(rows), np.bool_)
    for check in checks:
        for mask, _ in check.refuse(rows):
            fits &= ~mask
    return fits


def _sum(scorers: Sequence[tuple[Scorer, int]], rows: Rows) -> Scores:
    total = np.zeros(len(rows), np.int64)
    for scorer, weight in scorers:
        total += weight * scorer.map(rows)
    return total


class Rankings:
    """The rankings of one profile's templates on one table at a time."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._table: Table | None = None
        self._kept: dict[Group, tuple[PodInfo, Ranking | None]] = {}

    def best(self, pod: PodInfo, table: Table) -> Best | None:
        """Returns the best nodes for the pod; None: it must be decided without a ranking.

        Pods with volumes, claims or a nominated pod in their way have none, nor has the first pod of a template.

        Raises:
            RuleFailed: a rule of the user's raised.
        """
        if table.nominated or pod.volumes or pod.pod.spec.resource_claims:
            return None
        if table is not self._table:
            self._table, self._kept = table, {}
        ranking = self._ranking(pod, table)
        return None if ranking is None else ranking.best(pod)

    def _ranking(self, pod: PodInfo, table: Table) -> Ranking | None:
        first, ranking = self._kept.pop(pod.group, (None, None))
        if first is None or not of_one_template(first.pod, pod.pod):
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]  # unasked for the longest
            self._kept[pod.group] = pod, None  # perhaps no other pod is like it
            return None
        if ranking is None or not ranking.follow():
            ranking = _ranking_of(self._profile, first, table)
        self._kept[pod.group] = first, ranking
        return ranking


def _ranking_of(profile: Profile, pod: PodInfo, table: Table) -> Ranking | None:
    """Returns a new ranking; None where a rule turns the pod down everywhere, or names its nodes, or cannot tell."""
    checks = prepared([each for each in profile.predicates if isinstance(each, PerNode)], pod, table)
    scorers = []
    try:
        for each in profile.priorities:
            scorer = each.priority.prepare(pod, table, table.nodes.rows) if isinstance(each.priority, PerNode) else None
            if scorer is not None:
                scorers.append((scorer, each.weight))
    except RuleFailed:
        return None
    return None if checks is None else Ranking(profile, table, [check for _, check in checks], scorers)
