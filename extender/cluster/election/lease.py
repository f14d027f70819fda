"""A Lease of coordination.k8s.io/v1, read and written, and the last check before each write: only the leader writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import CALL_SECONDS, JSON, Caller, KubeClient
from extender.errors import NotFound, Refused
from extender.runtime.ports import Binder, Binding

_GROUP_VERSION = "coordination.k8s.io/v1"


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The holder of the lease; upstream LeaseSpec, less what only coordinated election uses. Times as they are sent."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease; `metadata` is sent back as it came, so that a write is turned down if another came between."""

    spec: LeaseSpec = LeaseSpec()
    metadata: dict[str, Any] = {}
    api_version: str = _GROUP_VERSION
    kind: str = "Lease"

    @property
    def holder(self) -> str:
        """Returns the identity of the holder; "" where nobody holds it."""
        return self.spec.holder_identity or ""


_DECODE = msgspec.json.Decoder(Lease).decode
_ENCODE = msgspec.json.Encoder().encode


class LeaseClient:
    """One lease at the API server; no call takes longer than `timeout_seconds`."""

    def __init__(self, client: KubeClient, namespace: str, name: str, timeout_seconds: float) -> None:
        self.key = f"{namespace}/{name}"
        self._client, self._timeout_seconds = client, timeout_seconds
        self._metadata = {"namespace": namespace, "name": name}
        self._collection = f"/apis/{_GROUP_VERSION}/namespaces/{quote(namespace, '')}/leases"
        self._path = f"{self._collection}/{quote(name, '')}"

    def get(self) -> Lease:
        """Returns the lease as it is now; one without metadata where there is none yet.

        Raises:
            Refused, OutcomeUnknown: as `KubeClient.call`.
        """
        try:
            return self._call("GET", self._path, b"")
        except NotFound:
            return Lease()

    def put(self, lease: Lease) -> Lease:
        """Creates or updates the lease; returns it as the API server has it then.

        Raises:
            Conflict: another has written since `lease` was read.
            Refused, OutcomeUnknown: as `KubeClient.call`.
        """
        if lease.metadata:
            return self._call("PUT", self._path, _ENCODE(lease))
        created = msgspec.structs.replace(lease, metadata=self._metadata)
        return self._call("POST", self._collection, _ENCODE(created))

    def _call(self, method: str, path: str, body: bytes) -> Lease:
        return self._client.call_for(_DECODE, method, path, body, timeout_seconds=self._timeout_seconds)


def micro_time(seconds: float) -> str:
    """Returns seconds since the epoch in the form of metav1.MicroTime: 2026-11-21T10:23:00.000000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Fence:
    """Asks right before each write whether this process still leads; `with` it for each.

    A write may have been decided long ago: the process was stopped, or waited for a lock, while another took the lease.
    """

    def __init__(self, leading: Callable[[], bool] = lambda: True) -> None:
        self._leading = leading
        self._lock = threading.Lock()
        self._under_way = 0

    def idle(self) -> bool:
        with self._lock:
            return self._under_way == 0

    def __enter__(self) -> None:
        """Raises Refused with status 503 where this process does not lead."""
        with self._lock:
            self._under_way += 1  # first, so that `idle` cannot miss what `leading` lets pass
        if not self._leading():
            self.__exit__()
            raise Refused("this process is not the leader: another one writes", 503)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._under_way -= 1


class LeaderBinder:
    """A ports.Binder of the leader only."""

    def __init__(self, binder: Binder, fence: Fence) -> None:
        self._binder, self._fence = binder, fence

    def bind(self, binding: Binding) -> None:
        """See ports.Binder; Refused with status 503 where this process does not lead."""
        with self._fence:
            self._binder.bind(binding)


class LeaderClient(Caller):
    """A client of the leader only: whoever does not lead may read, and write nothing."""

    def __init__(self, client: Caller, fence: Fence) -> None:
        self._client, self._fence = client, fence

    def call(
        self, method: str, path: str, body: bytes, content_type: str = JSON, timeout_seconds: float = CALL_SECONDS
    ) -> bytes:
        """See Caller; Refused with status 503 where a write is not the leader's."""
        if method == "GET":
            return self._client.call(method, path, body, content_type, timeout_seconds)
        with self._fence:
            return self._client.call(method, path, body, content_type, timeout_seconds)
