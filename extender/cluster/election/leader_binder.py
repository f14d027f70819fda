"""The last check before the API server: only the leader binds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from extender.errors import Refused
from extender.runtime.ports import Binder


class WritesInFlight:
    """How many writes are under way that only a leader may do; `with` it for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def idle(self) -> bool:
        """Returns whether none is under way."""
        with self._lock:
            return self._count == 0

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1


class LeaderBinder:
    """A ports.Binder that asks once more, right before it binds, whether this process still leads.

    A call may have been let in long ago: the process was stopped, or waited for a lock, while another took the lease.
    """

    def __init__(self, binder: Binder, leading: Callable[[], bool], in_flight: WritesInFlight) -> None:
        self._binder, self._leading, self._in_flight = binder, leading, in_flight

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """See ports.Binder; Refused with status 503 where this process does not lead."""
        with self._in_flight:  # first, so that `idle` cannot miss whom `leading` lets pass
            if not self._leading():
                raise Refused("this extender is not the leader: another one binds", 503)
            self._binder.bind(namespace, name, uid, node, annotations)
