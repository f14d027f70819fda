"""Changes of nominations: decided in the cache, their owner, and written to the pods' statuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from extender.cache.cache import Cache
from extender.scheduler.ports import Statuses
from extender.table import PodInfo


class Nominations:
    """Nominates waiting pods to nodes; `ended` is told of each pod that is nominated elsewhere from then on."""

    def __init__(self, cache: Cache, statuses: Statuses, ended: Callable[[PodInfo], object] = lambda _: None) -> None:
        self._cache, self._statuses, self._ended = cache, statuses, ended

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod to `node_name` (empty: to none), before its status says so.

        The room that was kept for it elsewhere is free now for others of the same or a lower priority.
        """
        before = self._cache.nominate(info.uid, node_name)
        if before != node_name:
            self._ended(PodInfo(info.pod.nominated_to(before)))

    def withdraw(self, infos: Iterable[PodInfo]) -> None:
        """Ends the pods' nominations, in their statuses too."""
        for info in infos:
            self.nominate(info, "")
            self._statuses.nominate(info.pod, "")
