"""TaintToleration: nodes with fewer untolerated PreferNoSchedule taints are preferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Scorer, Scores, normalised
from extender.model.tolerations import PREFER_NO_SCHEDULE, untolerated
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "TaintToleration"


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """Upstream tainttoleration.TaintToleration, Score."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        tolerations = [t for t in pod.pod.spec.tolerations or () if t.effect in ("", PREFER_NO_SCHEDULE)]
        counts = [len(untolerated(taints, tolerations, (PREFER_NO_SCHEDULE,))) for taints in table.nodes.taint_sets]
        return _Scorer(table, np.array(counts, np.int64))


class _Scorer(Scorer):
    def __init__(self, table: Table, counts: Scores) -> None:
        self._table, self._counts = table, counts

    def map(self, rows: Rows) -> Scores:
        if len(self._counts) == 1:  # all nodes have the same taints, as a rule none
            return np.full(len(rows), self._counts[0])
        return self._counts[self._table.nodes.taint_set[rows]]

    def reduce(self, raw: Scores) -> Scores:
        return normalised(raw, reverse=True)
