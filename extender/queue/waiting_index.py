"""Holds the pods that wait for a cluster event, and finds the pods that an event may help.

Pods are indexed by each rule that rejected them, and within a rule by the values that the rule's queueing hints read
from them. Pods with equal values form an equivalence class, and get the same answer from a hint. An event costs nothing
for a rule that has not registered for it. For any other rule, a hint is called once for each class that the event may
concern, however many pods wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from extender.framework.cluster_events import Change
from extender.framework.queueing_hints import (
    ANY,
    NOTHING_OF_THE_POD,
    AmountLimits,
    IndexKeys,
    Interest,
    QueueingHints,
    Reads,
)
from extender.queue.entries import Entity, QueuedPod
from extender.queue.heaps import Heap

_FIRST_ROOM = 16
_MAX_COLUMNS = 32
_MOST = int(np.iinfo(np.int64).max)


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Pods that one rule cannot tell apart: its queueing hints read the same values from each of them.

    Attributes:
        keys: the values that the hints read from each pod.
        pods: UID -> pod.
        row: the row of the class in an AmountTable; -1 if the class is in no AmountTable.
    """

    keys: IndexKeys
    priority: int
    pods: dict[str, QueuedPod] = field(default_factory=dict)
    row: int = -1


class ClassIndex:
    """The equivalence classes of the pods that one rule rejected.

    A class is found by one of its names, or by its priority and the amounts that its pods request. The rule derives
    these keys from a pod (`IndexKeys`).
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, EquivalenceClass] = {}
        # Keyed by class, not by value: the value of a pod with 8,000 volumes has 8,000 names, and hashing it once for
        # each name takes a second.
        self._by_name: dict[str, dict[EquivalenceClass, None]] = {}
        self._by_priority: dict[int, AmountTable] = {}

    def add(self, pod: QueuedPod, keys: IndexKeys) -> EquivalenceClass:
        """Adds the pod to its class; returns the class."""
        members = self._classes.get(keys.value)
        if members is None:
            members = self._classes[keys.value] = EquivalenceClass(keys, pod.info.priority)
            for name in keys.names:
                self._by_name.setdefault(name, {})[members] = None
            if keys.amounts is not None:
                self._by_priority.setdefault(members.priority, AmountTable()).add(members)
        members.pods[pod.uid] = pod
        return members

    def remove(self, members: EquivalenceClass, uid: str) -> None:
        """Removes a pod from its class, and removes the class if it is then empty."""
        del members.pods[uid]
        if members.pods:
            return
        value, names, amounts = members.keys
        del self._classes[value]
        for name in names:
            del self._by_name[name][members]
            if not self._by_name[name]:
                del self._by_name[name]
        if amounts is not None:
            self._by_priority[members.priority].remove(members)

    def all(self) -> Collection[EquivalenceClass]:
        return self._classes.values()

    def named(self, names: Iterable[str]) -> Collection[EquivalenceClass]:
        """Returns the classes that have one of these names, or the name ANY (see `IndexKeys`)."""
        classes: dict[EquivalenceClass, None] = {}
        for name in (ANY, *names):
            classes |= self._by_name.get(name, {})
        return classes.keys()

    def within(self, limits_of: Callable[[int], AmountLimits | None]) -> Iterator[EquivalenceClass]:
        """Yields the equivalence classes of pods whose requests are within the limits for their priority.

        Args:
            limits_of: takes a priority and returns its limits; None if no pod of this priority is wanted.
        """
        for priority, table in self._by_priority.items():
            limits = limits_of(priority)
            if limits is not None:
                yield from table.within(limits)


class AmountTable:
    """The amounts that the pods of each class request: one column per resource, one row per class.

    One comparison finds all classes that request little enough. It takes 0.1 ms for 100,000 classes, while each call of
    a hint takes 3 us. Pods may request thousands of different resources, so at most _MAX_COLUMNS resources have a
    column. Classes that request any other resource are checked one by one.
    """

    def __init__(self) -> None:
        self._classes: list[EquivalenceClass] = []
        self._column_of: dict[str, int] = {}
        self._uses: Counter[str] = Counter()  # resource -> the number of classes that request it
        self._free_columns: list[int] = []
        self._partly_filed: dict[EquivalenceClass, None] = {}
        self._amounts: NDArray[np.int64] = np.zeros((0, _FIRST_ROOM), np.int64)

    def add(self, members: EquivalenceClass) -> None:
        """Adds an equivalence class in a new row at the end."""
        members.row = len(self._classes)
        self._classes.append(members)
        if members.row == self._amounts.shape[1]:
            self._amounts = np.pad(self._amounts, ((0, 0), (0, members.row)))
        for resource, amount in (members.keys.amounts or {}).items():
            column = self._column(resource)  # may replace self._amounts
            if column is None:
                self._partly_filed[members] = None
            else:
                self._amounts[column, members.row] = min(amount, _MOST)
                self._uses[resource] += 1

    def remove(self, members: EquivalenceClass) -> None:
        """Removes a class, and moves the last class of the table to the row that became free."""
        self._partly_filed.pop(members, None)
        for resource in members.keys.amounts or {}:
            column = self._column_of.get(resource)
            if column is not None and self._amounts[column, members.row]:
                self._release(resource)
        last = self._classes.pop()
        self._amounts[:, members.row] = self._amounts[:, last.row]
        self._amounts[:, last.row] = 0
        if last is not members:
            self._classes[members.row] = last
            last.row = members.row

    def within(self, limits: AmountLimits) -> Iterator[EquivalenceClass]:
        """Yields the classes that the limits admit (see AmountLimits.admit)."""
        amounts = self._amounts[:, : len(self._classes)]
        fits = np.ones(len(self._classes), np.bool_)
        asks = np.full(len(self._classes), limits.any_of is None)
        for resource, column in self._column_of.items():
            at_most = limits.at_most(resource)
            if at_most < inf:
                fits &= amounts[column] <= at_most
            if limits.any_of is not None and limits.any_of(resource):
                asks |= amounts[column] > 0
        for members in self._partly_filed:
            fits[members.row] = limits.admit(members.keys.amounts or {})
            asks[members.row] = True
        return (self._classes[row] for row in np.flatnonzero(fits & asks).tolist())

    def _column(self, resource: str) -> int | None:
        if resource not in self._column_of:
            if self._free_columns:
                self._column_of[resource] = self._free_columns.pop()
            elif len(self._amounts) < _MAX_COLUMNS:
                self._column_of[resource] = len(self._amounts)
                self._amounts = np.pad(self._amounts, ((0, 1), (0, 0)))
        return self._column_of.get(resource)

    def _release(self, resource: str) -> None:
        self._uses[resource] -= 1
        if not self._uses[resource]:
            del self._uses[resource]
            self._free_columns.append(self._column_of.pop(resource))


Filed = tuple[ClassIndex, EquivalenceClass]


class UnschedulablePods(Heap):
    """Pods and groups sorted by how long they have waited, and indexed by the rules that rejected them.

    The members of a group are indexed one by one. Pods that a rule rejected as unresolvable are in a separate index,
    because removing pods from nodes cannot help them.
    """

    def __init__(self, hints: QueueingHints) -> None:
        super().__init__(lambda entity: (entity.waits_since,))
        self._hints = hints
        self._filed: dict[str, list[Filed]] = {}
        self._indexes: dict[str, dict[tuple[Reads, bool], ClassIndex]] = {}

    def add(self, entity: Entity) -> None:
        """Adds the pod or group. If it is here already, sorts and indexes it again."""
        self.remove(entity.uid)
        super().add(entity)
        for pod in entity.pods:
            self.file(pod)

    def remove(self, uid: str) -> Entity | None:
        entity = self.get(uid)
        if entity is not None:
            for pod in entity.pods:
                self.unfile(pod.uid)
        return super().remove(uid)

    def file(self, pod: QueuedPod) -> None:
        """Adds a pod to the index, or updates its entries there. The pod or its group must be in this queue already."""
        self.unfile(pod.uid)
        try:
            self._filed[pod.uid] = self._filed_under(pod)
        except BaseException:
            self._rebuild_index()
            raise

    def unfile(self, uid: str) -> None:
        """Removes a pod from the index."""
        try:
            for index, members in self._filed.pop(uid, ()):
                index.remove(members, uid)
        except BaseException:
            self._rebuild_index()
            raise

    def _filed_under(self, pod: QueuedPod) -> list[Filed]:
        return [filed for rule in pod.rejection.rules for filed in self._file(rule, pod)]

    def _rebuild_index(self) -> None:
        """Builds the index of all pods again, because an error may have left it half updated."""
        self._indexes = {}
        self._filed = {pod.uid: self._filed_under(pod) for entity in self for pod in entity.pods}

    def _file(self, rule: str, pod: QueuedPod) -> Iterator[Filed]:
        indexes, unresolvable = self._indexes.setdefault(rule, {}), rule in pod.rejection.unresolvable
        for reads in self._hints.reads(rule):
            index = indexes.setdefault((reads, unresolvable), ClassIndex())
            yield index, index.add(pod, self._hints.index_keys(rule, reads, pod.info))

    def rejected_by(self, rule: str) -> list[QueuedPod]:
        indexes = self._indexes.get(rule, {})
        filed = [indexes[key] for key in ((NOTHING_OF_THE_POD, False), (NOTHING_OF_THE_POD, True)) if key in indexes]
        return [pod for index in filed for members in index.all() for pod in members.pods.values()]

    def helped_by(self, change: Change) -> list[tuple[QueuedPod, frozenset[str]]]:
        """Returns the pods that the change may help, each with the rules that may accept it now."""
        pods: dict[str, tuple[QueuedPod, frozenset[str]]] = {}
        for rule in self._indexes:
            for members in self._helped_classes(rule, change):
                for uid, pod in members.pods.items():
                    _, other_rules = pods.get(uid, (pod, frozenset()))
                    pods[uid] = pod, other_rules | {rule}
        return list(pods.values())

    def _helped_classes(self, rule: str, change: Change) -> Iterator[EquivalenceClass]:
        for interest in self._hints.interests(rule, change.event):
            for unresolvable in (False,) if change.event.frees_room else (False, True):
                index = self._indexes[rule].get((interest.reads, unresolvable))
                if index is not None:
                    yield from self._helped_in(index, rule, interest, change)

    def _helped_in(
        self, index: ClassIndex, rule: str, interest: Interest, change: Change
    ) -> Iterator[EquivalenceClass]:
        if (limits := interest.limits) is not None:
            yield from index.within(lambda priority: self._hints.limits(rule, limits, change, priority))
            return
        names = self._hints.names(rule, interest, change)
        for members in index.all() if names is None else index.named(names):
            representative = next(iter(members.pods.values()))
            if self._hints.helps(rule, interest, representative.info, change):
                yield members
