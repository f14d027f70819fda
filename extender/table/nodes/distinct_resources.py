"""The distinct amounts of resources on nodes: a rule that looks at nothing else runs once for each of them.

Nodes of one kind fill up in the same steps, so there are, as a rule, far fewer of them than nodes. Where no two nodes
are alike, it costs one more look-up a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.table.journal import MOST_FOLLOWED, RESOURCES, Cursor, Journal
from extender.table.labels import RowIndex, Rows
from extender.table.nodes.columns import NodeColumns

_MOST_UNUSED = 256  # nodes come by the same amounts again
_NO_ID = -1  # of a row that has had no node and no pod yet
S = TypeVar("S", bound=np.generic)


class ResourceColumns(Protocol):
    """Amounts of resources: int64[resource, column] each, as in `NodeColumns`."""

    @property
    def allocatable(self) -> NDArray[np.int64]: ...
    @property
    def requested(self) -> NDArray[np.int64]: ...


RuleOfResources = Callable[[ResourceColumns, RowIndex], NDArray[S]]
"""Gives a value for each of these columns, [column]."""


class DistinctResources:
    """The distinct amounts of the nodes that a journal tells of.

    Attributes:
        allocatable, requested: int64[resource, id]; there are more columns than ids.
        id_of: intp[row]: the id of what stands on the row.
        changes: by id: it stands for other amounts than before (topic RESOURCES).
    """

    allocatable: NDArray[np.int64]
    requested: NDArray[np.int64]
    id_of: Rows

    def __init__(self, nodes: NodeColumns, journal: Journal) -> None:
        self._nodes, self._changed_rows = nodes, Cursor(journal, RESOURCES)
        self.changes = Journal()

    def __len__(self) -> int:
        """Returns the number of ids, which are those below it; some are in no row any more."""
        return len(self._fingerprints)

    def values(self, rule: RuleOfResources[S], rows: Rows) -> NDArray[S]:
        """Returns the rule's value for each of the rows: [row]."""
        if 2 * len(rows) < len(self._nodes.names):
            return rule(self._nodes, rows)
        self.follow()
        found: NDArray[S] = rule(self, slice(len(self)))[self.id_of[rows]]
        return found

    def follow(self) -> None:
        """Takes in what has changed on the nodes."""
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
        self.allocatable, self.requested = np.split(distinct, 2)
        self._uses = np.bincount(self.id_of[:count], minlength=distinct.shape[1]).tolist()
        self._unused: dict[int, None] = {}  # the longest unused first
        data, width = np.ascontiguousarray(distinct.T).tobytes(), 8 * len(distinct)
        self._fingerprints = [data[at : at + width] for at in range(0, len(data), width)]
        self._ids: dict[bytes, int] = {each: number for number, each in enumerate(self._fingerprints)}
        self.changes.begin(RESOURCES)

    def _put(self, row: int, fingerprint: bytes) -> None:
        new, old = self._ids.get(fingerprint), int(self.id_of[row])
        if new == old:
            return
        if new is None:
            new = self._new_id(fingerprint)
            self.allocatable[:, new] = self._nodes.allocatable[:, row]
            self.requested[:, new] = self._nodes.requested[:, row]
            self.changes.note(RESOURCES, new)
        self._unused.pop(new, None)
        self._uses[new] += 1
        self.id_of[row] = new
        if old != _NO_ID:
            self._uses[old] -= 1
            if not self._uses[old]:
                self._unused[old] = None

    def _new_id(self, fingerprint: bytes) -> int:
        if len(self._unused) >= _MOST_UNUSED:
            new = next(iter(self._unused))
            del self._ids[self._fingerprints[new]]
            self._fingerprints[new] = fingerprint
        else:
            new = len(self)
            self._fingerprints.append(fingerprint)
            self._uses.append(0)
            if new == self.requested.shape[1]:
                more = ((0, 0), (0, max(new, 1)))
                self.allocatable, self.requested = np.pad(self.allocatable, more), np.pad(self.requested, more)
        self._ids[fingerprint] = new
        return new
