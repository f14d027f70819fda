"""The forms of a rule.

A predicate (upstream Filter plugin) looks at the pod once (`prepare`, upstream PreFilter) and gives a Check, which
refuses rows of the table; a priority (upstream Score plugin) gives a Scorer, with a map (raw score per row) and a
reduce (normalise). All about one pod lives in its Check or Scorer; the rule itself holds nothing but its arguments,
so one rule serves any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extender.framework.status import Refusal
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, IntColumn, Rows

MAX_SCORE = 100
Scores = NDArray[np.int64]

# Which of the rows that were asked about are refused for one and the same cause. The masks of a verdict do not overlap.
Verdict = Sequence[tuple[BoolColumn, Refusal]]
NO_REFUSAL: Verdict = ()


class PerNode:
    """A rule that looks at one node by itself: at what a template's pods have in common, the node, and its own pods.

    So what it says of a row stays as it is until that row changes (`framework.rankings`). This need only be so for pods
    without volumes and claims. A score of it that depends on pods is not normalised.
    """

    __slots__ = ()


class PerTemplate:
    """A rule that looks at more than one node, and has something to say to all pods of a template or to none.

    Which of the two it is depends on the controller of the pods, the objects of other kinds, and the (anti-)affinity
    terms of the pods that stand.
    """

    __slots__ = ()


class Check:
    """A predicate made ready for one pod.

    Attributes:
        only: names of the nodes that can do at all (upstream PreFilterResult); None: any may.
        sees_pods: the answer depends on the pods that stand on the nodes; preemption asks such a check again.
        sees_own_pods_only: only pods on the node itself count, and fewer of them are never worse.
        sees_resources_only: nodes with the same resources (`DistinctResources`) are all refused, or none is.
    """

    only: frozenset[str] | None = None
    sees_pods: bool = False
    sees_own_pods_only: bool = False
    sees_resources_only: bool = False

    def refuse(self, rows: Rows) -> Verdict:
        """Returns the rows, of `rows`, that cannot take the pod, and the reasons."""
        raise NotImplementedError

    def refuse_requested(self, rows: Rows, requested: IntColumn) -> Verdict:
        """Returns what `refuse` would if `requested`, int64[resource, row], were all that is requested of the nodes.

        Asked of checks that see resources only.
        """
        raise NotImplementedError

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict | None:
        """Returns what `refuse` would if each node's own pods among `gone` had left it, and no other node had changed.

        Only which rows are refused matters, not the reasons and codes. A check that sees a node's own
        pods only counts `gone.nominated` in; others leave them out. None means that the rule cannot tell for many nodes
        at once; it is then prepared anew for each.
        """
        return None if self.sees_pods else self.refuse(rows)


class RowCheck(Check):
    """A check that is one function of the rows."""

    def __init__(
        self, refuse: Callable[[Rows], Verdict], only: frozenset[str] | None = None, *, sees_pods: bool = False
    ) -> None:
        self._refuse, self.only, self.sees_pods = refuse, only, sees_pods

    def refuse(self, rows: Rows) -> Verdict:
        return self._refuse(rows)


class Predicate(Protocol):
    """A rule that a node must satisfy."""

    @property
    def name(self) -> str: ...

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        """Returns the check for this pod; a Refusal of every node; or None if the rule does not apply to it."""
        ...


class Scorer:
    """A priority made ready for one pod.

    Attributes:
        sees_pods: the raw scores depend on the pods that stand on the nodes.
        sees_resources_only: nodes with the same resources (`DistinctResources`) have one score.
    """

    sees_pods: bool = False
    sees_resources_only: bool = False

    def map(self, rows: Rows) -> Scores:
        """Returns the raw score of each row: int64[len(rows)]."""
        raise NotImplementedError

    def reduce(self, raw: Scores) -> Scores:
        """Returns the scores brought to 0..100; as they are, unless the rule says otherwise."""
        return raw


class RowScorer(Scorer):
    """A scorer that is one function of the rows, and perhaps one of the raw scores."""

    def __init__(self, score: Callable[[Rows], Scores], reduce: Callable[[Scores], Scores] = lambda raw: raw) -> None:
        self._score, self._reduce = score, reduce

    def map(self, rows: Rows) -> Scores:
        return self._score(rows)

    def reduce(self, raw: Scores) -> Scores:
        return self._reduce(raw)


class Priority(Protocol):
    """A rule by which nodes are preferred."""

    @property
    def name(self) -> str: ...

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        """Returns the scorer for this pod among the feasible `rows`; None if the rule does not apply to it."""
        ...


def normalised(raw: Scores, *, reverse: bool = False) -> Scores:
    """Returns raw scores scaled so that the largest becomes 100 (upstream helper.DefaultNormalizeScore).

    `reverse` turns the scale round. Where all are 0 they stay so, or become 100.
    """
    largest = int(np.maximum.reduce(raw, initial=0))
    if largest == 0:
        return np.full(len(raw), MAX_SCORE if reverse else 0, np.int64)
    scaled = raw * MAX_SCORE // largest
    return MAX_SCORE - scaled if reverse else scaled
