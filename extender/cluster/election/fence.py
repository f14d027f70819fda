"""The last check before the API server: only the leader writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from extender.cluster.http.kube_client import JSON, Caller
from extender.errors import Refused
from extender.runtime.ports import Binder


class WritesInFlight:
    """Counts the writes under way that only a leader may do; `with` it for each."""

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


class Fence:
    """Asks right before each write whether this process still leads; `with` it for each.

    A write may have been decided long ago: the process was stopped, or waited for a lock, while another took the lease.
    """

    def __init__(self, leading: Callable[[], bool] = lambda: True, in_flight: WritesInFlight | None = None) -> None:
        self._leading, self._in_flight = leading, in_flight or WritesInFlight()

    def __enter__(self) -> None:
        """Raises Refused with status 503 where this process does not lead."""
        self._in_flight.__enter__()  # first, so that `idle` cannot miss what `leading` lets pass
        if not self._leading():
            self._in_flight.__exit__()
            raise Refused("this process is not the leader: another one writes", 503)

    def __exit__(self, *_: object) -> None:
        self._in_flight.__exit__()


class LeaderBinder:
    """A ports.Binder of the leader only."""

    def __init__(self, binder: Binder, fence: Fence) -> None:
        self._binder, self._fence = binder, fence

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """See ports.Binder; Refused with status 503 where this process does not lead."""
        with self._fence:
            self._binder.bind(namespace, name, uid, node, annotations)


class LeaderClient(Caller):
    """A client of the leader only: whoever does not lead may read, and write nothing."""

    def __init__(self, client: Caller, fence: Fence) -> None:
        self._client, self._fence = client, fence

    def call(
        self, method: str, path: str, body: bytes, content_type: str = JSON, silence_seconds: float | None = None
    ) -> bytes:
        """See Caller; Refused with status 503 where a write is not the leader's."""
        if method == "GET":
            return self._client.call(method, path, body, content_type, silence_seconds)
        with self._fence:
            return self._client.call(method, path, body, content_type, silence_seconds)
