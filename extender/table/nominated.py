"""Stores the nominated pods in columns, because preemption may nominate thousands of pods at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from extender.table.filing import drop_empty
from extender.table.journal import TOPOLOGY, Cursor, Journal
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.matches import Matches
from extender.table.node_columns import BUILT_IN, NodeColumns
from extender.table.pod_columns import PodColumns, capped
from extender.table.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class AwaitedPods:
    """The nominated pods whose resources a pod must leave free.

    Attributes:
        infos: the n nominated pods.
        rows: intp[n]: the rows of the nodes that these pods are nominated to.
        requested: int64[resource, n]: the resources that each pod will take, by the indices of `NodeColumns.resources`.
    """

    infos: list[PodInfo]
    rows: Rows
    requested: IntColumn

    def __len__(self) -> int:
        return len(self.infos)

    def pairs(self) -> Iterator[tuple[PodInfo, int]]:
        return zip(self.infos, self.rows.tolist(), strict=True)

    def by_row(self) -> dict[int, list[PodInfo]]:
        by_row: dict[int, list[PodInfo]] = {}
        for info, row in self.pairs():
            by_row.setdefault(row, []).append(info)
        return by_row

    def only(self, chosen: BoolColumn) -> AwaitedPods:
        """Returns the pods whose element in `chosen`, bool[n], is True."""
        infos = [self.infos[position] for position in np.flatnonzero(chosen).tolist()]
        return AwaitedPods(infos, self.rows[chosen], self.requested[:, chosen])

    def add_to(self, requested: IntColumn, *, is_capped: bool = False) -> None:
        """Adds the resources that these pods will take to `requested`, int64[resource, row].

        If `is_capped`, sums end at 2^63 - 1 instead of wrapping around.
        """
        if is_capped:
            for row, more in zip(self.rows, self.requested.T, strict=True):
                requested[: len(more), row] = capped(requested[: len(more), row].astype(object) + more)
            return
        for amounts, more in zip(requested, self.requested, strict=False):
            np.add.at(amounts, self.rows, more)

    def taken(self, resource: int, capacity: int) -> IntColumn:
        """Returns the amount of a resource that these pods will take on each row: int64[capacity].

        `resource`: an index from `NodeColumns.resources`.
        """
        taken = np.zeros(capacity, np.int64)
        if resource < len(self.requested):
            np.add.at(taken, self.rows, self.requested[resource])
        return taken


NOBODY = AwaitedPods([], np.zeros(0, np.intp), np.zeros((len(BUILT_IN), 0), np.int64))


class NominatedPods(Mapping[str, Mapping[str, PodInfo]]):
    """The nominated pods: for each node name, the pods by UID. Source: upstream nominator."""

    def __init__(self, nodes: NodeColumns, journal: Journal) -> None:
        self._nodes = nodes
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._columns = PodColumns(nodes, Matches(nodes.capacity))
        self._schedulers: Counter[str] = Counter()  # the number of nominated pods by schedulerName
        self._rows_changed = Cursor(journal, TOPOLOGY)

    @property
    def has_huge_requests(self) -> bool:
        """Returns True if there has been a nominated pod with a huge request (see `Footprint`)."""
        return bool(self._columns.huge_rows)

    def __getitem__(self, node_name: str) -> Mapping[str, PodInfo]:
        return self._by_node[node_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod to run on the node, replacing any earlier nomination."""
        self.withdraw(info.uid)
        self._node_of[info.uid] = node_name
        self._by_node.setdefault(node_name, {})[info.uid] = info
        self._schedulers[info.pod.spec.scheduler_name] += 1
        row = self._nodes.row_of.get(node_name, -1)
        self._columns.add(info, row, 0, 0)

    def of(self, uid: str) -> tuple[PodInfo, str] | None:
        """Returns the pod with this UID and the node that it is nominated to; None if it is not nominated."""
        node_name = self._node_of.get(uid)
        return None if node_name is None else (self._by_node[node_name][uid], node_name)

    def withdraw(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        waiting = self._by_node[node_name]
        self._schedulers -= Counter([waiting.pop(uid).pod.spec.scheduler_name])
        drop_empty(self._by_node, node_name)
        self._columns.remove(uid)

    def recount(self) -> None:
        """Recomputes the requests of pods after nodes began or stopped offering a resource."""
        for _ in self._columns.recount():
            pass

    def awaited_by(self, pod: PodInfo, awaits: Callable[[str], bool]) -> AwaitedPods:
        """Returns the other nominated pods whose resources `pod` must leave free.

        They have at least the priority of `pod`, and their node is in the table. `awaits` takes a schedulerName, and
        returns True if pods of that scheduler count.
        """
        if not self._by_node:
            return NOBODY
        if self._rows_changed.advance():
            self._find_rows()
        columns = self._columns
        chosen = (columns.row >= 0) & (columns.priority >= pod.priority)
        if (own := columns.slot_of.get(pod.uid)) is not None:
            chosen[own] = False
        slots = np.flatnonzero(chosen)
        awaited = AwaitedPods(columns.at(slots), columns.row[slots], columns.requested[:, slots])
        if all(awaits(name) for name in self._schedulers):
            return awaited
        return awaited.only(np.array([awaits(info.pod.spec.scheduler_name) for info in awaited.infos], np.bool_))

    def _find_rows(self) -> None:
        row_of, columns = self._nodes.row_of, self._columns
        for uid, slot in columns.slot_of.items():
            columns.row[slot] = row_of.get(self._node_of[uid], -1)
