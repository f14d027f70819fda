"""The order of importance. Source: upstream preemption.MoreImportantVictim."""

from __future__ import annotations

import numpy as np

from extender.preemption.slice_order import STABLE_UP_TO, slice_order
from extender.table import Table
from extender.table.labels import BoolColumn, IntColumn, Rows

_PRIORITY_BITS = 32


def by_importance(table: Table, slots: Rows) -> Rows:
    """The slots by node, on each node by descending priority, then by ascending start.

    Those that are equal stand where the scheduler's sort leaves them, if its cache holds them by namespace and name, as
    it does after a list. Pods that have not started yet are never equal to it: it takes the time of looking for theirs.
    """
    pods = table.pods
    key = (pods.row[slots] << _PRIORITY_BITS) - pods.priority[slots]
    started = pods.started[slots]
    order = np.lexsort((started, key))
    slots, key, started = slots[order], key[order], started[order]
    differs = (key[1:] != key[:-1]) | (started[1:] != started[:-1])
    if differs.all():
        return slots
    slots = _ties_by_name(table, slots, _ranked(differs))
    rank = _ranked(differs | np.isinf(started[1:]))
    for begin, end in _unstable(pods.row[slots], rank):
        slots[begin:end] = _as_sliced(table, slots[begin:end], rank[begin:end])
    return slots


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
    """Where the pods of those nodes stand that the scheduler's sort leaves in disorder: too many, and some equal."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(rows)) + 1, [len(rows)]))
    begins, ends = edges[:-1], edges[1:]
    unstable = (ends - begins > STABLE_UP_TO) & (rank[ends - 1] - rank[begins] + 1 < ends - begins)
    return list(zip(begins[unstable].tolist(), ends[unstable].tolist(), strict=True))


def _as_sliced(table: Table, slots: Rows, rank: IntColumn) -> Rows:
    """One node's slots as the scheduler's sort leaves them."""
    cached = _order_of_names(table, slots)
    sliced: Rows = slots[cached[slice_order(rank[cached].tolist())]]
    return sliced


def _order_of_names(table: Table, slots: Rows) -> Rows:
    names = [info.sort_key for info in table.pods.at(slots)]
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)
