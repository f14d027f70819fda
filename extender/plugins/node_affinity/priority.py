"""NodeAffinity: nodes that satisfy more of the preferred terms, by weight, are preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.node_affinity import nodes_in_term
from extender.framework.rules import Scorer, Scores, normalised
from extender.model.pod import PreferredSchedulingTerm
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeAffinity"


@dataclass(frozen=True, slots=True)
class NodeAffinityScore:
    """Upstream nodeaffinity.NodeAffinity, Score. `added`: the preferred part of the argument addedAffinity."""

    added: tuple[PreferredSchedulingTerm, ...] = ()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        own = affinity.preferred if affinity else None
        return _Scorer((*self.added, *(own or ())), table) if own or self.added else None


class _Scorer(Scorer):
    def __init__(self, terms: Sequence[PreferredSchedulingTerm], table: Table) -> None:
        self._terms, self._table = terms, table

    def map(self, rows: Rows) -> Scores:
        total = np.zeros(len(rows), np.int64)
        for term in self._terms:
            if term.weight:
                total += term.weight * nodes_in_term(term.preference, self._table, rows)
        return total

    def reduce(self, raw: Scores) -> Scores:
        return normalised(raw)
