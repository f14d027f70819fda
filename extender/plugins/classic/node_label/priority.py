"""NodeLabel: nodes that have a label, or lack it, are preferred."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.rules import MAX_SCORE, Scorer, Scores
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows

NAME = "NodeLabel"


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """Upstream nodelabel.NodeLabel, Score, until v1.22. `presence`: whether nodes with the label are preferred."""

    label: str
    presence: bool
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        return _Scorer(self, table)


class _Scorer(Scorer):
    def __init__(self, rule: NodeLabel, table: Table) -> None:
        self._rule, self._table = rule, table

    def map(self, rows: Rows) -> Scores:
        present = self._table.nodes.labels[self._rule.label].ids[rows] != ABSENT
        scores: Scores = MAX_SCORE * (present == self._rule.presence)
        return scores
