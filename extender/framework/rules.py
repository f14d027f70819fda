"""Defines the interfaces of rules, mainly `Predicate` and `Priority`.

A predicate (upstream Filter plugin) looks at a pod once in `prepare` (upstream PreFilter) and returns a `Check`, which
refuses rows of the table. A priority (upstream Score plugin) returns a `Scorer`: `map` gives each row a raw score, and
`reduce` normalises them. All data about one pod is in its Check or Scorer. The rule has only its arguments, so any
number of threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extender.framework.status import Refusal
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows

MAX_SCORE = 100
Scores = NDArray[np.int64]

# Pairs (mask, refusal). A mask, bool[n], is True for the checked rows with this refusal; masks do not overlap.
Verdict = Sequence[tuple[BoolColumn, Refusal]]
NO_REFUSAL: Verdict = ()


class PerNode:
    """Marks a rule that judges a node only by the pod's template, the node itself, and the pods on the node.

    `framework.rankings` keeps the verdict and score of a row until the row changes. For a pod with volumes or claims,
    the rule may use other data too, because such a pod has no ranking. Scores that depend on placed pods must not be
    normalised.
    """

    __slots__ = ()


class PerTemplate:
    """Marks a rule that looks at several nodes at once, and applies to all pods of a template or to none of them.

    If the rule does not apply to a pod, `framework.rankings` calls `prepare` for the template's next pods only after
    certain changes. So only three things may decide if the rule applies: what all pods of the template share (such as
    their controller), objects other than pods and nodes, and the (anti-)affinity terms of placed pods.
    """

    __slots__ = ()


class Check:
    """A predicate, prepared for one pod.

    Attributes:
        only: the names of the only possible nodes (upstream PreFilterResult); None means that all are possible.
        sees_pods: True if the verdict depends on placed pods, so preemption must check again with the victims removed.
        sees_own_pods_only: True if pods on other nodes never matter, and removing pods never makes the verdict worse.
        sees_resources_only: True if the verdict is equal for all nodes with equal resources.
    """

    only: frozenset[str] | None = None
    sees_pods: bool = False
    sees_own_pods_only: bool = False
    sees_resources_only: bool = False

    def refuse(self, rows: Rows) -> Verdict:
        """Returns which of `rows` cannot take the pod, and why."""
        raise NotImplementedError

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        """Like `refuse`, but takes each node's total requests from `requested`: int64[resource, row].

        This is called only if `sees_resources_only` is True.
        """
        raise NotImplementedError

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict | None:
        """Returns the verdict for `rows` after preemption has removed the pods in `gone`.

        Each node is judged as if pods were removed from this node only. Callers read only which rows are refused, so
        all refused rows may share one refusal. If `sees_own_pods_only` is True, the pods in `gone.nominated` count as
        running on their nominated nodes. Returns None if the check cannot judge several nodes in one call; the caller
        then prepares the predicate again for each node.
        """
        return None if self.sees_pods else self.refuse(rows)

    def refuse_beside(self, slots: Rows, gone: HypotheticalRemovals) -> BoolColumn | None:
        """Returns bool[len(slots)]: True for pods in `gone` beside which the node would refuse the incoming pod.

        Each pod is judged as if it alone came back. Returns None if the check does not know without a call of
        `filter_with_pods_removed`.
        """
        return None


class PodsCheck(Check):
    """A check that judges nodes by one function, with all of their pods or without some."""

    sees_pods = True

    def refuse(self, rows: Rows) -> Verdict:
        return self.verdict(rows, None)

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        return self.verdict(rows, gone)

    def verdict(self, rows: Rows, gone: HypotheticalRemovals | None) -> Verdict:
        """Returns the verdict after preemption has removed the pods in `gone`; None means no pods."""
        raise NotImplementedError


class RowCheck(Check):
    """A check that consists of a function for `refuse`."""

    def __init__(
        self, refuse: Callable[[Rows], Verdict], only: frozenset[str] | None = None, *, sees_pods: bool = False
    ) -> None:
        self._refuse = refuse
        self.only = only
        self.sees_pods = sees_pods

    def refuse(self, rows: Rows) -> Verdict:
        return self._refuse(rows)


class Predicate(Protocol):
    """A rule that a node must satisfy."""

    @property
    def name(self) -> str: ...

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        """Returns the check for this pod, a Refusal of every node, or None if the rule does not apply to the pod."""


class PreEnqueue(Protocol):
    """A rule that must admit a pod before the pod is tried; called while the queue's lock is held.

    Source: upstream PreEnqueuePlugin.
    """

    def refuse(self, pod: PodInfo, /) -> Refusal | None:
        """Returns a refusal if the pod must not be tried yet; None if it may be tried."""


class PreEnqueueRule(PreEnqueue, Protocol):
    def refuse(self, pod: PodInfo, table: Table | None = None, /) -> Refusal | None:
        """Returns a refusal if the pod must not be tried yet, else None. Only offline commands give the `table`."""


class QueueSort(Protocol):
    """The order in which ready pods are tried (upstream QueueSortPlugin)."""

    @property
    def name(self) -> str: ...

    def key(self, pod: PodInfo) -> tuple[float, ...]:
        """Returns the sort key of the pod: smaller first. PrioritySort decides between pods with equal keys."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer of a PostFilter rule about a pod that fits on no node.

    Attributes:
        node_name: the node to nominate the pod to; "" if the rule has no such node.
        reason: the reason for not nominating the pod; "" if the rule gives none.
    """

    node_name: str = ""
    reason: str = ""


class PostFilter(Protocol):
    """A rule that runs for pods that fit on no node (upstream PostFilterPlugin)."""

    @property
    def name(self) -> str: ...

    def propose(self, pod: PodInfo, refused: Mapping[str, str], table: Table) -> Proposal:
        """Returns what the rule proposes. `refused` maps each node's name to the reasons why the pod does not fit."""


class Scorer:
    """A priority, prepared for one pod.

    Attributes:
        sees_pods: True if the raw scores depend on placed pods.
        sees_resources_only: True if the score is equal for all nodes with equal resources.
        normalises: True if `reduce` changes the scores, so the score of one row depends on the other rows.
    """

    sees_pods: bool = False
    sees_resources_only: bool = False
    normalises: bool = False

    def map(self, rows: Rows) -> Scores:
        """Returns the raw score of each row: int64[len(rows)]."""
        raise NotImplementedError

    def reduce(self, raw: Scores) -> Scores:
        """Returns the scores normalised to 0..100. By default, returns `raw`. An override must set `normalises`."""
        return raw


class RowScorer(Scorer):
    """A scorer that consists of a function for `map`, and optionally a function for `reduce`."""

    def __init__(self, score: Callable[[Rows], Scores], reduce: Callable[[Scores], Scores] | None = None) -> None:
        self._score = score
        self._reduce = reduce
        self.normalises = reduce is not None

    def map(self, rows: Rows) -> Scores:
        return self._score(rows)

    def reduce(self, raw: Scores) -> Scores:
        return raw if self._reduce is None else self._reduce(raw)


class Priority(Protocol):
    """A rule that prefers some nodes to others."""

    @property
    def name(self) -> str: ...

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        """Returns the scorer for this pod on the feasible `rows`, or None if the rule does not apply to the pod."""


def normalised(raw: Scores, *, reverse: bool = False) -> Scores:
    """Scales scores so that the largest becomes 100 (upstream helper.DefaultNormalizeScore).

    With `reverse` the largest becomes 0. If all are 0 they stay 0, or become 100 with `reverse`.
    """
    largest = int(np.maximum.reduce(raw, initial=0))
    if largest == 0:
        return np.full(len(raw), MAX_SCORE if reverse else 0, np.int64)
    scaled = raw * MAX_SCORE // largest
    return MAX_SCORE - scaled if reverse else scaled
