"""NodeLabel: nodes must have, or had better have, certain labels. Source: upstream nodelabel, until v1.22."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, Check, RowCheck, RowScorer, Scorer, Scores, Verdict
from extender.framework.status import unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows

NAME = "NodeLabel"
REASON = "node(s) didn't have the requested labels"


@dataclass(frozen=True, slots=True)
class NodeLabelFilter:
    """Requires all of the labels if `presence`, else none of them, whatever their values (CheckNodeLabelPresence)."""

    labels: tuple[str, ...]
    presence: bool
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        refusal = unresolvable(self.name, REASON)

        def refuse(rows: Rows) -> Verdict:
            refused = np.zeros(len(rows), np.bool_)
            for label in self.labels:
                refused |= (table.nodes.labels[label].ids[rows] != ABSENT) != self.presence
            return [(refused, refusal)]

        return RowCheck(refuse) if self.labels else None


@dataclass(frozen=True, slots=True)
class NodeLabelScore:
    """Prefers nodes with the label if `presence`, else those without."""

    label: str
    presence: bool
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        def score(rows: Rows) -> Scores:
            scores: Scores = MAX_SCORE * ((table.nodes.labels[self.label].ids[rows] != ABSENT) == self.presence)
            return scores

        return RowScorer(score)
