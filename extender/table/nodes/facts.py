"""Columns of facts about nodes that no other column holds: conditions, annotations; and what is known of images.

A fact is a function of a node. It is called once per node, and again when the node has changed; equal values share one
id, so that a rule runs once per distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from extender.model.node import Node
from extender.model.quantity import INT64_MAX
from extender.table.journal import NODES, Cursor, Journal

F = TypeVar("F", bound=Hashable)


class FactColumn(Generic[F]):
    """One fact. `ids`: intp[capacity], index into `values`; rows without a node hold what they held last."""

    def __init__(self, fact: Callable[[Node], F], journal: Journal) -> None:
        self.fact = fact
        self.ids = np.zeros(0, np.intp)
        self.values: list[F] = []
        self._id_of: dict[F, int] = {}
        self._changed_rows = Cursor(journal, NODES)

    def refresh(self, objects: Sequence[Node | None], capacity: int) -> None:
        """Calls the fact for the nodes that have changed."""
        self.ids = np.pad(self.ids, (0, capacity - len(self.ids)))
        changed = self._changed_rows.read()
        for row in range(len(objects)) if changed is None else changed:
            node = objects[row]
            if node is not None:
                self.ids[row] = self._intern(self.fact(node))

    def _intern(self, value: F) -> int:
        known = self._id_of.get(value)
        if known is None:
            known = self._id_of[value] = len(self.values)
            self.values.append(value)
        return known


class NodeFacts:
    """The columns of all facts that rules use, by function: a module's own, not one made on the way."""

    def __init__(self, objects: Sequence[Node | None], journal: Journal) -> None:
        self._objects, self._journal = objects, journal
        self._columns: dict[Callable[[Node], Hashable], FactColumn[Hashable]] = {}

    def column(self, fact: Callable[[Node], F], capacity: int) -> FactColumn[F]:
        """Returns the column of a fact, up to date."""
        column: FactColumn[F] | None = self._columns.get(fact)  # type: ignore[assignment]  # a key has its own type
        if column is None:
            column = FactColumn(fact, self._journal)
            self._columns[fact] = column  # type: ignore[assignment]  # as above
        column.refresh(self._objects, capacity)
        return column


class Image(NamedTuple):
    """An image and the rows that hold it. Its size is the one reported first (upstream ImageStateSummary)."""

    size_bytes: int
    rows: set[int]


def image_sizes(node: Node | None) -> Mapping[str, int]:
    """Returns the sizes of the images on the node, by each of their names; of a name that is there twice the first."""
    images = node.status.images if node else None
    return {name: min(image.size_bytes, INT64_MAX) for image in reversed(images or ()) for name in image.names or ()}
