"""Stores the nodes in columns: resources, taints, labels, images and facts, one row for each node.

A row exists while the node or a pod on it is known, because pods may arrive before their node, or outlive it.

A fact is a function of a node, for example of its annotations. It is called once for each node, and again when the node
changes. Equal values share one id, so that a rule runs once for each distinct value.

A resource that no node offers gets no row in the matrices, even if pods request it. Anyone who may create pods can
invent thousands of resource names, and each row takes memory for every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.node import Node, Taint
from extender.model.quantity import INT64_MAX, amounts
from extender.model.requests import is_counted
from extender.table.filing import Numbers
from extender.table.journal import NODES, RESOURCES, TOPOLOGY, Cursor, Journal
from extender.table.labels import LabelColumns, RowIndex, Rows, mask_of
from extender.table.podinfo import Footprint

# The first rows of each matrix. In the last two, a container without a request counts with a default amount.
CPU, MEMORY, EPHEMERAL_STORAGE, PODS, NONZERO_CPU, NONZERO_MEMORY = range(6)
BUILT_IN = ("cpu", "memory", "ephemeral-storage", "pods", "nonzero-cpu", "nonzero-memory")
DERIVED = frozenset((PODS, NONZERO_CPU, NONZERO_MEMORY))
"""The rows that the scheduler computes. A pod cannot request these resources by name."""
_FIRST_CAPACITY = 16
_FREE_ROW_HASH = 1
F = TypeVar("F", bound=Hashable)
S = TypeVar("S", bound=np.generic)


class OfferedResources:
    """The built-in resources, and those that at least one node offers.

    Attributes:
        index_of: resource -> its row in the matrices.
        free: rows that are not in use, which the next new resources get.
        size: the number of rows, in use or free.
        changes: the number of times that a resource got or lost a row.
    """

    def __init__(self) -> None:
        self.index_of = {name: index for index, name in enumerate(BUILT_IN)}
        self.free: list[int] = []
        self.size = len(BUILT_IN)
        self.changes = 0
        self._offering_nodes = Counter(BUILT_IN)  # built-in resources begin at 1, so they are never removed

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Updates the rows for a node whose offered resources change from `before` to `after`."""
        for name in after:
            self._offering_nodes[name] += 1
            if name not in self.index_of:
                self.index_of[name] = self._new_index()
                self.changes += 1
        for name in before:
            self._offering_nodes[name] -= 1
            if not self._offering_nodes[name]:
                del self._offering_nodes[name]
                self.free.append(self.index_of.pop(name))
                self.changes += 1

    def _new_index(self) -> int:
        if self.free:
            return self.free.pop()
        self.size += 1
        return self.size - 1


class FactColumn(Generic[F]):
    """The result of one function of a node, for every node.

    Attributes:
        fact: the function.
        ids: intp[row]: the index of the node's result in `values`; meaningless if the row has no node.
    """

    def __init__(self, fact: Callable[[Node], F], journal: Journal) -> None:
        self.fact = fact
        self.ids = np.zeros(0, np.intp)
        self._numbers: Numbers[F] = Numbers()
        self.values = self._numbers.values
        self._changed_rows = Cursor(journal, NODES)

    def refresh(self, objects: Sequence[Node | None], capacity: int) -> None:
        """Calls the function again for the nodes that have changed since the last call."""
        self.ids = np.pad(self.ids, (0, capacity - len(self.ids)))
        changed = self._changed_rows.read()
        for row in range(len(objects)) if changed is None else changed:
            node = objects[row]
            if node is not None:
                self.ids[row] = self._numbers.of(self.fact(node))


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


class NameIndex:
    """Finds the rows of many node names at once, by the hashes of the names.

    It is faster than a dict. A dict waits for memory at each name, because its entries are far apart and rarely in the
    processor's caches. The look-ups in arrays here do not wait for each other. The hashes are Python's (SipHash, 64
    bits, with a new key in every process).

    Args:
        row_of: the rows by name. Create a new index when they change.
        capacity: greater than every row number.
    """

    def __init__(self, row_of: Mapping[str, int], capacity: int) -> None:
        self._row_of = row_of
        self._capacity = capacity
        hashes = _hashes(row_of)
        rows = np.fromiter(row_of.values(), np.int32, len(row_of))
        self._mask = (1 << (8 * len(rows)).bit_length()) - 1
        # Hash slot -> the row of the last name with this slot.
        self._slots = np.zeros(self._mask + 1, np.int32)
        self._slots[hashes & self._mask] = rows
        self._hash_of = np.full(capacity, _FREE_ROW_HASH, np.int64)
        self._hash_of[rows] = hashes
        self._last_names: list[str] | None = None
        self._last_rows: Rows | None = None

    def rows_of(self, names: list[str]) -> Rows | None:
        """Returns the rows of these names; None if a name has no row or is given twice.

        The last list of names is cached, because Prioritize usually has the list that Filter returned. A list with more
        names than rows is not cached, because it could occupy memory for hours.
        """
        if len(names) > self._capacity:
            return None
        if names is not self._last_names:
            self._last_rows = self._find(names)
            self._last_names = names
        return self._last_rows

    def _find(self, names: list[str]) -> Rows | None:
        hashes = _hashes(names)
        rows = self._slots[hashes & self._mask].astype(np.intp)
        # If the hashes differ, the name has no row, or another name has the same hash slot.
        for position in np.flatnonzero(self._hash_of[rows] != hashes).tolist():
            row = self._row_of.get(names[position])
            if row is None:
                return None
            rows[position] = row
        return rows if np.count_nonzero(mask_of(self._capacity, rows)) == len(rows) else None


class NodeColumns:
    """The columns of all nodes. Arrays are [resource, row] or [row], with spare rows at the end.

    Attributes:
        allocatable: int64[resource, row]: cpu in millicores, memory and storage in bytes, other resources in units.
        requested: int64[resource, row]: the sum of the requests of the pods on the node, in the same units.
        offer_changes: the number of times that a node has changed what it offers, or that there was another row.
        largest_amount: the largest amount of any resource that a node has had in `allocatable`.
        offered: the resources that have a row in `allocatable` and `requested`.
        resources: the index of each offered resource in these two matrices.
        taint_set: intp[row]: index into `taint_sets`.
        unschedulable: bool[row]: True if the node is cordoned.
        cordoned: the number of cordoned nodes.
        present: bool[row]: True if the node itself is known; False if only pods on it are known.
    """

    def __init__(self, journal: Journal) -> None:
        self.row_of: dict[str, int] = {}
        self.names: list[str] = []
        self.objects: list[Node | None] = []
        self.offered = OfferedResources()
        self.resources = self.offered.index_of
        self.allocatable: NDArray[np.int64] = np.zeros((len(BUILT_IN), _FIRST_CAPACITY), np.int64)
        self.requested: NDArray[np.int64] = np.zeros((len(BUILT_IN), _FIRST_CAPACITY), np.int64)
        self.offer_changes = 0
        self.largest_amount = 0
        self.taint_set = np.zeros(_FIRST_CAPACITY, np.intp)
        self._taints: Numbers[tuple[Taint, ...]] = Numbers([()])
        self.taint_sets = self._taints.values
        self.unschedulable = np.zeros(_FIRST_CAPACITY, np.bool_)
        self.cordoned = 0
        self.present = np.zeros(_FIRST_CAPACITY, np.bool_)
        self.labels = LabelColumns(_FIRST_CAPACITY)
        self.images: dict[str, Image] = {}
        self._free: list[int] = []
        self._rows: Rows | None = None
        self._index: NameIndex | None = None
        self._journal = journal
        self._facts: dict[Callable[[Node], Hashable], FactColumn[Hashable]] = {}

    @property
    def capacity(self) -> int:
        """Returns the number of rows, used or not, that every array has."""
        return len(self.present)

    @property
    def rows(self) -> Rows:
        """Returns the rows of all known nodes, ascending."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.present)
        return self._rows

    def node(self, row: int) -> Node:
        node = self.objects[row]
        assert node is not None
        return node

    def has(self, name: str) -> bool:
        """Returns True if the node itself is known; False if it is unknown, or only pods on it are known."""
        row = self.row_of.get(name)
        return row is not None and bool(self.present[row])

    def names_of(self, rows: Rows) -> list[str]:
        return list(map(self.names.__getitem__, rows.tolist()))

    def rows_of(self, names: list[str]) -> Rows | None:
        """Returns the rows of these names; None if a name has no row or is given twice."""
        if self._index is None:
            self._index = NameIndex(self.row_of, self.capacity)
        return self._index.rows_of(names)

    def index_of(self, rows: Rows) -> RowIndex:
        """Returns the index with which rules read columns: if `rows` are many, all rows, because a slice is no copy."""
        return rows if 2 * len(rows) < len(self.names) else slice(len(self.names))

    def facts(self, fact: Callable[[Node], F]) -> FactColumn[F]:
        """Returns the column with the result of `fact` for each node, brought up to date.

        `fact` must be a function at module level. If a caller passed a new lambda each time, each lambda would get its
        own column.
        """
        column: FactColumn[F] | None = self._facts.get(fact)  # type: ignore[assignment]  # the type of the values differs by key
        if column is None:
            column = FactColumn(fact, self._journal)
            self._facts[fact] = column  # type: ignore[assignment]
        column.refresh(self.objects, self.capacity)
        return column

    def assign_row(self, name: str) -> int:
        """Returns the row of the node with this name. A new name gets a free row."""
        row = self.row_of.get(name)
        if row is None:
            row = self._free.pop() if self._free else self._append()
            self.row_of[name] = row
            self.names[row] = name
            self._index = None
        return row

    def release(self, name: str) -> None:
        """Frees the row of `name` if neither the node nor a pod on it is known."""
        row = self.row_of[name]
        if not self.present[row] and not self.requested[PODS, row]:
            del self.row_of[name]
            self.names[row] = ""
            self._index = None
            self._free.append(row)
            # The removal is recorded again, because the row was still in use when `erase` recorded it.
            self._journal.note_removed(TOPOLOGY, name)

    def write(self, node: Node) -> int:
        """Adds or replaces the node; returns its row."""
        row = self.assign_row(node.name)
        old = self.objects[row]
        self.objects[row] = node
        self._journal.note(NODES, row)
        if old is None:
            self.present[row] = True
            self._rows = None
        if old is None or old.labels != node.labels:
            self._journal.note(TOPOLOGY, node.name)
        if old is None or old.allocatable != node.allocatable:
            self._write_allocatable(row, old, node)
        if old is None or old.taints != node.taints:
            self.taint_set[row] = self._taints.of(tuple(node.taints))
        self._set_unschedulable(row, bool(node.spec.unschedulable))
        self.labels.write(row, old.labels if old else {}, node.labels)
        if old is None or old.status.images != node.status.images:
            self._write_images(row, old, node)
        return row

    def erase(self, name: str) -> None:
        """Removes the node; its row remains while there are pods on it."""
        row = self.row_of.get(name)
        if row is None or not self.present[row]:
            return
        old = self.node(row)
        self.objects[row] = None
        self.present[row] = False
        self._rows = None
        self._write_allocatable(row, old, None)
        self.taint_set[row] = 0
        self._set_unschedulable(row, False)
        self.labels.write(row, old.labels, {})
        self._write_images(row, old, None)
        self._journal.note_removed(TOPOLOGY, name)
        self.release(name)

    def request(self, row: int, vector: NDArray[np.int64]) -> None:
        """Adds a pod's request to the node on this row.

        `vector`: int64[resource]; negative if the pod leaves.
        """
        self.requested[:, row] += vector
        self._journal.note(RESOURCES, row)

    def vector(self, footprint: Footprint) -> NDArray[np.int64]:
        """Returns the amount of each resource that a pod takes on its node: int64[resource].

        Resources that no node offers are left out.
        """
        vector = np.zeros(len(self.requested), np.int64)
        for name, amount in footprint.requests:
            index = self.resources.get(name)
            if index is not None and index not in DERIVED:
                vector[index] = amount
        vector[PODS] = 1
        vector[NONZERO_CPU] = footprint.nonzero_cpu_milli
        vector[NONZERO_MEMORY] = footprint.nonzero_memory_bytes
        return vector

    def offers_all(self, footprint: Footprint) -> bool:
        """Returns True if at least one node offers each resource that the pod takes, so that `vector` is complete."""
        return not any(name not in self.resources and is_counted(name) for name, _ in footprint.requests)

    def _write_allocatable(self, row: int, old: Node | None, new: Node | None) -> None:
        offered = _offered_amounts(new)
        self.offered.replace(_offered_amounts(old), offered)
        self._fit_resources()
        self.offer_changes += 1
        indices = [self.resources[name] for name in offered]
        self._journal.note(RESOURCES, row)
        self.allocatable[:, row] = 0
        self.allocatable[indices, row] = list(offered.values())
        self.largest_amount = max(self.largest_amount, *offered.values(), 0)
        self.allocatable[NONZERO_CPU, row] = offered.get("cpu", 0)
        self.allocatable[NONZERO_MEMORY, row] = offered.get("memory", 0)

    def _fit_resources(self) -> None:
        missing = self.offered.size - len(self.requested)
        if missing > 0:
            more = ((0, max(missing, len(self.requested) // 4)), (0, 0))
            self.allocatable = np.pad(self.allocatable, more)
            self.requested = np.pad(self.requested, more)

    def _write_images(self, row: int, old: Node | None, new: Node | None) -> None:
        before, after = image_sizes(old), image_sizes(new)
        for name in before.keys() - after.keys():
            self.images[name].rows.discard(row)
            if not self.images[name].rows:
                del self.images[name]
        for name, size in after.items():
            self.images.setdefault(name, Image(size, set())).rows.add(row)

    def _set_unschedulable(self, row: int, unschedulable: bool) -> None:
        self.cordoned += unschedulable - int(self.unschedulable[row])
        self.unschedulable[row] = unschedulable

    def _append(self) -> int:
        row = len(self.names)
        self.offer_changes += 1
        self.names.append("")
        self.objects.append(None)
        if row == self.capacity:
            self._grow(2 * row)
        return row

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, more)))
        self.requested = np.pad(self.requested, ((0, 0), (0, more)))
        self.taint_set = np.pad(self.taint_set, (0, more))
        self.unschedulable = np.pad(self.unschedulable, (0, more))
        self.present = np.pad(self.present, (0, more))
        self.labels.grow(capacity)


def _offered_amounts(node: Node | None) -> dict[str, int]:
    """Returns the amount that the node offers of each resource that the scheduler counts."""
    if node is None:
        return {}
    return {name: n for name, n in amounts(node.allocatable).items() if name == "pods" or is_counted(name)}


def _hashes(names: Collection[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, names), np.int64, len(names))
