"""The cluster as columns, which every rule reads.

A Table has no lock and no clock: one thread at a time works with it. The cache lends a table to each reader and first
brings it up to date with what has changed since it was lent last; so a snapshot costs what has changed, not what there
is. Data that belongs together has its own module: nodes, labels, pods, matches (selectors over pods), terms, ports,
objects, volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from extender.model.meta import Object
from extender.model.node import Node
from extender.model.volumes.storage import PersistentVolume
from extender.model.workloads import Service
from extender.runtime.clock import NO_DEADLINE, Deadline
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.table.journal import Journal
from extender.table.nodes.columns import NodeColumns
from extender.table.nodes.distinct_resources import DistinctResources
from extender.table.objects import Budgets, Namespaces, Objects, Services
from extender.table.podinfo import PodInfo
from extender.table.pods.columns import PodColumns, PortColumns
from extender.table.pods.matches import MatchCount, Matches, PodCountQuery
from extender.table.pods.nominated import NominatedPods
from extender.table.pods.terms import Terms
from extender.table.volumes.storage import Storage

R = TypeVar("R")


class Table:
    """Nodes, the pods on them, nominated pods and the other objects that rules look at.

    Attributes:
        journal: every change of the table.
        nominated: the pods that wait for a place on a node, by its name and their UIDs.
        hypothetical: (pod, row) by UID, of the pods that are placed only within `hypothetically`.
        deadline: of the decision that the table is read for; rules that may take long check it as they go.
    """

    def __init__(self, features: FeatureGates = DEFAULT_FEATURES) -> None:
        self.features = features
        self.journal = Journal()
        self.nodes = NodeColumns(self.journal)
        self.distinct_resources = DistinctResources(self.nodes, self.journal)
        self.pods = PodColumns(self.nodes)
        self.matches = Matches(self.nodes.capacity)
        self.terms = Terms(self.nodes.capacity, self.nodes.labels)
        self.ports = PortColumns()
        self.objects = Objects(self.journal)
        self.storage = Storage(self.nodes, self.pods, self.objects, self.journal)
        self.budgets = Budgets(self.objects, self.journal)
        self.namespaces = Namespaces(self.objects, self.journal)
        self.services = Services()
        self._readers: dict[Callable[[Table], Any], Any] = {}
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
        """Removes the node; pods on it stay counted in case it comes back. Unknown names are ignored."""
        self.nodes.erase(name)
        self._recount_requests()
        self.terms.follow_labels()

    # ---- pods

    def place(self, info: PodInfo, node_name: str) -> None:
        """Counts the pod on the node, and no longer where, or as what, it was counted before."""
        slot = self.pods.slot_of.get(info.uid)
        if slot is not None:
            if self._is_placed_the_same(slot, info, node_name):  # as an assumed pod does that the watch confirms
                self._describe(slot, info)
                return
            self.take_away(info.uid)
        row = self.nodes.claim(node_name)
        self._fit_capacity()
        self.ports.add(info.host_ports, row)
        group = self.matches.add(info.group, row, info.pod.terminating)
        terms = self.terms.add(info, row)
        slot = self.pods.add(info, row, group, terms)
        self.nodes.request(row, self.pods.requested[:, slot])
        self.storage.add(info, slot)

    def take_away(self, uid: str) -> None:
        """Takes the pod off its node; unknown UIDs are ignored."""
        slot = self.pods.slot_of.get(uid)
        if slot is None:
            return
        info, row = self.pods.remove(uid)
        self.storage.remove(info, slot)
        self.nodes.request(row, -self.pods.requested[:, slot])
        self.ports.remove(info.host_ports, row)
        self.matches.remove(info.group, row, info.pod.terminating)
        self.terms.remove(int(self.pods.terms[slot]), row)
        self.nodes.release(self.nodes.names[row])

    # ---- nominated pods

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod to run on the node (upstream nominator)."""
        self.nominated.nominate(info, node_name)

    def withdraw(self, uid: str) -> None:
        """Ends the pod's nomination, if it has one."""
        self.nominated.withdraw(uid)

    # ---- other objects

    def set_object(self, kind: str, obj: Object) -> None:
        """Adds or replaces an object of another kind."""
        self.objects.set(kind, obj)
        if isinstance(obj, Service):
            self.services.set(obj)
        elif isinstance(obj, PersistentVolume):
            self.storage.unbound.set(obj)

    def remove_object(self, kind: str, key: str) -> None:
        """Removes an object; unknown keys are ignored."""
        self.objects.remove(kind, key)
        if kind == Service.__name__:
            self.services.remove(key)
        elif kind == PersistentVolume.__name__:
            self.storage.unbound.remove(key)

    # ---- reading

    def matching(self, query: PodCountQuery) -> MatchCount:
        """Returns the number of pods on each node that the query matches; the table keeps it up to date.

        Raises DeadlineExceeded: a pod may have terms by the thousand.
        """
        self.deadline.check("a count of pods")
        return self.matches.count(query)

    def reader(self, of: Callable[[Table], R]) -> R:
        """Returns what `of`, a class or function of a module, makes of this table: made once, and kept with it.

        What it makes keeps itself up to date by the journal.
        """
        reader: R | None = self._readers.get(of)
        if reader is None:
            reader = self._readers[of] = of(self)
        return reader

    def leave_readers(self) -> None:
        """Lets go of what readers have made, some of which refers to the table: nobody asks it any more.

        A table in such a circle would stay until all garbage is collected, and that is as good as never.
        """
        self._readers.clear()

    @contextmanager
    def until(self, deadline: Deadline) -> Iterator[None]:
        """Has the rules of the block end by the deadline."""
        before, self.deadline = self.deadline, deadline
        try:
            yield
        finally:
            self.deadline = before

    @contextmanager
    def hypothetically(self, placed: Iterable[tuple[PodInfo, str]] = (), removed: Iterable[str] = ()) -> Iterator[None]:
        """Places pods on nodes, and removes those of the UIDs in `removed`, for the block; then all is as before."""
        undo: list[tuple[PodInfo, str]] = []
        new: list[str] = []
        try:
            for uid in removed:
                if uid in self.pods.slot_of:
                    slot = self.pods.slot_of[uid]
                    undo.append((self.pods.info(slot), self.nodes.names[self.pods.row[slot]]))
                    self.take_away(uid)
            for info, node_name in placed:
                if info.uid not in self.pods.slot_of:
                    new.append(info.uid)
                    self.place(info, node_name)
                    self.hypothetical[info.uid] = info, self.nodes.row_of[node_name]
            yield
        finally:
            for uid in reversed(new):  # last in, first out: so every pod gets its own slot back
                self.take_away(uid)
                self.hypothetical.pop(uid, None)
            for info, node_name in reversed(undo):
                self.place(info, node_name)

    def _describe(self, slot: int, info: PodInfo) -> None:
        before = self.pods.info(slot)
        if (
            before.group != info.group
        ):  # the API server adds labels of the node to pods that it binds (PodTopologyLabels)
            row = int(self.pods.row[slot])
            self.pods.group[slot] = self.matches.add(info.group, row, info.pod.terminating)
            self.matches.remove(before.group, row, info.pod.terminating)
        self.pods.describe(slot, info)

    def _is_placed_the_same(self, slot: int, info: PodInfo, node_name: str) -> bool:
        return self.nodes.names[self.pods.row[slot]] == node_name and self.pods.info(slot).counts_the_same_as(info)

    def _recount_requests(self) -> None:
        """Counts requests for resources that a first node has begun to offer, or the last has ceased to."""
        if self._resource_changes != self.nodes.offered.changes:
            self._resource_changes = self.nodes.offered.changes
            for row, change in self.pods.recount():
                self.nodes.request(row, change)
            self.nominated.recount()

    def _fit_capacity(self) -> None:
        self.matches.grow(self.nodes.capacity)
        self.terms.grow(self.nodes.capacity)
