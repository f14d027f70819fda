"""A nomination, noted wherever it is looked at: in the queue, in the tables, and in the pod's status."""

from __future__ import annotations

from extender.cache.cache import Cache
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.ports import Statuses
from extender.table import PodInfo


class Nominations:
    """Which waiting pod is to have the next room on which node."""

    def __init__(self, cache: Cache, queue: PriorityQueue, statuses: Statuses) -> None:
        self._cache, self._queue, self._statuses = cache, queue, statuses

    def note(self, pod: PodInfo, node_name: str) -> None:
        """The pod is to run on `node_name` (empty: nowhere in particular), before its status says so.

        The room that was kept for it elsewhere is free now for others of the same or a lower priority.
        """
        before = self._queue.nominator.node_of(pod.uid)
        self._queue.nominate(pod, node_name)
        self._cache.nominate(pod.uid, node_name)
        if before != node_name:
            self._queue.nomination_ended(PodInfo(pod.pod.nominated_to(before)))

    def end_lesser(self, node_name: str, priority: int) -> None:
        """Pods of a lower priority lose their nomination to the node, here and in their statuses."""
        for pod in self._queue.nominator.on_node(node_name):
            if pod.priority < priority:
                self.note(pod, "")
                self._statuses.nominate(pod.pod, "")
