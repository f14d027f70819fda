"""The loop's changes of nominations: decided in the cache, their owner, and written to the pods' statuses."""

from __future__ import annotations

from collections.abc import Iterable

from extender.cache.cache import Cache
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.ports import Statuses
from extender.table import PodInfo


class Nominations:
    """Nominates waiting pods to nodes."""

    def __init__(self, cache: Cache, queue: PriorityQueue, statuses: Statuses) -> None:
        self._cache, self._queue, self._statuses = cache, queue, statuses

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod to `node_name` (empty: to none), before its status says so.

        The room that was kept for it elsewhere is free now for others of the same or a lower priority.
        """
        before = self._cache.nominate(info.uid, node_name)
        if before != node_name:
            self._queue.nomination_ended(PodInfo(info.pod.nominated_to(before)))

    def withdraw(self, infos: Iterable[PodInfo]) -> None:
        """Ends the pods' nominations, in their statuses too."""
        for info in infos:
            self.nominate(info, "")
            self._statuses.nominate(info.pod, "")
