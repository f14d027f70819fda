"""NodeLabel: nodes must have, or had better have, certain labels. Source: upstream nodelabel, until v1.22."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import MAX_SCORE, Check, Scorer, Scores, Verdict
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
        return _Check(self, table) if self.labels else None


class _Check(Check):
    def __init__(self, rule: NodeLabelFilter, table: Table) -> None:
        self._rule, self._table = rule, table

    def refuse(self, rows: Rows) -> Verdict:
        refused = np.zeros(len(rows), np.bool_)
        for label in self._rule.labels:
            refused |= (self._table.nodes.labels[label].ids[rows] != ABSENT) != self._rule.presence
        return [(refused, unresolvable(self._rule.name, REASON))]


@dataclass(frozen=True, slots=True)
class NodeLabelScore:
    """Prefers nodes with the label if `presence`, else those without."""

    label: str
    presence: bool
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return _Scorer(self, table)


class _Scorer(Scorer):
    def __init__(self, rule: NodeLabelScore, table: Table) -> None:
        self._rule, self._table = rule, table

    def map(self, rows: Rows) -> Scores:
        present = self._table.nodes.labels[self._rule.label].ids[rows] != ABSENT
        scores: Scores = MAX_SCORE * (present == self._rule.presence)
        return scores
