"""TaintToleration: keeps pods off nodes whose taints they do not tolerate, or prefers other nodes.

Source: upstream plugin tainttoleration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import PRE_SCORE, SCORE, Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests, Reads, encoded
from extender.framework.rules import Check, PerNode, RowCheck, RowScorer, Scorer, normalised
from extender.framework.status import unresolvable
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Node, untolerated
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "TaintToleration"
REFUSAL = unresolvable(NAME, "node(s) had untolerated taint(s)")


@dataclass(frozen=True, slots=True)
class TaintTolerationFilter(PerNode):
    """Refuses nodes with a taint of one of the `effects` that the pod does not tolerate."""

    effects: tuple[str, ...] = (NO_SCHEDULE, NO_EXECUTE)
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        tolerations = pod.pod.spec.tolerations or ()
        refused = [bool(untolerated(taints, tolerations, self.effects)) for taints in table.nodes.taint_sets]
        refused_sets, taint_set = np.array(refused), table.nodes.taint_set
        return RowCheck(lambda rows: [(refused_sets[taint_set[rows]], REFUSAL)]) if any(refused) else None


@dataclass(frozen=True, slots=True)
class TaintTolerationScore(PerNode):
    """Prefers nodes with fewer untolerated PreferNoSchedule taints."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        tolerations = [t for t in pod.pod.spec.tolerations or () if t.effect in ("", PREFER_NO_SCHEDULE)]
        counts = [len(untolerated(taints, tolerations, (PREFER_NO_SCHEDULE,))) for taints in table.nodes.taint_sets]
        by_set = np.array(counts, np.int64)
        reduce = partial(normalised, reverse=True)
        if len(by_set) == 1:  # a shortcut for the usual case: all nodes have the same taints, or no taints
            return RowScorer(lambda rows: np.full(len(rows), by_set[0]), reduce)
        return RowScorer(lambda rows: by_set[table.nodes.taint_set[rows]], reduce)


def taints_become_tolerated(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod tolerates all taints of the node now and did not before the change."""
    return not _repels(change.new, pod) and (change.old is None or _repels(change.old, pod))


def _repels(node: Node, pod: PodInfo) -> bool:
    return bool(untolerated(node.taints, pod.pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE)))


def first_taint(change: Change) -> tuple[str, ...] | None:
    """Returns the names `key` and `key=value` of the node's first taint; None if the node has no taint.

    The queue looks up the waiting pods that tolerate one of these names; with None, it checks all waiting pods.
    """
    taints = (taint for taint in change.new.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
    return next(((taint.key, f"{taint.key}={taint.value}") for taint in taints), None)


def _names_of_tolerations(pod: PodInfo) -> Iterator[str]:
    for toleration in pod.pod.spec.tolerations or ():
        any_value = not toleration.key or toleration.operator == "Exists"
        yield toleration.key if any_value else f"{toleration.key}={toleration.value}"


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: TaintTolerationFilter(),
    lambda _: TaintTolerationScore(),
    weight=3,
    points=frozenset((PRE_SCORE,)),
    needs=((SCORE, PRE_SCORE),),
    interests=Interests(
        (
            Interest(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_TAINT,
                taints_become_tolerated,
                Reads(lambda pod: encoded(pod.pod.spec.tolerations), _names_of_tolerations),
                first_taint,
            ),
            Interest(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
        )
    ),
)
