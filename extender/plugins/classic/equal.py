"""EqualPriority: every node gets the same score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import RowScorer, Scorer
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "EqualPriority"


@dataclass(frozen=True, slots=True)
class EqualPriority:
    """Upstream core.EqualPriorityMap, until v1.17."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return RowScorer(lambda rows: np.ones(len(rows), np.int64))
