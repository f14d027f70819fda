"""Writes events (events.k8s.io/v1): what happens again and again becomes a series of one event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec

from extender.cluster.election.lease import micro_time
from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.outbox import Outbox
from extender.cluster.writers.pacing import TokenBucket
from extender.cluster.writers.statuses import MERGE
from extender.errors import NotFound
from extender.model.pod import Pod
from extender.runtime.clock import Clock

_ENCODE = msgspec.json.Encoder().encode
_CAPACITY = 10_000
_REMEMBERED = 10_000
_SERIES_SECONDS = 360.0  # a series that has been quiet for so long is over (client-go's finishTime)


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
    at: float


class _Series:
    """An event that was written: its count and its last time."""

    def __init__(self, name: str, count: int, at: float) -> None:
        self.name, self.count, self.at = name, count, at


class ApiEvents:
    """A scheduler.ports.Events. Where more events wait than fit, new ones are dropped."""

    def __init__(
        self,
        client: Caller,
        bucket: TokenBucket,
        clock: Clock,
        instance: str,
        dropped: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`instance` is the process that reports; `dropped` is told of each event that is given up."""
        self._client, self._clock, self._instance = client, clock, instance
        self._outbox: Outbox[_Key, _Occurrences] = Outbox(
            "events", self._write, _joined, bucket, clock, _CAPACITY, dropped
        )
        self._written: OrderedDict[_Key, _Series] = OrderedDict()
        self.start, self.stop, self.waiting = self._outbox.start, self._outbox.stop, self._outbox.waiting

    def record(self, pod: Pod, kind: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:
        once = _Occurrences(_Key(pod.uid, kind, reason, action, note), pod, related, 1, self._clock.now())
        self._outbox.put(once.key, once)

    def _write(self, seen: _Occurrences) -> None:
        series = self._written.pop(seen.key, None)
        if series is None or seen.at - series.at > _SERIES_SECONDS or not self._continue(series, seen):
            series = self._begin(seen)
        self._written[seen.key] = series
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    def _continue(self, series: _Series, seen: _Occurrences) -> bool:
        """Returns whether the event is still there to be continued."""
        series.count, series.at = series.count + seen.count, seen.at
        try:
            body = {"series": _series(series.count, series.at)}
            self._client.call("PATCH", f"{_path(seen.pod)}/{quote(series.name, '')}", _ENCODE(body), MERGE)
        except NotFound:
            return False
        return True

    def _begin(self, seen: _Occurrences) -> _Series:
        name = f"{seen.pod.name[:220]}.{uuid4().hex[:16]}"
        self._client.call("POST", _path(seen.pod), _ENCODE(self._event(name, seen)))
        return _Series(name, seen.count, seen.at)

    def _event(self, name: str, seen: _Occurrences) -> dict[str, Any]:
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": seen.pod.namespace},
            "eventTime": micro_time(seen.at),
            "reportingController": seen.pod.spec.scheduler_name or "extender",
            "reportingInstance": self._instance,
            "action": seen.key.action,
            "reason": seen.key.reason,
            "type": seen.key.kind,
            "note": seen.key.note,
            "regarding": _reference(seen.pod),
        }
        if seen.related is not None:
            event["related"] = _reference(seen.related)
        return event | ({"series": _series(seen.count, seen.at)} if seen.count > 1 else {})


def _joined(before: _Occurrences, after: _Occurrences) -> _Occurrences:
    return msgspec.structs.replace(after, count=before.count + after.count)


def _series(count: int, at: float) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": micro_time(at)}


def _reference(pod: Pod) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _path(pod: Pod) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{quote(pod.namespace, '')}/events"
