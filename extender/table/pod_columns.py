"""Stores the placed pods in columns, one slot for each pod, and the host ports in use.

Source of the host ports: upstream HostPortInfo.CheckConflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from extender.model.quantity import INT64_MAX
from extender.model.selectors import selector_from_labels
from extender.table.filing import adjust, drop_empty
from extender.table.journal import RESOURCES, Journal
from extender.table.labels import IntColumn, Rows
from extender.table.matches import Matches, PodCountQuery
from extender.table.node_columns import BUILT_IN, NodeColumns
from extender.table.podinfo import HostPort, PodInfo

_FIRST_CAPACITY = 64
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  only compared with; no socket is bound to it


class PodColumns:
    """The columns of all placed pods; a free slot has `row` -1.

    Attributes:
        row: intp[slot]: the row of the pod's node.
        priority: int64[slot]: the pod's priority.
        started: float64[slot]: the pod's start in seconds since the epoch; infinity before the start.
        group: intp[slot]: the slot that the pod's group (its namespace and labels) has in `Matches`.
        terms: intp[slot]: the slot that the pod's affinity terms have in `Terms`; 0 if the pod has no terms.
        terminating: bool[slot]: the pod is being deleted.
        requested: int64[resource, slot]: the pod's request, by the indices of `NodeColumns.resources`.
        huge_rows: the rows that have had a pod with a huge request (see `Footprint`).
        infos: object[slot]: the PodInfo of each slot, None if the slot is free.
        slots: the number of slots that have ever been used; all later ones are free.
        changes: a journal of the rows whose pods have changed (topic RESOURCES), even if the requests are the same.
    """

    def __init__(self, nodes: NodeColumns, matches: Matches) -> None:
        self._nodes = nodes
        self._matches = matches
        self.changes = Journal()
        self.slot_of: dict[str, int] = {}
        self._uids_of: dict[str, list[str]] | None = None  # by key; None until `named` is called
        self.infos: NDArray[np.object_] = np.full(_FIRST_CAPACITY, None)
        self.slots = 0
        self.row = np.full(_FIRST_CAPACITY, -1, np.intp)
        self.priority = np.zeros(_FIRST_CAPACITY, np.int64)
        self.started = np.zeros(_FIRST_CAPACITY, np.float64)
        self.group = np.zeros(_FIRST_CAPACITY, np.intp)
        self.terms = np.zeros(_FIRST_CAPACITY, np.intp)
        self.terminating = np.zeros(_FIRST_CAPACITY, np.bool_)
        self.requested = np.zeros((len(BUILT_IN), _FIRST_CAPACITY), np.int64)
        self.huge_rows: set[int] = set()
        self._free: list[int] = []
        self._partly_counted: set[int] = set()  # slots of pods whose request includes resources that no node offers

    def __len__(self) -> int:
        return len(self.slot_of)

    def __iter__(self) -> Iterator[PodInfo]:
        return (info for info in self.infos if info is not None)

    def info(self, slot: int) -> PodInfo:
        info: PodInfo | None = self.infos[slot]
        assert info is not None
        return info

    def named(self, key: str) -> PodInfo | None:
        """Returns the placed pod with this key, `namespace/name`; None if there is none.

        If a pod was deleted and created again, the table may have both for a moment. The newer pod is then returned.
        """
        if self._uids_of is None:  # most policies have no rule that asks, so they do not pay for the index
            self._uids_of = {}
            for info in self:
                self._name(None, info)
        infos = [self.info(self.slot_of[uid]) for uid in self._uids_of.get(key, ())]
        return max(infos, key=lambda info: info.pod.metadata.created_seconds, default=None)

    def _name(self, before: PodInfo | None, after: PodInfo | None) -> None:
        """Updates the index of `named` after a slot changes from one pod, or version of a pod, to another."""
        if self._uids_of is None:
            return
        if before is not None:
            uids = self._uids_of[before.pod.key]
            uids.remove(before.uid)
            drop_empty(self._uids_of, before.pod.key)
        if after is not None:
            self._uids_of.setdefault(after.pod.key, []).append(after.uid)

    def at(self, slots: Rows) -> list[PodInfo]:
        """Returns the pods in the given slots, all of which are in use."""
        infos: list[PodInfo] = self.infos.take(slots).tolist()
        return infos

    def add(self, info: PodInfo, row: int, group: int, terms: int) -> int:
        """Puts the pod into a free slot and returns the slot; the pod's UID must be new."""
        assert info.uid not in self.slot_of
        slot = self._free.pop() if self._free else self._append()
        self.slot_of[info.uid] = slot
        self.row[slot] = row
        self.write(slot, info)
        self.group[slot] = group
        self.terms[slot] = terms
        self.terminating[slot] = info.pod.terminating
        self._count(slot, info)
        if info.footprint.is_huge:
            self.huge_rows.add(row)
        return slot

    def _count(self, slot: int, info: PodInfo) -> None:
        self.requested[:, slot] = self._nodes.vector(info.footprint)
        if not self._nodes.offers_all(info.footprint):
            self._partly_counted.add(slot)

    def recount(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Recomputes the requests of pods after nodes began or stopped offering a resource.

        Yields, for each pod whose request changed, the row of its node and the change: int64[resource].
        """
        missing = len(self._nodes.requested) - len(self.requested)
        self.requested = np.pad(self.requested, ((0, missing), (0, 0)))
        dropped = self._nodes.offered.free
        slots = self._partly_counted.union(np.flatnonzero(self.requested[dropped].any(axis=0)).tolist())
        self._partly_counted = set()
        for slot in slots:
            info, before = self.infos[slot], self.requested[:, slot].copy()
            if info is None:
                self.requested[:, slot] = 0
                continue
            self._count(slot, info)
            yield int(self.row[slot]), self.requested[:, slot] - before

    def write(self, slot: int, info: PodInfo) -> None:
        """Stores the pod in the slot. If the slot has another version of the pod, both must take the same resources."""
        self._name(self.infos[slot], info)
        self.infos[slot] = info
        self.changes.note(RESOURCES, int(self.row[slot]))
        self.priority[slot] = info.priority
        self.started[slot] = info.started_seconds

    def remove(self, uid: str) -> tuple[PodInfo, int]:
        """Frees the pod's slot; returns the pod and the row of its node."""
        slot = self.slot_of.pop(uid)
        info, row = self.info(slot), int(self.row[slot])
        self._name(info, None)
        self.infos[slot] = None
        self.changes.note(RESOURCES, row)
        self.row[slot] = -1
        self._partly_counted.discard(slot)
        self._free.append(slot)
        return info, row

    def count(self, labels: Mapping[str, str], rows: Rows, namespace: str | None = None) -> IntColumn:
        """Returns int64[len(rows)]: the number of pods on each row with all these labels; namespace None means any."""
        namespaces = None if namespace is None else frozenset((namespace,))
        counts: IntColumn = self._matches.count(PodCountQuery(namespaces, selector_from_labels(labels))).by_node[rows]
        return counts

    def on(self, row: int) -> Rows:
        """Returns the slots of the pods on the node with this row."""
        return np.flatnonzero(self.row == row)

    def capped_sum(self, slots: Rows) -> IntColumn:
        """Returns the sum of the requests of the pods in these slots, 2^63 - 1 at most: int64[resource]."""
        return capped(self.requested[:, slots].astype(object).sum(axis=1))

    def _append(self) -> int:
        slot = self.slots
        self.slots += 1
        if slot == len(self.row):
            self._grow(2 * slot)
        return slot

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self.row)
        self.infos = np.concatenate((self.infos, np.full(more, None)))
        self.row = np.pad(self.row, (0, more), constant_values=-1)
        self.priority = np.pad(self.priority, (0, more))
        self.started = np.pad(self.started, (0, more))
        self.group = np.pad(self.group, (0, more))
        self.terms = np.pad(self.terms, (0, more))
        self.terminating = np.pad(self.terminating, (0, more))
        self.requested = np.pad(self.requested, ((0, 0), (0, more)))


def capped(amounts: NDArray[np.object_]) -> IntColumn:
    """Returns these whole numbers of any size as int64; those beyond 2^63 - 1 become 2^63 - 1."""
    return np.minimum(amounts, INT64_MAX).astype(np.int64)


class PortColumns:
    """The host ports in use: for each protocol, port and address, the number of pods on each node."""

    def __init__(self) -> None:
        self._in_use: defaultdict[tuple[str, int], dict[str, dict[int, int]]] = defaultdict(dict)

    def add(self, ports: Iterable[HostPort], row: int) -> None:
        """Counts a pod with these ports on the node with this row."""
        for protocol, port, ip in ports:
            adjust(self._in_use[protocol, port].setdefault(ip, {}), row, 1)

    def remove(self, ports: Iterable[HostPort], row: int) -> None:
        """Removes a pod with these ports from the counts of the node with this row."""
        for protocol, port, ip in ports:
            addresses = self._in_use[protocol, port]
            adjust(addresses[ip], row, -1)
            drop_empty(addresses, ip)
            drop_empty(self._in_use, (protocol, port))

    def in_use(self) -> dict[HostPort, dict[int, int]]:
        """Returns every port in use, with the number of pods on each row that use it."""
        return {
            HostPort(protocol, port, ip): rows
            for (protocol, port), addresses in self._in_use.items()
            for ip, rows in addresses.items()
        }

    def conflicting(self, ports: Iterable[HostPort]) -> Iterator[tuple[HostPort, Mapping[int, int]]]:
        """Yields every port in use that conflicts with one of `ports`, with the number of pods on each row that use it.

        0.0.0.0 conflicts with every address.
        """
        for protocol, port, wanted in ports:
            for ip, rows in self._in_use.get((protocol, port), {}).items():
                if _clash(ip, wanted):
                    yield HostPort(protocol, port, ip), rows


def conflicts_between(wanted: Iterable[HostPort], taken: Sequence[HostPort]) -> int:
    """Returns the number of pairs of a wanted and a taken port that conflict; 0.0.0.0 conflicts with every address."""
    return sum(
        (has.protocol, has.port) == (port.protocol, port.port) and _clash(has.ip, port.ip)
        for has in taken
        for port in wanted
    )


def _clash(address: str, other: str) -> bool:
    return EVERY_ADDRESS in (address, other) or address == other
