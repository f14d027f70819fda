"""Defines `Table`, which stores the cluster in columns that every rule reads, and `Trial`, which undoes changes.

A Table has no lock and no clock; one thread at a time uses it. The cache lends a table to each reader. Before lending a
table, the cache applies the changes since the last time, so the cost depends on the changes and not on the size of the
cluster. Each kind of data has its own module: nodes, labels, pods, matches (selectors over pods), terms, ports,
objects, volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume
from extender.model.workloads import PodDisruptionBudget, Service
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.table.journal import Cursor, Journal
from extender.table.labels import Rows
from extender.table.matches import MatchCount, Matches, PodCountQuery
from extender.table.node_columns import NodeColumns
from extender.table.node_info import NodeInfo, NodeInfos
from extender.table.nominated import NominatedPods
from extender.table.object_index import Budgets, Namespaces, Objects, Services
from extender.table.pod_columns import PodColumns, PortColumns
from extender.table.podinfo import PodInfo
from extender.table.terms import Terms
from extender.table.volume_usage import Storage

R = TypeVar("R")


class Table:
    """The nodes, the pods on them, the nominated pods, and the other objects that rules read.

    Attributes:
        journal: records every change of the table.
        nominated: the nominated pods, by node name and UID.
        hypothetical: UID -> (pod, row) for the pods that are placed only within `hypothetically`.
        deadline: the deadline of the current decision; rules that may take long check it.
    """

    def __init__(self, features: FeatureGates = DEFAULT_FEATURES) -> None:
        self.features = features
        self.journal = Journal()
        self.nodes = NodeColumns(self.journal)
        self.matches = Matches(self.nodes.capacity)
        self.pods = PodColumns(self.nodes, self.matches)
        self.terms = Terms(self.nodes.capacity, self.nodes.labels)
        self.ports = PortColumns()
        self.objects = Objects(self.journal)
        self.storage = Storage(self.nodes, self.pods, self.objects, self.journal)
        self.namespaces = Namespaces(self.objects, self.journal)
        self.services = Services()
        self._readers: dict[Callable[[Table], Any], Any] = {}
        self._derived: dict[Callable[[Table], Any], tuple[Cursor, Any]] = {}
        self.nominated = NominatedPods(self.nodes, self.journal)
        self.hypothetical: dict[str, tuple[PodInfo, int]] = {}
        self.deadline = NO_DEADLINE
        self._resource_changes = 0

    # ---- nodes

    def set_node(self, node: Node) -> None:
        """Adds or replaces the node."""
        self.nodes.write(node)
        self._fit_capacity()
        self._recount_requests()
        self.terms.follow_labels()

    def remove_node(self, name: str) -> None:
        """Removes the node. Its pods still count, because the node may come back. An unknown name is ignored."""
        self.nodes.erase(name)
        self._recount_requests()
        self.terms.follow_labels()

    # ---- pods

    def place(self, info: PodInfo, node_name: str) -> None:
        """Places the pod on the node, replacing any earlier placement or version of it."""
        slot = self.pods.slot_of.get(info.uid)
        if slot is not None:
            # Usually the watch only confirms an assumed pod, and nothing changes.
            if self._is_placed_the_same(slot, info, node_name):
                self._replace(slot, info)
                return
            self.take_away(info.uid)
        row = self.nodes.assign_row(node_name)
        self._fit_capacity()
        self.ports.add(info.host_ports, row)
        group = self.matches.add(info.group, row, info.pod.terminating)
        terms = self.terms.add(info, row)
        slot = self.pods.add(info, row, group, terms)
        self._request(row, self.pods.requested[:, slot])
        self.storage.add(info, slot)

    def take_away(self, uid: str) -> None:
        """Removes the pod from its node; an unknown UID is ignored."""
        slot = self.pods.slot_of.get(uid)
        if slot is None:
            return
        info, row = self.pods.remove(uid)
        self.storage.remove(info, slot)
        self._request(row, -self.pods.requested[:, slot])
        self.ports.remove(info.host_ports, row)
        self.matches.remove(info.group, row, info.pod.terminating)
        self.terms.remove(int(self.pods.terms[slot]), row)
        self.nodes.release(self.nodes.names[row])

    @property
    def capped_rows(self) -> Set[int]:
        """The rows whose sums of requests may be capped at 2^63 - 1, so that nothing can be subtracted from them."""
        return self.pods.huge_rows if self.features.behaviours.request_sums_are_capped else frozenset()

    # ---- nominated pods

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod to run on the node (upstream nominator)."""
        self.nominated.nominate(info, node_name)

    def withdraw(self, uid: str) -> None:
        """Removes the pod's nomination, if it has one."""
        self.nominated.withdraw(uid)

    # ---- other objects

    def set_object(self, kind: str, obj: Object) -> None:
        """Adds or replaces an object that is neither a node nor a pod."""
        self.objects.set(kind, obj)
        if isinstance(obj, Service):
            self.services.set(obj)
        elif isinstance(obj, PersistentVolume):
            self.storage.unbound.set(obj)

    def remove_object(self, kind: str, key: str) -> None:
        """Removes an object that is neither a node nor a pod; an unknown key is ignored."""
        self.objects.remove(kind, key)
        if kind == Service.__name__:
            self.services.remove(key)
        elif kind == PersistentVolume.__name__:
            self.storage.unbound.remove(key)

    # ---- reading

    def matching(self, query: PodCountQuery) -> MatchCount:
        """Returns the number of pods on each node that match the query. The table keeps the counts up to date.

        Raises:
            DeadlineExceeded: the deadline has passed. It is checked here because a pod may need thousands of counts.
        """
        self.deadline.check("counting pods")
        return self.matches.count(query)

    def reader(self, make: Callable[[Table], R]) -> R:
        """Returns the result of `make(table)`, an object that is derived from this table, such as an index of it.

        The first call with a `make` stores the object with the table, and later calls return the stored object. So
        `make` must be a module-level class or function. The object must read the journal before each use, because the
        table may have changed since the last use.
        """
        reader: R | None = self._readers.get(make)
        if reader is None:
            reader = self._readers[make] = make(self)
        return reader

    def derived(self, make: Callable[[Table], R], *topics: str) -> R:
        """Returns the result of `make(table)`, which is made again after a change under one of the journal's topics.

        As for `reader`, `make` must be a module-level class or function.
        """
        value: Any
        cursor, value = self._derived.pop(make, (None, None))
        if cursor is None:
            cursor = Cursor(self.journal, *topics)
        current: R = make(self) if cursor.advance() else value
        self._derived[make] = cursor, current
        return current

    @property
    def budgets(self) -> Budgets:
        """The PodDisruptionBudgets, indexed again after any of them has changed."""
        return self.derived(_budgets, PodDisruptionBudget.__name__)

    def infos(self, rows: Rows) -> list[NodeInfo]:
        """Returns the node on each row with its pods and totals."""
        return self.reader(_node_infos).at(rows)

    def drop_readers(self) -> None:
        """Drops the objects that `reader` and `derived` have created. Call it when the table is no longer needed.

        These objects refer back to the table. So table and objects would stay in memory until a full garbage
        collection, which is rare.
        """
        self._readers.clear()
        self._derived.clear()

    @contextmanager
    def until(self, deadline: Deadline) -> Iterator[None]:
        """Sets the table's deadline within a `with` block, for the rules that are called there."""
        before = self.deadline
        self.deadline = deadline
        try:
            yield
        finally:
            self.deadline = before

    @contextmanager
    def hypothetically(self, placed: Iterable[tuple[PodInfo, str]] = (), removed: Iterable[str] = ()) -> Iterator[None]:
        """Places the `placed` pods and removes the `removed` UIDs within the `with` block, then undoes both.

        Nominations stay, and pods that have a place keep it. See `hypothetical`.
        """
        trial = Trial(self)
        try:
            for uid in removed:
                trial.remove(uid)
            for info, node_name in placed:
                trial.imagine(info, node_name)
            yield
        finally:
            trial.revert()

    def _replace(self, slot: int, info: PodInfo) -> None:
        before = self.pods.info(slot)
        # The labels may change with the bind, because the API server adds labels of the node (PodTopologyLabels).
        if before.group != info.group:
            row = int(self.pods.row[slot])
            self.pods.group[slot] = self.matches.add(info.group, row, info.pod.terminating)
            self.matches.remove(before.group, row, info.pod.terminating)
        self.pods.write(slot, info)

    def _is_placed_the_same(self, slot: int, info: PodInfo, node_name: str) -> bool:
        return self.nodes.names[self.pods.row[slot]] == node_name and self.pods.info(slot).counts_the_same_as(info)

    def _recount_requests(self) -> None:
        """Recomputes the requests of pods after nodes began or stopped offering a resource."""
        if self._resource_changes != self.nodes.offered.changes:
            self._resource_changes = self.nodes.offered.changes
            for row, change in self.pods.recount():
                self._request(row, change)
            self.nominated.recount()

    def _request(self, row: int, change: NDArray[np.int64]) -> None:
        self.nodes.request(row, change)
        if row in self.pods.huge_rows and self.features.behaviours.request_sums_are_capped:
            self.nodes.requested[:, row] = self.pods.capped_sum(self.pods.on(row))

    def _fit_capacity(self) -> None:
        self.matches.grow(self.nodes.capacity)
        self.terms.grow(self.nodes.capacity)


class Trial:
    """A stack of changes to a table, which can be reverted.

    A pod placed with `place` counts exactly like a real pod. Each change is registered before it is made, so `revert`
    also restores the table after a change that raised an exception. While a trial has changes, nothing else may change
    the table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._undo: list[Callable[[], None]] = []

    def mark(self) -> int:
        """Returns the position to which `revert` can go back."""
        return len(self._undo)

    def revert(self, mark: int = 0) -> None:
        """Undoes the changes made after the mark, by default all. If undoing one fails, the others are still undone."""
        try:
            while len(self._undo) > mark:
                self._undo.pop()()
        except BaseException:
            self.revert(mark)
            raise

    def place(self, info: PodInfo, node_name: str) -> None:
        """Places the pod on the node, and ends its nomination. A pod that is on another node is moved."""
        self.take_away(info.uid)
        self._undo.append(lambda: self.table.take_away(info.uid))
        self.table.place(info, node_name)

    def take_away(self, uid: str) -> None:
        """Removes the pod from its node and ends its nomination; an unknown UID is ignored."""
        self.withdraw(uid)
        self.remove(uid)

    def remove(self, uid: str) -> None:
        """Removes the pod from its node; an unknown UID is ignored."""
        pods = self.table.pods
        if (slot := pods.slot_of.get(uid)) is not None:
            info, node_name = pods.info(slot), self.table.nodes.names[pods.row[slot]]
            self._undo.append(lambda: self.table.place(info, node_name))
            self.table.take_away(uid)

    def imagine(self, info: PodInfo, node_name: str) -> None:
        """Places the pod, and lists it in `Table.hypothetical`. A pod that is on a node stays there."""
        table = self.table
        if info.uid in table.pods.slot_of:
            return

        def undo() -> None:
            table.take_away(info.uid)
            table.hypothetical.pop(info.uid, None)

        self._undo.append(undo)
        table.place(info, node_name)
        table.hypothetical[info.uid] = info, table.nodes.row_of[node_name]

    def withdraw(self, uid: str) -> None:
        """Ends the pod's nomination, if it has one."""
        if (nomination := self.table.nominated.of(uid)) is not None:
            self._undo.append(lambda: self.table.nominate(*nomination))
            self.table.withdraw(uid)

    def set_object(self, obj: Object) -> None:
        """Adds or replaces an object of any kind; a pod is placed on its node."""
        if isinstance(obj, Pod):
            self.place(PodInfo(obj), obj.node_name)
        elif isinstance(obj, Node):
            self._set_node(obj)
        else:
            self._set_other(obj)

    def _set_node(self, node: Node) -> None:
        table = self.table
        if table.nodes.has(node.name):
            before = table.nodes.node(table.nodes.row_of[node.name])
            self._undo.append(lambda: table.set_node(before))
        else:
            self._undo.append(lambda: table.remove_node(node.name))
        table.set_node(node)

    def _set_other(self, obj: Object) -> None:
        table, kind = self.table, type(obj).__name__
        before = table.objects.get(type(obj), obj.key)
        if before is None:
            self._undo.append(lambda: table.remove_object(kind, obj.key))
        else:
            self._undo.append(lambda: table.set_object(kind, before))
        table.set_object(kind, obj)


def _node_infos(table: Table) -> NodeInfos:
    return NodeInfos(table.nodes, table.pods, table.matches, table.journal)


def _budgets(table: Table) -> Budgets:
    every_protects = table.features.behaviours.every_budget_protects
    return Budgets(table.objects.all(PodDisruptionBudget), every_protects=every_protects)
