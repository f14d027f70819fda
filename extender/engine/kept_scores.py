"""Scores that look at nothing but one node's resources: kept for the next pod that asks for the same.

Pods of one template come one after another, and between two of them one node has changed, not five thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extender.engine.allocation import ResourceWeight
from extender.engine.devices.extended_resources import may_be_backed
from extender.engine.rules import Scores
from extender.table import Table
from extender.table.labels import Rows

_MOST_KEPT = 64


@dataclass(slots=True)
class _Kept:
    """`scores`: int64[capacity], as of the moment `at`."""

    scores: Scores
    at: int


def kept_scores(
    rule: Hashable,
    resources: Sequence[ResourceWeight],
    wanted: Mapping[str, int],
    table: Table,
    rows: Rows,
    work_out: Callable[[Rows], Scores],
) -> Scores:
    """What `work_out` gives for `rows`: int64[row].

    Args:
        rule: stands, with what is wanted of `resources`, for what `work_out` does.
    """
    if any(may_be_backed(resource.name) for resource in resources):
        return work_out(rows)  # devices are counted elsewhere
    amounts = tuple(wanted.get(resource.name, 0) for resource in resources)
    known = table.derived.get(kept_scores, table.nodes.capacity, dict[Hashable, _Kept])
    key = rule, tuple(resources), amounts
    kept, changed = known.get(key), None
    if kept is not None:
        changed = table.nodes.changes.since(kept.at)
    if kept is None or changed is None:
        everywhere = np.arange(len(table.nodes.names))
        if 2 * len(rows) < len(everywhere):
            return work_out(rows)  # all others would cost more than these
        kept, changed = _Kept(np.zeros(table.nodes.capacity, np.int64), 0), everywhere
        if len(known) >= _MOST_KEPT:
            known.clear()
        known[key] = kept
    if len(changed):
        kept.scores[changed] = work_out(changed)
    kept.at = table.nodes.changes.now
    return kept.scores[rows]
