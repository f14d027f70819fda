"""NodeAffinity: nodes that satisfy more of the preferred terms, by weight, are preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.errors import RuleFailed
from extender.framework.node_affinity import is_well_formed, nodes_in_term
from extender.framework.rules import PerNode, Scorer, Scores, normalised
from extender.model.pod import PreferredSchedulingTerm
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeAffinity"


@dataclass(frozen=True, slots=True)
class NodeAffinityScore(PerNode):
    """Upstream nodeaffinity.NodeAffinity, Score. `added`: the preferred part of the argument addedAffinity."""

    added: tuple[PreferredSchedulingTerm, ...] = ()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        own = affinity.preferred if affinity else None
        if own and len(rows) > 1:  # upstream scores nothing where one node is left
            _raise_if_malformed(own)
        return _Scorer((*self.added, *(own or ())), table) if own or self.added else None


def _raise_if_malformed(terms: Sequence[PreferredSchedulingTerm]) -> None:
    """Raises RuleFailed for a term that cannot be read, with which upstream's PreScore fails the pod."""
    for index, term in enumerate(terms):
        if term.weight and not is_well_formed(term.preference):
            raise RuleFailed(f'running PreScore plugin "{NAME}": preferred term [{index}] cannot be read')


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
