"""Scores that look at nothing but one node's resources: kept for the next pod that asks for the same.

Pods of one template come one after another, and between two of them one node has changed, not five thousand. Nodes of
one kind fill up in the same steps, so the score of a node that has changed is, as a rule, one that was met before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from extender.devices.extended_resources import may_be_backed
from extender.framework.rules import Scores
from extender.plugins.node_resources.allocation import ResourceWeights
from extender.table import Table
from extender.table.journal import MOST_FOLLOWED, RESOURCES
from extender.table.labels import RowIndex, Rows
from extender.table.nodes.columns import ResourceFingerprint

_MOST_KEPT = 64
_MOST_FILLS = 512

WorkOut = Callable[[RowIndex], Scores]


@dataclass(slots=True)
class _Kept:
    """`scores` of all rows, int16[capacity], as of the moment `at`; those of the fills met since, by fill.

    Of 0..100, so that many rows share what a processor fetches at once.
    """

    scores: NDArray[np.int16]
    at: int
    of_fill: dict[ResourceFingerprint, int] = field(default_factory=dict)

    def follow(self, fills: Mapping[int, ResourceFingerprint], work_out: WorkOut) -> None:
        """Brings the scores of the rows that have changed up to date; `fills`: theirs."""
        new = {fill: row for row, fill in fills.items() if fill not in self.of_fill}
        if new:
            if len(self.of_fill) + len(new) > _MOST_FILLS:
                self.of_fill.clear()
                new = {fill: row for row, fill in fills.items()}
            self.of_fill |= zip(new, work_out(np.array(list(new.values()))).tolist(), strict=True)
        for row, fill in fills.items():
            self.scores[row] = self.of_fill[fill]


class _CachedScores:
    def __init__(self, table: Table) -> None:
        self._table, self._capacity = table, 0
        self._known: dict[Hashable, _Kept | None] = {}

    def of_all_rows(self) -> dict[Hashable, _Kept | None]:
        """Returns the scores by rule and request, as long as there are no more rows than when they were kept."""
        if self._table.nodes.capacity != self._capacity:
            self._known, self._capacity = {}, self._table.nodes.capacity
        return self._known


def cached_scores(
    rule: Hashable, resources: ResourceWeights, wanted: Mapping[str, int], table: Table, rows: Rows, work_out: WorkOut
) -> Scores:
    """Returns what `work_out` gives for `rows`: int64[row].

    Args:
        rule: stands, with what is wanted of `resources`, for what `work_out` does.
    """
    if len(rows) == 1 or may_be_devices(resources):  # one row costs no less here; devices are counted elsewhere
        return work_out(rows)
    key = rule, resources, tuple([wanted.get(resource.name, 0) for resource in resources])
    known = table.reader(_CachedScores).of_all_rows()
    met, kept = key in known, known.pop(key, None)
    if not met:
        if len(known) >= _MOST_KEPT:
            del known[next(iter(known))]  # unasked for the longest
        known[key] = None  # perhaps no other pod asks for the same
        return table.nodes.worked_out(work_out, rows)
    changed = None if kept is None else table.journal.since(kept.at, RESOURCES)
    if kept is None or changed is None or len(changed) > MOST_FOLLOWED:
        everywhere = slice(len(table.nodes.names))
        kept = _Kept(np.zeros(table.nodes.capacity, np.int16), 0)
        kept.scores[everywhere] = work_out(everywhere)
    elif changed:
        kept.follow({row: table.nodes.fingerprint(row) for row in changed}, work_out)
    known[key] = kept
    kept.at = table.journal.now
    return kept.scores[rows].astype(np.int64)


@lru_cache(maxsize=64)
def may_be_devices(resources: ResourceWeights) -> bool:
    return any(may_be_backed(resource.name) for resource in resources)
