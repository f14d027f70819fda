"""The nodes that a filter or prioritize request asks about, as rows of tables.

Nodes that the cache knows are checked as the cache knows them. Whole nodes that it does not know, such as the templates
an autoscaler tries, are checked by the request alone, in a table of their own that is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.extender_v1.types import ExtenderArgs
from extender.table import Table
from extender.table.features import FeatureGates
from extender.table.labels import Rows


class Part(NamedTuple):
    """Rows of one table, and where in the request's names they stand: intp[n] each."""

    table: Table
    rows: Rows
    positions: NDArray[np.intp]


class RequestedNodes(NamedTuple):
    """The request's names, each once, the parts to decide on, and the names that nobody knows."""

    names: list[str]
    parts: Sequence[Part]
    unknown: Sequence[str]


def requested_nodes(args: ExtenderArgs, table: Table) -> RequestedNodes:
    """Returns the nodes of the request, looked up in `table`."""
    names, nodes = args.names, table.nodes
    rows = nodes.rows_of(names)
    if rows is None:  # a name is unknown, or is there twice
        names = list(dict.fromkeys(names))
        rows = np.fromiter(map(nodes.row_of.get, names, repeat(-1)), np.intp, len(names))
    elif np.count_nonzero(nodes.present[rows]) == len(rows):
        return RequestedNodes(names, [Part(table, rows, np.arange(len(names)))], ())
    known = (rows >= 0) & nodes.present[rows]
    parts = [Part(table, rows[known], np.flatnonzero(known))]
    unknown = [(position, names[position]) for position in np.flatnonzero(~known).tolist()]
    if args.node_names is None:
        parts.append(_nodes_outside_cache(args, dict(unknown), table.features))
        unknown = []
    return RequestedNodes(names, parts, [name for _, name in unknown])


def _nodes_outside_cache(args: ExtenderArgs, unknown: dict[int, str], features: FeatureGates) -> Part:
    sent = {node.name: node for node in args.nodes or ()}
    table = Table(features)
    for name in unknown.values():
        table.set_node(sent[name].node)
    rows = np.array([table.nodes.row_of[name] for name in unknown.values()], np.intp)
    return Part(table, rows, np.array(list(unknown), np.intp))
