"""Keeps a sink equal to the API server's objects of one kind: bytes of lists and watches in, objects out; no I/O."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from extender.cluster.http.kube_client import Status
from extender.cluster.watch.api_objects import Malformed, decoders, read_page, version_number
from extender.cluster.watch.list_watch_state import List, ListWatchFailure, ListWatchState, Step
from extender.model.kinds import Kind
from extender.model.meta import Object
from extender.runtime.ports import LONG_AGO, Sink, Telemetry

LONGEST_LINE_BYTES = 64 * 1024 * 1024
# Longer than a survey takes: one that lists an object asks whether it was deleted since.
_DELETIONS_KEPT_SECONDS = 300.0


class WatchEvent(msgspec.Struct, gc=False):
    """A line of a watch; what `object` is depends on `type`."""

    type: str
    object: msgspec.Raw


class Deletion(NamedTuple):
    """The deletion of an object: its version, and when it was delivered, in monotonic seconds."""

    version: str
    at: float


_DECODE_EVENT = msgspec.json.Decoder(WatchEvent).decode
_DECODE_BOOKMARK = msgspec.json.Decoder(Object).decode
_DECODE_STATUS = msgspec.json.Decoder(Status).decode


class Reflector:
    """Ask `step` what to do, do it, and tell what came: `page`, `receive` and `ended`, or `refused` and `broken`.

    Attributes:
        state: how far it is.
        version_seen: the version of the last list, event or bookmark.
        delivered: the resource version of each object that the sink has, by UID. Only the reflector's thread writes it.
        deletions: those that were delivered in the last five minutes, by UID.
        version_listed: the version of the last whole list.
        listed_as_of: when that list was asked for, in monotonic seconds.
    """

    def __init__(self, kind: Kind, sink: Sink[Object], telemetry: Telemetry, random: Random) -> None:
        self.kind = kind
        self._sink, self._telemetry = sink, telemetry
        self.state = ListWatchState(random)
        self._decode_page, self._decode_object = decoders(kind)
        self._listed: list[Object] = []
        self._asked_at = LONG_AGO  # for the list that is under way
        self._told = False  # the sink may hold objects
        self._rest = b""
        self.version_seen = 0
        self.delivered: dict[str, str] = {}
        self.deletions: dict[str, Deletion] = {}
        self.version_listed = 0
        self.listed_as_of = LONG_AGO

    def step(self, now: float) -> Step:
        """Returns the next step; `now` in monotonic seconds, as everywhere here."""
        self._rest = b""
        step = self.state.next(now)
        if isinstance(step, List) and not step.continue_token:
            self._listed, self._asked_at = [], now
        return step

    def page(self, body: bytes, now: float) -> ListWatchFailure | None:
        """Takes the answer to a List; returns the failure that it turned out to be, if any."""
        try:
            page = read_page(self._decode_page, body)
            self._listed += page.items or ()
            if not page.metadata.continue_token:
                self._tell_list(version_number(page.metadata.resource_version))
        except Malformed:
            return self.broken(ListWatchFailure.MALFORMED, now)
        self.state.paged(page.metadata.resource_version, page.metadata.continue_token)
        return None

    def opened(self) -> None:
        """Notes that the API server has accepted a watch. It proves nothing: a watch may stay open and silent."""
        self.state.opened()

    def receive(self, piece: bytes, now: float) -> ListWatchFailure | None:
        """Takes a piece of a watch's stream; returns the failure that ends the watch, if any."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        try:
            for line in lines:
                failure = self._event(line, now)
                if failure:
                    return failure
        except Malformed:
            return self.broken(ListWatchFailure.MALFORMED, now)
        return self.broken(ListWatchFailure.MALFORMED, now) if len(self._rest) > LONGEST_LINE_BYTES else None

    def ended(self, now: float) -> ListWatchFailure | None:
        """Notes that the stream of a watch is over; returns the failure that this is, if any."""
        if self._rest:
            return self.broken(ListWatchFailure.MALFORMED, now)
        self.state.ended(now)
        return None

    def refused(self, status: int, retry_after_seconds: float, now: float) -> ListWatchFailure:
        """Takes a refusal, as the answer or in the midst of a watch; returns the failure that it is."""
        failure = {410: ListWatchFailure.EXPIRED, 404: ListWatchFailure.UNSERVED}.get(status, ListWatchFailure.OTHER)
        if failure is ListWatchFailure.UNSERVED and self.kind.api_version == "v1":
            failure = ListWatchFailure.OTHER  # every API server serves the core group: something else has answered
        self.state.failed(failure, now, retry_after_seconds)
        if self._told and not self.state.served:
            self._telemetry.withdrawn(self.kind.name)
            self._sink.replaced(self.kind.name, ())
            self.delivered = {}
            self._told = False
        return failure

    def broken(self, failure: ListWatchFailure, now: float) -> ListWatchFailure:
        """Notes that the API server could not be reached, or that what it sent broke off or makes no sense."""
        if failure is ListWatchFailure.MALFORMED:
            self._telemetry.watch_event(self.kind.name, "MALFORMED")
        self.state.failed(failure, now)
        return failure

    def _tell_list(self, version: int) -> None:
        listed, self._listed = self._listed, []
        delivered = {obj.uid: obj.metadata.resource_version for obj in listed}
        for resource_version in delivered.values():
            version_number(resource_version)  # raises Malformed
        self._told = True
        self._sink.replaced(self.kind.name, listed, self._asked_at)
        self.delivered = delivered
        self.deletions = {}
        self.version_seen = self.version_listed = version
        self.listed_as_of = self._asked_at
        self._telemetry.synced(self.kind.name, self._asked_at)
        if self.state.synced:
            self._telemetry.relisted(self.kind.name)

    def _event(self, line: bytes, now: float) -> ListWatchFailure | None:
        name = self.kind.name
        event, obj = self._decoded(line)
        self._telemetry.watch_event(name, event.type)
        if event.type == "ERROR":
            return self.refused(_status(event.object), 0.0, now)
        version = self._version_of(obj)
        if event.type == "DELETED":
            self._sink.deleted(name, obj)
            self._forget(obj, now)
        elif event.type != "BOOKMARK":
            self._sink.changed(name, obj)
            self.delivered[obj.uid] = obj.metadata.resource_version
        self.version_seen = version
        self.state.observed(obj.metadata.resource_version)
        self._telemetry.synced(name, now)
        return None

    def _forget(self, obj: Object, now: float) -> None:
        """Moves the object to the deletions first, so that a survey in another thread finds it in one of both."""
        self.deletions[obj.uid] = Deletion(obj.metadata.resource_version, now)
        self.delivered.pop(obj.uid, None)
        while now - self.deletions[oldest := next(iter(self.deletions))].at > _DELETIONS_KEPT_SECONDS:
            del self.deletions[oldest]

    def _version_of(self, obj: Object) -> int:
        """Returns the object's version. Raises Malformed, and distrusts what came so far, where it is none to follow.

        Events come in order: otherwise one of the two is not of this server, or it was restored from a copy.
        """
        if not obj.metadata.resource_version:
            raise Malformed("no version")
        try:
            version = version_number(obj.metadata.resource_version)
        except Malformed:
            version = 0
        if version < max(self.version_seen, 1):
            self.state.distrust()
            raise Malformed(f"version {obj.metadata.resource_version!r} after {self.version_seen}")
        return version

    def _decoded(self, line: bytes) -> tuple[WatchEvent, Object]:
        try:
            event = _DECODE_EVENT(line)
            if event.type in ("ADDED", "MODIFIED", "DELETED"):
                return event, self._decode_object(event.object)
            if event.type == "BOOKMARK":
                return event, _DECODE_BOOKMARK(event.object)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Malformed("no event") from error
        if event.type != "ERROR":
            raise Malformed("no event")
        return event, Object()


def _status(body: msgspec.Raw) -> int:
    try:
        return _DECODE_STATUS(body).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 500
