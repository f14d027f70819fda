"""The pods that wait for an event in the cluster, and the index by which an event finds those that it may help.

The index has the pods under each rule that refused them, and there by what the rule's hints read of them. So an event
costs nothing for the pods of rules that have not registered for it, and one hint for each equivalence class among the
others that the event may be about, however many wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.framework.events.cluster_events import Change
from extender.framework.events.queueing_hints import NOTHING_OF_THE_POD, Interest, QueueingHints, Reads
from extender.queue.backoff import Heap
from extender.queue.class_index import ClassIndex, EquivalenceClass
from extender.queue.queued_pod import QueuedPod

Filed = tuple[ClassIndex, EquivalenceClass]


class UnschedulablePods(Heap):
    """Pods by UID and by the length of their wait, and under the rules that refused them.

    Those that a rule refused for good (Rejection.unresolvable) are filed apart: nobody who leaves helps them.
    """

    def __init__(self, hints: QueueingHints) -> None:
        super().__init__(lambda pod: (pod.waits_since,))
        self._hints = hints
        self._filed: dict[str, list[Filed]] = {}
        self._indexes: dict[str, dict[tuple[Reads, bool], ClassIndex]] = {}

    def add(self, pod: QueuedPod) -> None:
        """Adds the pod, or indexes it anew."""
        self.remove(pod.uid)
        super().add(pod)
        try:
            self._filed[pod.uid] = self._filed_under(pod)
        except BaseException:
            self._rebuild_index()
            raise

    def _filed_under(self, pod: QueuedPod) -> list[Filed]:
        return [filed for rule in pod.rejection.rules for filed in self._file(rule, pod)]

    def _rebuild_index(self) -> None:
        """Files every pod again, because an error may have left the index half changed."""
        self._indexes = {}
        self._filed = {pod.uid: self._filed_under(pod) for pod in self}

    def _file(self, rule: str, pod: QueuedPod) -> Iterator[Filed]:
        indexes, unresolvable = self._indexes.setdefault(rule, {}), rule in pod.rejection.unresolvable
        for reads in self._hints.reads(rule):
            index = indexes.setdefault((reads, unresolvable), ClassIndex())
            yield index, index.add(pod, self._hints.filed_as(rule, reads, pod.info))

    def remove(self, uid: str) -> QueuedPod | None:
        try:
            for index, found in self._filed.pop(uid, ()):
                index.remove(found, uid)
        except BaseException:
            self._rebuild_index()
            raise
        return super().remove(uid)

    def refused_by(self, rule: str) -> list[QueuedPod]:
        indexes = self._indexes.get(rule, {})
        filed = [indexes[key] for key in ((NOTHING_OF_THE_POD, False), (NOTHING_OF_THE_POD, True)) if key in indexes]
        return [pod for index in filed for found in index.all() for pod in found.pods.values()]

    def helped_by(self, change: Change) -> list[tuple[QueuedPod, frozenset[str]]]:
        """Returns each pod that the change may help, with the rules that may let it pass now."""
        helped: dict[str, tuple[QueuedPod, frozenset[str]]] = {}
        for rule in self._indexes:
            for found in self._helped_classes(rule, change):
                for uid, pod in found.pods.items():
                    _, others = helped.get(uid, (pod, frozenset()))
                    helped[uid] = pod, others | {rule}
        return list(helped.values())

    def _helped_classes(self, rule: str, change: Change) -> Iterator[EquivalenceClass]:
        for interest in self._hints.interests(rule, change.event):
            for unresolvable in (False,) if change.event.frees_room else (False, True):
                index = self._indexes[rule].get((interest.reads, unresolvable))
                if index is not None:
                    yield from self._helped_in(index, rule, interest, change)

    def _helped_in(
        self, index: ClassIndex, rule: str, interest: Interest, change: Change
    ) -> Iterator[EquivalenceClass]:
        if interest.limits is not None:
            yield from index.within(lambda priority: self._hints.limits(rule, interest, change, priority))
            return
        names = self._hints.names(rule, interest, change)
        for found in index.all() if names is None else index.named(names):
            if self._hints.helps(rule, interest, found.representative.info, change):
                yield found
