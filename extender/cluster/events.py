"""Writes events (events.k8s.io/v1). Repeated events become a series in one event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from extender.cluster.election.lease import micro_time
from extender.cluster.kube_client import ApiCall, Caller
from extender.cluster.outbox import Outbox, TokenBucket
from extender.cluster.statuses import MERGE
from extender.errors import NotFound
from extender.model.pod import Pod
from extender.runtime.clock import Clock

_ENCODE = msgspec.json.Encoder().encode
_CAPACITY = 10_000
_REMEMBERED = 10_000
_NOTE_BYTES = 1024  # the API server's limit for an event's note
_ELLIPSIS = " ..."
_SERIES_SECONDS = 360.0  # a series ends after this time without an occurrence (client-go's finishTime)


class _Key(msgspec.Struct, frozen=True, gc=False):
    uid: str
    kind: str
    reason: str
    action: str
    note: str


class _Occurrences(msgspec.Struct, frozen=True, gc=False):
    key: _Key
    pod: Pod
    related: Pod | None
    count: int
    last_at: float


@dataclass(slots=True)
class _Series:
    """An event that was written, how often it has occurred, and when it last occurred."""

    name: str
    count: int
    last_at: float


class ApiEvents:
    """A scheduler_ports.Events that writes in the background. If too many events wait, new ones are dropped."""

    def __init__(
        self,
        client: Caller,
        bucket: TokenBucket,
        clock: Clock,
        instance: str,
        dropped: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Creates the writer; `start` starts its thread.

        Args:
            instance: the name of this process, which the events show.
            dropped: called for each event that is dropped.
        """
        self._client = client
        self._clock = clock
        self._instance = instance
        self._outbox: Outbox[_Key, _Occurrences] = Outbox(
            "events", self._write, _joined, bucket, clock, _CAPACITY, dropped
        )
        self._written: OrderedDict[_Key, _Series] = OrderedDict()
        self.start = self._outbox.start
        self.stop = self._outbox.stop
        self.waiting = self._outbox.waiting

    def record(self, pod: Pod, kind: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:
        key = _Key(pod.uid, kind, reason, action, _shortened(note))
        occurrence = _Occurrences(key, pod, related, 1, self._clock.now())
        self._outbox.put(occurrence.key, occurrence)

    def _write(self, occurrences: _Occurrences) -> None:
        series = self._written.pop(occurrences.key, None)
        if (
            series is None
            or occurrences.last_at - series.last_at > _SERIES_SECONDS
            or not self._continue(series, occurrences)
        ):
            series = self._begin(occurrences)
        self._written[occurrences.key] = series
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    def _continue(self, series: _Series, occurrences: _Occurrences) -> bool:
        """Adds `occurrences` to the event of `series`; returns False if the API server no longer has this event."""
        series.count += occurrences.count
        series.last_at = occurrences.last_at
        try:
            body = {"series": _series(series.count, series.last_at)}
            path = f"{_path(occurrences.pod)}/{quote(series.name, '')}"
            self._client.call(ApiCall("PATCH", path, _ENCODE(body), MERGE))
        except NotFound:
            return False
        return True

    def _begin(self, occurrences: _Occurrences) -> _Series:
        name = f"{occurrences.pod.name[:220]}.{uuid4().hex[:16]}"
        self._client.call(ApiCall("POST", _path(occurrences.pod), _ENCODE(self._event(name, occurrences))))
        return _Series(name, occurrences.count, occurrences.last_at)

    def _event(self, name: str, occurrences: _Occurrences) -> dict[str, Any]:
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": occurrences.pod.namespace},
            "eventTime": micro_time(occurrences.last_at),
            "reportingController": occurrences.pod.spec.scheduler_name or "extender",
            "reportingInstance": self._instance,
            "action": occurrences.key.action,
            "reason": occurrences.key.reason,
            "type": occurrences.key.kind,
            "note": occurrences.key.note,
            "regarding": _reference(occurrences.pod),
        }
        if occurrences.related is not None:
            event["related"] = _reference(occurrences.related)
        return event | ({"series": _series(occurrences.count, occurrences.last_at)} if occurrences.count > 1 else {})


def _shortened(text: str) -> str:
    """Returns the text, shortened to the maximum size of an event's note."""
    data = text.encode()
    if len(data) <= _NOTE_BYTES:
        return text
    return data[: _NOTE_BYTES - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


def _joined(before: _Occurrences, after: _Occurrences) -> _Occurrences:
    return msgspec.structs.replace(after, count=before.count + after.count)


def _series(count: int, last_at: float) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": micro_time(last_at)}


def _reference(pod: Pod) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _path(pod: Pod) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{quote(pod.namespace, '')}/events"
