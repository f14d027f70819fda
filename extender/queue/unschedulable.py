"""Holds the pods that wait for a cluster event, and finds the pods that an event may help.

Pods are indexed by each rule that rejected them, and within a rule by the values that the rule's queueing hints read
from them. Pods with equal values form an equivalence class. An event costs nothing for a rule that has not registered
for it. For any other rule, a hint is called once for each class that the event may concern, however many pods wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.framework.cluster_events import Change
from extender.framework.queueing_hints import NOTHING_OF_THE_POD, Interest, QueueingHints, Reads
from extender.queue.backoff import Heap
from extender.queue.class_index import ClassIndex, EquivalenceClass
from extender.queue.queued_group import Entity
from extender.queue.queued_pod import QueuedPod

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
            if self._hints.helps(rule, interest, members.representative.info, change):
                yield members
