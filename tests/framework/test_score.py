"""Scoring: raw scores are reduced, weighted and summed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extender.framework.find_fit import score
from extender.framework.profile import Profile, WeightedPriority
from extender.framework.rules import Scorer, Scores, normalised
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

NODES = [make_node(f"n{i}").allocatable(cpu=str(i), pods="10").obj() for i in range(4)]
POD = make_pod("p").obj()


@dataclass(frozen=True)
class Rank(Scorer):
    """Scores rows by a list of points."""

    points: dict[str, int]
    name: str = "Rank"

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        object.__setattr__(self, "_table", table)
        return self if self.points else None

    def map(self, rows: Rows) -> Scores:
        names = self._table.nodes.names  # type: ignore[attr-defined]  # set by prepare
        return np.array([self.points.get(names[row], 0) for row in rows], np.int64)

    def reduce(self, raw: Scores) -> Scores:
        return normalised(raw)


def test_scores_are_reduced_weighted_and_summed_without_priorities_that_do_not_apply() -> None:
    table = table_of(*NODES)
    profile = Profile("p", (), [WeightedPriority(Rank({"n1": 1, "n2": 3}), 2), WeightedPriority(Rank({}), 5)])
    rows = np.array([table.nodes.row_of[name] for name in ("n1", "n2", "n3")])
    scoring = score(profile, pod_info(POD), table, rows)
    assert [(s.plugin, s.raw.tolist(), s.scores.tolist()) for s in scoring.by_plugin] == [
        ("Rank", [1, 3, 0], [33, 100, 0])
    ]
    assert scoring.total.tolist() == [66, 200, 0]


def test_normalised() -> None:
    raw = np.array([0, 5, 10], np.int64)
    assert normalised(raw).tolist() == [0, 50, 100]
    assert normalised(raw, reverse=True).tolist() == [100, 50, 0]
    nothing = np.zeros(2, np.int64)
    assert normalised(nothing).tolist() == [0, 0]
    assert normalised(nothing, reverse=True).tolist() == [100, 100]
