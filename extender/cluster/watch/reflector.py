"""Keeps a sink, usually the cache, equal to the API server's objects of one kind.

This module does no I/O: the caller passes in the bytes of lists and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

from extender.cluster.kube_client import Status
from extender.cluster.watch.api_objects import (
    Malformed,
    Page,
    decode_deep,
    decoders,
    page_type,
    read_page,
    version_number,
)
from extender.cluster.watch.list_watch_state import List, ListWatchFailure, ListWatchState, Step
from extender.model.kinds import Kind
from extender.model.meta import Object
from extender.runtime.ports import LONG_AGO, Sink, Telemetry

T = TypeVar("T")
LONGEST_LINE_BYTES = 64 * 1024 * 1024
# Deletions are kept for longer than a survey takes, because the survey compares its list with them.
DELETION_SECONDS = 300.0


class WatchEvent(msgspec.Struct, gc=False):
    """A line of the response to a watch. `object` is an object of the watched kind, or a Status if `type` is ERROR."""

    type: str
    object: msgspec.Raw


class Deletion(NamedTuple):
    """A deletion that was delivered to the sink.

    Attributes:
        version: the resource version of the deletion.
        at: when it was delivered, in monotonic seconds.
    """

    version: str
    at: float


_DECODE_EVENT = msgspec.json.Decoder(WatchEvent).decode
_DECODE_METADATA = msgspec.json.Decoder(Object).decode
_DECODE_RAW_PAGE = msgspec.json.Decoder(page_type(msgspec.Raw)).decode
_DECODE_STATUS = msgspec.json.Decoder(Status).decode


class Reflector:
    """Passes the lists and watches of one kind to the sink. Times are in monotonic seconds.

    The caller calls `step`, does what the returned step says, and reports the result: with `page` for a list; with
    `opened`, `receive` and `ended` for a watch; with `refused` or `broken` for a failure.

    Attributes:
        state: decides what the reflector does next.
        version_seen: the version of the last list, event or bookmark.
        delivered: the resource version of each object in the sink, by UID. Only the reflector's thread writes it.
        deletions: the deletions that were delivered in the last five minutes, by the object's UID.
        version_listed: the version of the last whole list.
        listed_as_of: when the last whole list was requested, in monotonic seconds.
    """

    def __init__(self, kind: Kind, sink: Sink[Object], telemetry: Telemetry, random: Random) -> None:
        self.kind = kind
        self.state = ListWatchState(random)
        self._sink = sink
        self._telemetry = telemetry
        decode_page, decode_object = decoders(kind)
        self._decode_page = decode_page
        self._decode_object = decode_object
        self._pages: list[Object] = []  # the objects of the list in progress, page by page
        self._asked_at = LONG_AGO  # when the first page of the list in progress was requested
        self._sink_has_objects = False
        self._partial_line = b""
        self.version_seen = 0
        self.delivered: dict[str, str] = {}
        self.deletions: dict[str, Deletion] = {}
        self.version_listed = 0
        self.listed_as_of = LONG_AGO

    def step(self, now: float) -> Step:
        """Returns what the caller must do next: pause, request a page of the list, or watch."""
        self._partial_line = b""
        step = self.state.next(now)
        if isinstance(step, List) and not step.continue_token:
            self._pages = []
            self._asked_at = now
        return step

    def page(self, body: bytes, now: float) -> ListWatchFailure | None:
        """Handles the response to a List step. After the last page, passes the whole list to the sink.

        Returns the failure if the response cannot be read.
        """
        try:
            page = self._read(body)
            self._pages += page.items or ()
            if not page.metadata.continue_token:
                self._deliver_list(version_number(page.metadata.resource_version))
        except Malformed:
            return self.broken(ListWatchFailure.MALFORMED, now)
        self.state.paged(page.metadata.resource_version, page.metadata.continue_token)
        return None

    def opened(self) -> None:
        """Records that the API server has accepted a watch. The watch may still deliver nothing."""
        self.state.opened()

    def receive(self, piece: bytes, now: float) -> ListWatchFailure | None:
        """Passes the events in the next bytes of a watch to the sink; returns the failure if the watch must end."""
        *lines, partial_line = (self._partial_line + piece).split(b"\n")
        self._partial_line = partial_line
        try:
            for line in lines:
                failure = self._deliver_event(line, now)
                if failure:
                    return failure
        except Malformed:
            return self.broken(ListWatchFailure.MALFORMED, now)
        if len(self._partial_line) > LONGEST_LINE_BYTES:
            return self.broken(ListWatchFailure.MALFORMED, now)
        return None

    def ended(self, now: float) -> ListWatchFailure | None:
        """Handles the end of a watch; returns the failure if it ended in the middle of a line."""
        if self._partial_line:
            return self.broken(ListWatchFailure.MALFORMED, now)
        self.state.ended(now)
        return None

    def refused(self, status: int, retry_after_seconds: float, now: float) -> ListWatchFailure:
        """Handles an error status of a response or of an event; returns the failure.

        If the API server no longer serves the kind, deletes all objects of the kind from the sink.
        """
        failure = {410: ListWatchFailure.EXPIRED, 404: ListWatchFailure.UNSERVED}.get(status, ListWatchFailure.OTHER)
        if failure is ListWatchFailure.UNSERVED and self.kind.api_version == "v1":
            # Every API server serves the core group, so this answer must come from another kind of server.
            failure = ListWatchFailure.OTHER
        self.state.failed(failure, now, retry_after_seconds)
        if self._sink_has_objects and not self.state.served:
            self._telemetry.withdrawn(self.kind.name)
            self._sink.replaced(self.kind.name, ())
            self.delivered = {}
            self._sink_has_objects = False
        return failure

    def broken(self, failure: ListWatchFailure, now: float) -> ListWatchFailure:
        """Handles a failure without an error status, such as an unreadable response; returns `failure`."""
        if failure is ListWatchFailure.MALFORMED:
            self._telemetry.watch_event(self.kind.name, "MALFORMED")
        self.state.failed(failure, now)
        return failure

    def _deliver_list(self, version: int) -> None:
        objects = self._pages
        self._pages = []
        delivered = {obj.uid: obj.metadata.resource_version for obj in objects}
        for resource_version in delivered.values():
            version_number(resource_version)  # raises Malformed
        self._sink_has_objects = True
        self._sink.replaced(self.kind.name, objects, self._asked_at)
        self.delivered = delivered
        self.deletions = {}
        self.version_seen = version
        self.version_listed = version
        self.listed_as_of = self._asked_at
        self._telemetry.synced(self.kind.name, self._asked_at)
        if self.state.synced:
            self._telemetry.relisted(self.kind.name)

    def _deliver_event(self, line: bytes, now: float) -> ListWatchFailure | None:
        name = self.kind.name
        event, obj, is_readable = self._decoded(line)
        self._telemetry.watch_event(name, event.type)
        if event.type == "ERROR":
            return self.refused(_status(event.object), 0.0, now)
        version = self._version_of(obj)
        if event.type == "DELETED":
            self._sink.deleted(name, obj)
            self._forget(obj, now)
        elif event.type != "BOOKMARK":
            if is_readable:
                self._sink.changed(name, obj)
            self.delivered[obj.uid] = obj.metadata.resource_version
        self.version_seen = version
        self.state.observed(obj.metadata.resource_version)
        self._telemetry.synced(name, now)
        return None

    def _forget(self, obj: Object, now: float) -> None:
        """Moves the object from `delivered` to `deletions`.

        It is added first, so that a survey in another thread always finds it in one of the two.
        """
        self.deletions[obj.uid] = Deletion(obj.metadata.resource_version, now)
        self.delivered.pop(obj.uid, None)
        while now - self.deletions[oldest := next(iter(self.deletions))].at > DELETION_SECONDS:
            del self.deletions[oldest]

    def _version_of(self, obj: Object) -> int:
        """Returns the object's version.

        Raises:
            Malformed: the version is missing, not a number, or lower than the last one. Events arrive in the order of
                their versions, so a lower version means that the server was restored from a backup or replaced. The
                kind is then listed again.
        """
        if not obj.metadata.resource_version:
            raise Malformed("an event without a version")
        try:
            version = version_number(obj.metadata.resource_version)
        except Malformed:
            version = 0
        if version < max(self.version_seen, 1):
            self.state.distrust()
            raise Malformed(f"version {obj.metadata.resource_version!r} after {self.version_seen}")
        return version

    def _read(self, body: bytes) -> Page[Object]:
        """Decodes a page of a list; leaves out the objects that cannot be read. Raises Malformed if it is no page."""
        try:
            return read_page(self._decode_page, body)
        except Malformed:
            page = read_page(_DECODE_RAW_PAGE, body)
        objects = [self._read_object(raw) for raw in page.items or ()]
        return Page(page.metadata, [obj for obj, is_readable in objects if is_readable])

    def _read_object(self, raw: msgspec.Raw) -> tuple[Object, bool]:
        """Returns the object, and True. If a value in it is faulty, reports that, and returns its metadata and False.

        Raises Malformed if the metadata cannot be read either.
        """
        try:
            return decode_deep(self._decode_object, raw), True
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            obj = _readable(_DECODE_METADATA, raw)
            self._telemetry.unreadable(self.kind.name, obj.key, str(error))
            return obj, False

    def _decoded(self, line: bytes) -> tuple[WatchEvent, Object, bool]:
        """Returns the event, its object, and False if only the object's metadata can be read."""
        event = _readable(_DECODE_EVENT, line)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            return event, *self._read_object(event.object)
        if event.type == "BOOKMARK":
            return event, _readable(_DECODE_METADATA, event.object), True
        if event.type != "ERROR":
            raise Malformed("not an event")
        return event, Object(), True


def _readable(decode: Callable[[bytes], T], body: bytes | msgspec.Raw) -> T:
    """Returns the decoded JSON. Raises Malformed if it cannot be decoded."""
    try:
        return decode_deep(decode, body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed("not an event") from error


def _status(body: msgspec.Raw) -> int:
    try:
        return _DECODE_STATUS(body).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 500
