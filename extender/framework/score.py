"""Runs the priorities of a profile over the feasible rows. Source: upstream prioritizeNodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from extender.framework.profile import Profile
from extender.framework.rules import Scores
from extender.table import PodInfo, Table
from extender.table.labels import Rows


class PluginScores(NamedTuple):
    """One priority's scores of the feasible rows, int64[n]. `scores` are normalised, but not weighted."""

    plugin: str
    weight: int
    raw: Scores
    scores: Scores


class Scoring(NamedTuple):
    """The scores of the feasible rows. `total` is the sum of all plugins' weighted scores: int64[n]."""

    rows: Rows
    total: Scores
    by_plugin: Sequence[PluginScores]


def score(profile: Profile, pod: PodInfo, table: Table, rows: Rows) -> Scoring:
    """Scores the feasible `rows` by every priority of the profile, and adds up the weighted scores.

    Raises DeadlineExceeded.
    """
    total = np.zeros(len(rows), np.int64)
    by_plugin: list[PluginScores] = []
    for weighted in profile.priorities:
        table.deadline.check(weighted.priority.name)
        scorer = weighted.priority.prepare(pod, table, rows)
        if scorer is None:
            continue
        raw = scorer.map(rows)
        scores = scorer.reduce(raw)
        total += scores if weighted.weight == 1 else scores * weighted.weight
        by_plugin.append(PluginScores(weighted.priority.name, weighted.weight, raw, scores))
    return Scoring(rows, total, by_plugin)
