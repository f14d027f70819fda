"""NodeAffinity: nodes that satisfy more of the preferred terms, by weight, are preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.errors import RuleFailed
from extender.framework.node_affinity import is_well_formed, nodes_in_term
from extender.framework.rules import PerNode, RowScorer, Scorer, Scores, normalised
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
        terms = [term for term in (*self.added, *(own or ())) if term.weight]

        def score(rows: Rows) -> Scores:
            total = np.zeros(len(rows), np.int64)
            for term in terms:
                total += term.weight * nodes_in_term(term.preference, table, rows)
            return total

        return RowScorer(score, normalised) if own or self.added else None


def _raise_if_malformed(terms: Sequence[PreferredSchedulingTerm]) -> None:
    """Raises RuleFailed for a term that cannot be read, with which upstream's PreScore fails the pod."""
    for index, term in enumerate(terms):
        if term.weight and not is_well_formed(term.preference):
            raise RuleFailed(f'running PreScore plugin "{NAME}": preferred term [{index}] cannot be read')
