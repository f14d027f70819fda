"""A Lease of coordination.k8s.io/v1, read and written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import KubeClient
from extender.errors import NotFound

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
    """One lease at the API server; no call waits longer for a sign of life than `silence_seconds`."""

    def __init__(self, client: KubeClient, namespace: str, name: str, silence_seconds: float) -> None:
        self.key = f"{namespace}/{name}"
        self._client, self._silence_seconds = client, silence_seconds
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
        return self._client.call_for(_DECODE, method, path, body, silence_seconds=self._silence_seconds)


def micro_time(seconds: float) -> str:
    """Returns seconds since the epoch in the form of metav1.MicroTime: 2026-11-21T10:23:00.000000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
