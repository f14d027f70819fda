"""The last door before the API server, open to the leader only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from extender.errors import Refused
from extender.runtime.ports import Binder


class LeaderBinder:
    """A ports.Binder that asks once more, right before it binds, whether this process still leads.

    A call may have been let in long ago: the process was stopped, or waited for a lock, while another took the lease.
    """

    def __init__(self, binder: Binder, leading: Callable[[], bool]) -> None:
        self._binder, self._leading = binder, leading
        self._lock = threading.Lock()
        self._under_way = 0

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """See ports.Binder; Refused with status 503 where this process does not lead."""
        self._count(1)  # first, so that `idle` cannot miss whom `leading` lets pass
        try:
            if not self._leading():
                raise Refused("this extender is not the leader: another one binds", 503)
            self._binder.bind(namespace, name, uid, node, annotations)
        finally:
            self._count(-1)

    def idle(self) -> bool:
        """No bind is under way."""
        with self._lock:
            return self._under_way == 0

    def _count(self, step: int) -> None:
        with self._lock:
            self._under_way += step
