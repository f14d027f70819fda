"""Reports binds that got no answer, until the cache shows if the pod was bound.

kube-scheduler reports such a bind as failed, and tries the pod again. Here the pod keeps its place until the outcome is
known, so its event and its condition say this too. They have kube-scheduler's reasons, and begin with its words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from extender.cache.cache import Cache
from extender.cache.placements import is_bound
from extender.engine.decision import POD_SCHEDULER_ERROR
from extender.model.pod import Pod
from extender.scheduler.scheduler_ports import Events, Statuses


class _OpenBind(NamedTuple):
    pod: Pod
    node_name: str
    on_bound: Callable[[], object]


class OpenBinds:
    """The binds whose outcome is unknown, by the UID of the pod. Thread-safe. Call `settle` about once a second."""

    def __init__(self, cache: Cache, statuses: Statuses, events: Events) -> None:
        self._cache = cache
        self._statuses = statuses
        self._events = events
        self._open: dict[str, _OpenBind] = {}

    def add(self, pod: Pod, node_name: str, error: str, on_bound: Callable[[], object]) -> None:
        """Reports that the bind got no answer. If the pod turns out to be bound, `on_bound` is called once.

        Reports nothing if the cache shows the outcome already. `error` says why there is no answer.
        """
        bind = _OpenBind(pod, node_name, on_bound)
        self._open[pod.uid] = bind
        if self._ends(bind):
            return
        message = f"{error}; the pod may be bound, and keeps its place on node {node_name} until this is known"
        self._events.record(pod, "Warning", "FailedScheduling", "Scheduling", message)
        self._statuses.failed_unless_bound(pod, POD_SCHEDULER_ERROR, message)

    def drop(self, uid: str) -> None:
        """Forgets the pod's bind, because its outcome is known, or because the pod is bound again."""
        self._open.pop(uid, None)

    def settle(self) -> None:
        """Ends the binds whose outcome the cache shows."""
        for bind in list(self._open.values()):
            self._ends(bind)

    def _ends(self, bind: _OpenBind) -> bool:
        bound = is_bound(self._cache.placement(bind.pod.uid), bind.node_name)
        if bound is None:
            return False
        is_current = self._open.get(bind.pod.uid) is bind  # the pod may have been tried again in the meantime
        if is_current and self._open.pop(bind.pod.uid, None) is bind and bound:
            bind.on_bound()
        return True
