"""Reads and writes a Lease (coordination.k8s.io/v1); its Fence refuses writes while this process does not lead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from extender.cluster.kube_client import ApiCall, Caller, KubeClient
from extender.errors import NotFound, Refused
from extender.runtime.ports import Binder, Binding, Check, always
from extender.runtime.unsettled import UnsettledWrites

GROUP_VERSION = "coordination.k8s.io/v1"
_EVENTS = "/apis/events.k8s.io/"  # events reserve nothing, so one that arrives late does no harm
RELEASED_SECONDS = 1
_TERM = "extender/term"
_WANTED_BY = "extender/wanted-by"
_MOST_CHARACTERS = 128  # the API server's limit for an event's reportingInstance


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The upstream LeaseSpec without the fields of coordinated election. Times are strings, as in the JSON."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """A holder's statement about its term, in the annotation `extender/term`. client-go has no fields for this.

    Other programs that hold the same Lease leave the annotation as it is. So it counts only together with the spec that
    was written with it: `renew_time` and `lease_transitions` are the same there.

    Attributes:
        renew_deadline_seconds: how long the holder leads after a renewal.
        settle_seconds: how long a write of the holder, or of an earlier one, may be in flight.
        settled: True if the holder has released the lease, and knows the outcome of all its writes.
    """

    identity: str
    renew_time: str
    lease_transitions: int
    renew_deadline_seconds: float
    settle_seconds: float = 0.0
    settled: bool = False


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease. `metadata` is sent back unchanged, so that the API server refuses the write if the lease has changed."""

    spec: LeaseSpec = LeaseSpec()
    metadata: dict[str, Any] = {}
    api_version: str = GROUP_VERSION
    kind: str = "Lease"

    @property
    def holder(self) -> str:
        """The identity of the holder; "" if the lease is free."""
        return self.spec.holder_identity or ""

    @property
    def version(self) -> int:
        """The resourceVersion; 0 if the lease does not exist."""
        version = str(self.metadata.get("resourceVersion", ""))
        return int(version) if version.isdecimal() else 0

    @property
    def term(self) -> Term | None:
        """The statement of the holder, or of the last one if it released the lease; None without a valid statement.

        client-go erases the holder while its last writes may be in flight, and so may a person. Only `settled` proves
        that the outcome of all writes is known.
        """
        try:
            term = _DECODE_TERM(self._annotations.get(_TERM, ""))
        except msgspec.MsgspecError:
            return None
        of_spec = (term.renew_time, term.lease_transitions) == (self.spec.renew_time, self.spec.lease_transitions)
        return term if of_spec and self.holder == ("" if term.settled else term.identity) else None

    @property
    def wanted_by(self) -> str:
        """The identity of the candidate that asks the holder for the lease; "" if there is none."""
        return str(self._annotations.get(_WANTED_BY, ""))

    def held(self, spec: LeaseSpec, term: Term) -> Lease:
        """Returns the lease with this spec and term; a candidate that asked for it has its wish or must ask again."""
        others = {name: value for name, value in self._annotations.items() if name != _WANTED_BY}
        return self._with({**others, _TERM: _ENCODE(term).decode()}, spec)

    def released(self, spec: LeaseSpec, term: Term) -> Lease:
        """Returns the lease with this spec and term. The wish of a candidate remains, so that no other takes it."""
        return self._with({**self._annotations, _TERM: _ENCODE(term).decode()}, spec)

    def wanted(self, identity: str) -> Lease:
        """Returns the lease with the wish of the candidate `identity`."""
        return self._with({**self._annotations, _WANTED_BY: identity}, self.spec)

    @property
    def _annotations(self) -> dict[str, str]:
        return self.metadata.get("annotations") or {}

    def _with(self, annotations: dict[str, str], spec: LeaseSpec) -> Lease:
        return msgspec.structs.replace(self, metadata={**self.metadata, "annotations": annotations}, spec=spec)


_DECODE = msgspec.json.Decoder(Lease).decode
_DECODE_TERM = msgspec.json.Decoder(Term).decode
_ENCODE = msgspec.json.Encoder().encode


class LeaseClient:
    """Reads and writes one lease. No call takes longer than `timeout_seconds`."""

    def __init__(self, client: KubeClient, namespace: str, name: str, timeout_seconds: float) -> None:
        self.key = f"{namespace}/{name}"
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._metadata = {"namespace": namespace, "name": name}
        self._collection = f"/apis/{GROUP_VERSION}/namespaces/{quote(namespace, '')}/leases"
        self._path = f"{self._collection}/{quote(name, '')}"
        self._uid = ""  # the lease's UID, to which events refer

    def get(self) -> Lease:
        """Returns the lease; an empty one without metadata if it does not exist yet.

        Raises:
            Refused, OutcomeUnknown: see `KubeClient.call`.
        """
        try:
            return self._call("GET", self._path, b"")
        except NotFound:
            return Lease()

    def put(self, lease: Lease) -> Lease:
        """Creates or updates the lease; returns it as the API server stored it.

        Raises:
            Conflict: the lease has changed since it was read.
            Refused, OutcomeUnknown: see `KubeClient.call`.
        """
        if lease.version:
            return self._call("PUT", self._path, _ENCODE(lease))
        created = msgspec.structs.replace(lease, metadata={**lease.metadata, **self._metadata})
        return self._call("POST", self._collection, _ENCODE(created))

    def record(self, note: str, at: float) -> None:
        """Writes an event about the lease with the text `note`; `at` is in seconds since the epoch.

        Raises:
            Refused, OutcomeUnknown: see `KubeClient.call`.
        """
        metadata = self._metadata
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "eventTime": micro_time(at),
            "reportingController": "extender",
            "reportingInstance": note.partition(" ")[0][:_MOST_CHARACTERS],
            "action": "LeaderElection",
            "reason": "LeaderElection",
            "type": "Normal",
            "note": note,
            "regarding": {"apiVersion": GROUP_VERSION, "kind": "Lease", **metadata, "uid": self._uid},
        }
        path = f"{_EVENTS}v1/namespaces/{quote(metadata['namespace'], '')}/events"
        self._client.call(ApiCall("POST", path, _ENCODE(event), timeout_seconds=self._timeout_seconds))

    def _call(self, method: str, path: str, body: bytes) -> Lease:
        lease = self._client.call_for(_DECODE, ApiCall(method, path, body, timeout_seconds=self._timeout_seconds))
        self._uid = lease.metadata.get("uid", "")
        return lease


def micro_time(seconds: float) -> str:
    """Formats seconds since the epoch as a metav1.MicroTime: 2026-11-21T10:23:00.000000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Fence:
    """Records each write, and has a check that this process still leads, which is called just before bytes are sent.

    The decision to write may be old: while this process was paused, waited for a lock or opened a connection, another
    process may have become the leader, even if this one leads again by now. So the sender of a write calls the check
    before the first and the last byte, and for a repetition; no earlier answer of the check would prove anything.

    Attributes:
        noted, has_unknown: see UnsettledWrites.

    Args:
        term: returns the number of this process's present term as the leader; 0 if it does not lead.
    """

    def __init__(self, writes: UnsettledWrites, term: Callable[[], int] = lambda: 1) -> None:
        self.noted = writes.noted
        self.has_unknown = writes.has_unknown
        self._writes = writes
        self._term = term

    def of_this_term(self) -> Fence:
        """Returns a fence for all writes of one decision, which refuses them unless this process leads in this term."""
        term = self._term()
        return Fence(self._writes, lambda: term if self._term() == term else 0)

    def check(self) -> None:
        """Raises Refused, with status 503, if this process does not lead."""
        if not self._term():
            raise Refused("this process is not the leader, so it must not write", 503)


class LeaderBinder:
    """A ports.Binder that records each bind, and binds only while this process leads."""

    def __init__(self, binder: Binder, fence: Fence) -> None:
        self._binder = binder
        self._fence = fence

    def bind(self, binding: Binding, check: Check = always) -> None:
        """See ports.Binder. Without a `check` of the caller, the bind may be sent in any term of this process."""
        # The write is noted before the check, so that the lease is not released while the write may still be sent.
        with self._fence.noted(binding):
            self._binder.bind(binding, self._fence.check if check is always else check)


class LeaderClient(Caller):
    """A client that sends a write only while this process leads, and records it, except events."""

    def __init__(self, client: Caller, fence: Fence) -> None:
        self._client = client
        self._fence = fence

    def call(self, call: ApiCall) -> bytes:
        """See Caller. Raises Refused with status 503 if the call is a write and this process does not lead."""
        if call.method == "GET":
            return self._client.call(call)
        fence = self._fence.of_this_term()
        with nullcontext() if call.path.startswith(_EVENTS) else fence.noted(f"{call.method} {call.path}"):
            return self._client.call(call._replace(check=fence.check))
