"""Finds the volumes or storage pools that each node can access, and picks the best one for each node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.framework.node_selectors import nodes_in_term
from extender.framework.rules import Scores
from extender.model.meta import LabelSelector, NodeSelector
from extender.model.selectors import compile_selector
from extender.table import Table
from extender.table.journal import TOPOLOGY, Cursor
from extender.table.labels import BoolColumn, Rows

NONE = -1
_MAX_SELECTORS = 65536

Picked = NDArray[np.intp]


class Accessibility:
    """Knows which nodes can access each item of a list that is sorted best first.

    An item is a volume or a storage pool. Items that can be accessed by the same nodes share a group.
    """

    def __init__(self, group: NDArray[np.intp], rows: Sequence[Rows]) -> None:
        """Stores the groups of items, and the nodes that can access each group.

        Args:
            group: intp[item]: the index of the item's group.
            rows: for each group, the rows of the nodes that can access its items.
        """
        self._group = group
        self._groups = len(rows)
        self._edge_group = np.repeat(np.arange(len(rows)), [len(of_group) for of_group in rows])
        self._edge_row: Rows = np.concatenate(rows) if rows else np.zeros(0, np.intp)

    def pick(self, suitable: BoolColumn, taken: Sequence[Picked], capacity: int) -> Picked:
        """Returns, for each node, the first suitable item that the node can access.

        Args:
            suitable: bool[item]: the items to choose from.
            taken: the results of earlier calls. For each node, an item that was picked before is not picked again.
            capacity: the number of rows.

        Returns:
            intp[capacity]: the index of each row's item, or NONE.
        """
        nothing = len(suitable)
        ranked = self._ranked(suitable, len(taken) + 1)
        depth = np.zeros(len(self._edge_row), np.intp)
        for _ in taken:
            candidate = ranked[self._edge_group, depth]
            depth += np.logical_or.reduce([candidate == picked[self._edge_row] for picked in taken])
        best = np.full(capacity, nothing, np.intp)
        np.minimum.at(best, self._edge_row, ranked[self._edge_group, depth])
        best[best == nothing] = NONE
        return best

    def _ranked(self, suitable: BoolColumn, depth: int) -> NDArray[np.intp]:
        """Returns the first `depth` suitable items of each group: intp[group, depth].

        If a group has fewer suitable items, its remaining entries are len(suitable), which is not the index of an item.
        """
        ranked = np.full((self._groups, depth), len(suitable), np.intp)
        items = np.flatnonzero(suitable)
        items = items[np.argsort(self._group[items], kind="stable")]
        groups = self._group[items]
        rank = np.arange(len(items)) - np.searchsorted(groups, groups)
        first = rank < depth
        ranked[groups[first], rank[first]] = items[first]
        return ranked


def values_picked(values: Scores, picked: Picked) -> Scores:
    """Returns the value of each row's item: int64[n]; 0 if the row has no item.

    Args:
        values: int64[item]: the value of each item.
        picked: intp[n]: the index of each row's item, as `Accessibility.pick` returns it.
    """
    return np.append(values, 0)[picked]  # an index of NONE (-1) selects the last element, which is 0


def accessibility_by_node_selector(
    selectors: Sequence[tuple[bytes, NodeSelector | None]], table: Table
) -> Accessibility:
    """Returns which nodes can access each persistent volume.

    `selectors`: for each volume, a cache key and the volume's node affinity. Volumes with equal node affinities must
    have equal keys.
    """
    return _accessibility(
        [(("volume", key), partial(nodes_with_access, selector)) for key, selector in selectors], table
    )


def accessibility_by_label_selector(selectors: Sequence[LabelSelector], table: Table) -> Accessibility:
    """Returns which nodes can access each storage pool.

    `selectors`: for each pool, a selector of the labels of nodes.
    """
    keyed = [(("pool", msgspec.msgpack.encode(selector)), partial(nodes_labelled, selector)) for selector in selectors]
    return _accessibility(keyed, table)


def nodes_with_access(selector: NodeSelector | None, table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if a volume's node affinity selects the node.

    Only labels count: a term that has only a node's name selects all nodes (upstream CheckNodeAffinity).
    """
    if selector is None:
        return np.ones(len(rows), np.bool_)
    selected = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms or ():
        if term.match_fields and not term.match_expressions:
            return np.ones(len(rows), np.bool_)
        selected |= nodes_in_term(msgspec.structs.replace(term, match_fields=None), table, rows)
    return selected


def nodes_labelled(selector: LabelSelector, table: Table, rows: Rows) -> BoolColumn:
    labelled = np.ones(len(rows), np.bool_)
    for requirement in compile_selector(selector).requirements:
        labelled &= table.nodes.labels.satisfying(requirement, rows)
    return labelled


class _SelectedRows:
    """The rows that each selector selects, cached until a node is added or deleted or its labels change."""

    def __init__(self, table: Table) -> None:
        self._changes = Cursor(table.journal, TOPOLOGY)
        self._rows: dict[Hashable, Rows] = {}

    def current(self) -> dict[Hashable, Rows]:
        # The cache has a limit, because selectors of deleted volumes are not removed from it.
        if self._changes.advance() or len(self._rows) > _MAX_SELECTORS:
            self._rows.clear()
        return self._rows


def _accessibility(
    selections: Sequence[tuple[Hashable, Callable[[Table, Rows], BoolColumn]]], table: Table
) -> Accessibility:
    """Returns which nodes can access each volume or storage pool.

    `selections`: for each volume or pool, a cache key, and a function that returns which of the given rows can access
    it.
    """
    rows_by_key = table.reader(_SelectedRows).current()
    index: dict[Hashable, int] = {}
    group = np.zeros(len(selections), np.intp)
    for item, (key, select) in enumerate(selections):
        if key not in rows_by_key:
            rows_by_key[key] = table.nodes.rows[select(table, table.nodes.rows)]
        group[item] = index.setdefault(key, len(index))
    return Accessibility(group, [rows_by_key[key] for key in index])
