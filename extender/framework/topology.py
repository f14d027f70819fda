"""Topology domains: the nodes that have one value of a label in common, whatever the label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from extender.table import HypotheticalRemovals
from extender.table.labels import ABSENT, BoolColumn, IntColumn, LabelColumn, Rows

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def summed_by_domain(column: LabelColumn, by_node: IntColumn, domain: Rows | None = None) -> IntColumn:
    """Returns the sum of `by_node` over the nodes of each domain: int64[len(column)].

    The nodes without the label are no domain: theirs stays 0. `domain`: intp[row], the column's own ids unless
    some nodes are to be left out.
    """
    ids = column.ids if domain is None else domain
    counted = np.flatnonzero(by_node != 0)  # few, as a rule
    sums = np.zeros(len(column), np.int64)
    np.add.at(sums, ids[counted], by_node[counted])
    sums[ABSENT] = 0
    return sums


def domains_in(column: LabelColumn, domain: Rows) -> BoolColumn:
    """Returns bool[len(column)]: the id, that of absence among them, occurs in `domain`."""
    occurring = np.zeros(len(column), np.bool_)
    occurring[domain] = True
    return occurring


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """The number of pods of some sort in each domain.

    `domain`: intp[row], the domain of each node. `pods`: int64[domain]. `leaving` tells how many of `gone` are counted
    here: int64[row].
    """

    domain: Rows
    pods: IntColumn
    leaving: Callable[[HypotheticalRemovals], IntColumn]

    def around(self, rows: Rows) -> IntColumn:
        """Returns the number in the domain of each of `rows`; 0 where the node is in no domain."""
        pods: IntColumn = self.pods[self.domain[rows]]
        return pods

    def left(self, rows: Rows, gone: HypotheticalRemovals) -> IntColumn:
        """Returns the number that leave each of `rows`; 0 where the node is in no domain."""
        left: IntColumn = np.where(self.domain[rows] == ABSENT, 0, self.leaving(gone)[rows])
        return left
