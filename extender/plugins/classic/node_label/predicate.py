"""CheckNodeLabelPresence: a node must have all of some labels, or none of them, whatever their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.rules import Check, Verdict
from extender.framework.status import unresolvable
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows

NAME = "NodeLabel"
REASON = "node(s) didn't have the requested labels"


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """Upstream nodelabel.NodeLabel, Filter, until v1.22. `presence`: whether the labels must be there, or must not."""

    labels: tuple[str, ...]
    presence: bool
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        return _Check(self, table) if self.labels else None


class _Check(Check):
    def __init__(self, rule: NodeLabel, table: Table) -> None:
        self._rule, self._table = rule, table

    def refuse(self, rows: Rows) -> Verdict:
        refused = np.zeros(len(rows), np.bool_)
        for label in self._rule.labels:
            refused |= (self._table.nodes.labels[label].ids[rows] != ABSENT) != self._rule.presence
        return [(refused, unresolvable(self._rule.name, REASON))]
