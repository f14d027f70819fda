"""Groups nodes with equal resource amounts, so that a rule about resources runs once for each group.

Nodes of one kind fill up in the same steps, so there are usually far fewer groups than nodes. If all nodes differ, this
costs one more look-up for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.table.journal import MOST_FOLLOWED, RESOURCES, Cursor, Journal
from extender.table.labels import RowIndex, Rows
from extender.table.node_columns import NodeColumns

_MAX_UNUSED = 256  # how many ids are kept unused; other nodes may soon have the same amounts
_NO_ID = -1  # the id of rows that have never had a node or a pod
S = TypeVar("S", bound=np.generic)


class ResourceColumns(Protocol):
    """The amounts of each resource that nodes have and that pods request there: int64[resource, column].

    A column is one node (`NodeColumns`), or all nodes with the same amounts (`DistinctResources`).
    """

    @property
    def allocatable(self) -> NDArray[np.int64]: ...
    @property
    def requested(self) -> NDArray[np.int64]: ...


RuleOfResources = Callable[[ResourceColumns, RowIndex], NDArray[S]]
"""A rule that reads only resource amounts; it returns a value for each of the given columns: [column]."""


class DistinctResources:
    """The distinct combinations of allocatable and requested amounts that nodes have, each with an id.

    Attributes:
        allocatable, requested: int64[resource, id]: the amounts of each combination, with spare columns at the end.
        id_of: intp[row]: the id of the node's combination.
    """

    allocatable: NDArray[np.int64]
    requested: NDArray[np.int64]
    id_of: Rows

    def __init__(self, nodes: NodeColumns, journal: Journal) -> None:
        self._nodes = nodes
        self._changed_rows = Cursor(journal, RESOURCES)

    def __len__(self) -> int:
        """Returns the number of ids, including ids that no row has at present."""
        return len(self._fingerprints)

    def values(self, rule: RuleOfResources[S], rows: Rows) -> NDArray[S]:
        """Returns what `rule` computes for each of `rows`. If there are many rows, the rule runs once for each id."""
        if 2 * len(rows) < len(self._nodes.names):
            return rule(self._nodes, rows)
        self.follow()
        return rule(self, slice(len(self))).take(self.id_of.take(rows))

    def follow(self) -> None:
        """Updates the ids of the nodes whose amounts have changed since the last call."""
        nodes, rows = self._nodes, self._changed_rows.read()
        many = max(MOST_FOLLOWED, len(nodes.names) // 4)
        if rows is None or len(rows) > many or nodes.requested.shape != self._shape:
            self._begin()
            return
        for row in rows:
            self._put(row, nodes.allocatable[:, row].tobytes() + nodes.requested[:, row].tobytes())

    def _begin(self) -> None:
        nodes, count = self._nodes, len(self._nodes.names)
        self._shape = nodes.requested.shape
        amounts = np.concatenate((nodes.allocatable, nodes.requested))[:, :count]
        order = np.lexsort(amounts)
        amounts = amounts[:, order]
        new = np.ones(count, np.bool_)
        new[1:] = np.logical_or.reduce(amounts[:, 1:] != amounts[:, :-1])
        self.id_of = np.full(nodes.capacity, _NO_ID, np.intp)
        self.id_of[order] = np.cumsum(new) - 1
        distinct = amounts[:, new]
        allocatable, requested = np.split(distinct, 2)
        self.allocatable = allocatable
        self.requested = requested
        self._uses = np.bincount(self.id_of[:count], minlength=distinct.shape[1]).tolist()
        self._unused: dict[int, None] = {}  # unused ids, in the order in which they became unused
        data, width = np.ascontiguousarray(distinct.T).tobytes(), 8 * len(distinct)
        self._fingerprints = [data[start : start + width] for start in range(0, len(data), width)]
        self._ids: dict[bytes, int] = {fingerprint: number for number, fingerprint in enumerate(self._fingerprints)}

    def _put(self, row: int, fingerprint: bytes) -> None:
        new, old = self._ids.get(fingerprint), int(self.id_of[row])
        if new == old:
            return
        if new is None:
            new = self._new_id(fingerprint)
            self.allocatable[:, new] = self._nodes.allocatable[:, row]
            self.requested[:, new] = self._nodes.requested[:, row]
        self._unused.pop(new, None)
        self._uses[new] += 1
        self.id_of[row] = new
        if old != _NO_ID:
            self._uses[old] -= 1
            if not self._uses[old]:
                self._unused[old] = None

    def _new_id(self, fingerprint: bytes) -> int:
        if len(self._unused) >= _MAX_UNUSED:
            new = next(iter(self._unused))
            del self._ids[self._fingerprints[new]]
            self._fingerprints[new] = fingerprint
        else:
            new = len(self)
            self._fingerprints.append(fingerprint)
            self._uses.append(0)
            if new == self.requested.shape[1]:
                more = ((0, 0), (0, max(new, 1)))
                self.allocatable = np.pad(self.allocatable, more)
                self.requested = np.pad(self.requested, more)
        self._ids[fingerprint] = new
        return new
