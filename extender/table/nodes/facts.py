"""Stores other facts about nodes in columns, such as conditions and annotations, and the images on nodes.

A fact is a function of a node. It is called once for each node, and again when the node changes. Equal values share one
id, so that a rule runs once for each distinct value.
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
    """The result of one function of a node, for every node.

    Attributes:
        fact: the function.
        ids: intp[row]: the index of the node's result in `values`; meaningless if the row has no node.
    """

    def __init__(self, fact: Callable[[Node], F], journal: Journal) -> None:
        self.fact = fact
        self.ids = np.zeros(0, np.intp)
        self.values: list[F] = []
        self._id_of: dict[F, int] = {}
        self._changed_rows = Cursor(journal, NODES)

    def refresh(self, objects: Sequence[Node | None], capacity: int) -> None:
        """Calls the function again for the nodes that have changed since the last call."""
        self.ids = np.pad(self.ids, (0, capacity - len(self.ids)))
        changed = self._changed_rows.read()
        for row in range(len(objects)) if changed is None else changed:
            node = objects[row]
            if node is not None:
                self.ids[row] = self._intern(self.fact(node))

    def _intern(self, value: F) -> int:
        number = self._id_of.get(value)
        if number is None:
            number = self._id_of[value] = len(self.values)
            self.values.append(value)
        return number


class NodeFacts:
    """Stores one FactColumn for each function that a rule has asked for.

    The function takes a node, and must be at module level. If a caller passed a new lambda each time, each lambda would
    get its own column.
    """

    def __init__(self, objects: Sequence[Node | None], journal: Journal) -> None:
        self._objects = objects
        self._journal = journal
        self._columns: dict[Callable[[Node], Hashable], FactColumn[Hashable]] = {}

    def column(self, fact: Callable[[Node], F], capacity: int) -> FactColumn[F]:
        """Returns the column of the function `fact`, brought up to date and enlarged to `capacity` rows."""
        column: FactColumn[F] | None = self._columns.get(fact)  # type: ignore[assignment]  # the type of the values differs by key
        if column is None:
            column = FactColumn(fact, self._journal)
            self._columns[fact] = column  # type: ignore[assignment]
        column.refresh(self._objects, capacity)
        return column


class Image(NamedTuple):
    """A container image: its size as first reported, and the rows of the nodes that have it.

    Source: upstream ImageStateSummary.
    """

    size_bytes: int
    rows: set[int]


def image_sizes(node: Node | None) -> Mapping[str, int]:
    """Returns the sizes of the images on the node, by image name; the first size if a name occurs twice."""
    images = node.status.images if node else None
    return {name: min(image.size_bytes, INT64_MAX) for image in reversed(images or ()) for name in image.names or ()}
