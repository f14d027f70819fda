"""The cluster as columns: what every rule stands on.

A Table has no lock and no clock: one thread at a time works with it. The cache (`state.cache`) lends a table to each
reader and brings it up to date before, by the changes since it was last lent; so a snapshot costs what has changed,
not what there is.

Data that belongs together has its own module: nodes, labels, pods, matches (selectors over pods), ports, objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from extender.model.meta import Object
from extender.model.node import Node
from extender.table.matches import MatchCount, Matches, Question
from extender.table.nodes import NodeColumns
from extender.table.objects import Objects
from extender.table.podinfo import PodInfo
from extender.table.pods import PodColumns, counted
from extender.table.ports import PortColumns


class Table:
    """Nodes, the pods on them, nominated pods and the other objects that rules look at."""

    def __init__(self) -> None:
        self.nodes = NodeColumns()
        self.pods = PodColumns()
        self.matches = Matches()
        self.ports = PortColumns()
        self.objects = Objects()
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        self._nominations: dict[str, str] = {}

    # ---- nodes

    def set_node(self, node: Node) -> None:
        """Adds the node or replaces what was known of it."""
        self.nodes.write(node)
        self._fit_capacity()

    def remove_node(self, name: str) -> None:
        """Forgets the node; pods on it stay counted for the day it comes back. Unknown names are ignored."""
        self.nodes.erase(name)

    # ---- pods

    def place(self, info: PodInfo, node_name: str) -> None:
        """Puts the pod on the node; a pod that stood elsewhere, or looked otherwise, is taken away first."""
        self.take_away(info.uid)
        row = self.nodes.claim(node_name)
        self._fit_capacity()
        requested = self.nodes.vector(info.footprint)
        self.nodes.requested[:, row] += requested
        self.ports.add(info.host_ports, row)
        group = self.matches.add(info.group, row, info.pod.terminating)
        self.pods.add(info, row, group, requested)

    def take_away(self, uid: str) -> None:
        """Takes the pod off its node; unknown UIDs are ignored."""
        if uid not in self.pods.slot_of:
            return
        info, row = self.pods.remove(uid)
        self.nodes.requested[:, row] -= self.nodes.vector(info.footprint)
        self.ports.remove(info.host_ports, row)
        self.matches.remove(info.group, row, info.pod.terminating)
        self.nodes.release(self.nodes.names[row])

    # ---- nominated pods

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Notes that the pod waits for its place on `node_name` (upstream nominator)."""
        self.withdraw(info.uid)
        self._nominations[info.uid] = node_name
        self.nominated.setdefault(node_name, {})[info.uid] = info

    def withdraw(self, uid: str) -> None:
        """Ends the pod's nomination, if it has one."""
        node_name = self._nominations.pop(uid, None)
        if node_name is not None:
            del self.nominated[node_name][uid]
            if not self.nominated[node_name]:
                del self.nominated[node_name]

    # ---- other objects

    def set_object(self, kind: str, obj: Object) -> None:
        """Adds or replaces an object of another kind."""
        self.objects.set(kind, obj)

    def remove_object(self, kind: str, key: str) -> None:
        """Forgets an object; unknown keys are ignored."""
        self.objects.remove(kind, key)

    # ---- questions

    def matching(self, question: Question) -> MatchCount:
        """How many pods the question finds on each node; asked once, it is kept up to date."""
        answer = self.matches.answer(question)
        if answer is None:
            answer = MatchCount(question, self.nodes.capacity)
            slots = self._slots_matching(question)
            answer.by_node = counted(self.pods.row[slots], self.nodes.capacity)
            answer.total = len(slots)
            self.matches.keep(answer)
        return answer

    def _slots_matching(self, question: Question) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        slots = np.flatnonzero(self.pods.row >= 0)
        slots = slots[self.matches.found(question)[self.pods.group[slots]]]
        return slots if question.terminating else slots[~self.pods.terminating[slots]]

    @contextmanager
    def supposing(self, placed: Iterable[tuple[PodInfo, str]] = (), gone: Iterable[str] = ()) -> Iterator[None]:
        """Inside the block `placed` pods stand on their nodes and the UIDs in `gone` do not; then all is as before."""
        undo: list[tuple[PodInfo, str]] = []
        new: list[str] = []
        try:
            for uid in gone:
                if uid in self.pods.slot_of:
                    slot = self.pods.slot_of[uid]
                    undo.append((self.pods.info(slot), self.nodes.names[self.pods.row[slot]]))
                    self.take_away(uid)
            for info, node_name in placed:
                if info.uid not in self.pods.slot_of:
                    new.append(info.uid)
                    self.place(info, node_name)
            yield
        finally:
            for uid in new:
                self.take_away(uid)
            for info, node_name in undo:
                self.place(info, node_name)

    def _fit_capacity(self) -> None:
        self.matches.grow(self.nodes.capacity)
