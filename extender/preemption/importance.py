"""The order of importance. Source: upstream preemption.MoreImportantVictim."""

from __future__ import annotations

import numpy as np

from extender.preemption.go_sort import STABLE_UP_TO, slice_order
from extender.table import Table
from extender.table.labels import BoolColumn, IntColumn, Rows

_PRIORITY_BITS = 32


def by_importance(table: Table, slots: Rows) -> tuple[Rows, IntColumn]:
    """The slots by node, on each node by descending priority, then by ascending start; and their ranks, int64[n].

    Equal ones stand where the scheduler's sort leaves them, if its cache holds them by namespace and name, as it does
    after a list. Pods that have not started are never equal for it: it takes the present time for each of them.
    """
    pods = table.pods
    key = (pods.row[slots] << _PRIORITY_BITS) - pods.priority[slots]
    started = pods.started[slots]
    order = np.lexsort((started, key))
    slots, key, started = slots[order], key[order], started[order]
    differs = (key[1:] != key[:-1]) | (started[1:] != started[:-1])
    if differs.all():
        return slots, np.arange(len(slots))
    slots = _ties_by_name(table, slots, _ranked(differs))
    rank = _ranked(differs | np.isinf(started[1:]))
    for begin, end in _unstable(pods.row[slots], rank):
        cached = _order_of_names(table, slots[begin:end])
        slots[begin:end] = slots[begin:end][cached[slice_order(rank[begin:end][cached].tolist())]]
    return slots, rank


def _ranked(differs: BoolColumn) -> IntColumn:
    """A number that grows wherever one differs from the one before it: int64[n + 1]."""
    return np.concatenate(([0], np.cumsum(differs)))


def _ties_by_name(table: Table, slots: Rows, rank: IntColumn) -> Rows:
    """Puts slots of equal rank, which stand together, into the order of namespaces and names."""
    tied = np.flatnonzero(np.bincount(rank)[rank] > 1)
    by_name = tied[_order_of_names(table, slots[tied])]
    slots[tied] = slots[by_name[np.argsort(rank[by_name], kind="stable")]]
    return slots


def _unstable(rows: Rows, rank: IntColumn) -> list[tuple[int, int]]:
    """The ranges of the nodes whose pods an unstable sort may reorder: too many, and some equal."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(rows)) + 1, [len(rows)]))
    begins, ends = edges[:-1], edges[1:]
    unstable = (ends - begins > STABLE_UP_TO) & (rank[ends - 1] - rank[begins] + 1 < ends - begins)
    return list(zip(begins[unstable].tolist(), ends[unstable].tolist(), strict=True))


def _order_of_names(table: Table, slots: Rows) -> Rows:
    names = [info.sort_key for info in table.pods.at(slots)]
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)
