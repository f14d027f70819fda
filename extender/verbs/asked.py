"""The nodes that a filter or prioritize request asks about, as rows of tables.

Nodes that the cache knows are judged as the cache knows them. Whole nodes that it does not know, such as the templates
an autoscaler tries, are judged by the request alone, in a table of their own that is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from extender.table import Table
from extender.table.labels import Rows
from extender.wire import ExtenderArgs


@dataclass(frozen=True, slots=True)
class Asked:
    """`rows` of `table`, and the rows of nodes that only the request knows; `unknown` names nobody knows.

    Names that were asked about twice count once.
    """

    table: Table
    rows: Rows
    strangers: Table
    unknown: list[str]

    def parts(self) -> Iterator[tuple[Table, Rows]]:
        """The tables with rows to decide on."""
        if len(self.rows):
            yield self.table, self.rows
        if len(self.strangers.nodes.rows):
            yield self.strangers, self.strangers.nodes.rows


def asked(args: ExtenderArgs, table: Table) -> Asked:
    """The nodes of the request, looked up in `table`."""
    nodes = table.nodes
    names = dict.fromkeys(args.names)
    at = np.fromiter((nodes.row_of.get(name, -1) for name in names), np.intp, len(names))
    known = (at >= 0) & nodes.present[at]
    missing = [name for name, found in zip(names, known, strict=True) if not found] if not known.all() else []
    strangers = Table()
    if missing and args.node_names is None:
        for name in missing:
            strangers.set_node(next(node.node for node in args.nodes or () if node.name == name))
        missing = []
    return Asked(table, at[known], strangers, missing)
