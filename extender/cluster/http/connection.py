"""Calls to the API server: kept connections, time limits on everything, credentials that may change under way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from urllib.parse import urlencode

import msgspec

from extender.cluster.http.credentials import Access, Credentials
from extender.cluster.http.http1 import Answer, BrokenExchange, Channel
from extender.errors import ClusterError, ConfigurationError, Conflict, NotFound, OutcomeUnknown, Refused

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
_IDLE_KEPT = 64
_FRESH_SECONDS = 0.2  # what was in use so lately is not looked at again: a dead connection is found out anyway
_JSON = "application/json"
_UNAUTHORIZED = 401
_SETTLING = (404, 409)  # they tell how things stand, whichever of two sendings made them so

logger = logging.getLogger(__name__)


class Status(msgspec.Struct, gc=False):
    """metav1.Status: what the API server says when it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Connection:
    """Any number of calls at once; channels that are free are used again, the latest first."""

    def __init__(self, credentials: Credentials) -> None:
        """Raises ConfigurationError where the credentials cannot be read."""
        self._credentials = credentials
        self._access = credentials.load()
        self._headers = {"User-Agent": f"extender/{version('extender')}", "Accept": _JSON}
        self._lock, self._renewing = threading.Lock(), threading.Lock()
        self._idle: list[tuple[Access, Channel]] = []
        self._busy: set[Channel] = set()
        self._closed = False

    @contextmanager
    def get(self, path: str, query: Mapping[str, str], silence_seconds: float, accept: str = _JSON) -> Iterator[Answer]:
        """The answer to a GET, whatever its status; its body is read within the block.

        Raises:
            Refused: the API server could not be reached.
            OutcomeUnknown: no answer came in `silence_seconds`, or it broke off.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        access = self._access
        channel, answer = self._send(access, "GET", access.base + target, b"", {"Accept": accept}, silence_seconds)
        try:
            yield answer
        finally:
            self._end(access, channel, answer)

    def call(
        self, method: str, path: str, body: bytes, content_type: str = _JSON, silence_seconds: float | None = None
    ) -> bytes:
        """Sends `body`, a second time if a kept connection turns out to be dead; returns the answer's body.

        Raises:
            Refused: the API server said no (status 4xx: Conflict, NotFound among them), or cannot be reached (503).
            OutcomeUnknown: status 5xx, or the connection ended without an answer, or the first of two sendings got none
                and the second was turned down: that says nothing of the first.
        """
        access, headers = self._access, {"Content-Type": content_type} if body else {}
        patience = CALL_SECONDS if silence_seconds is None else silence_seconds
        status, data = self._whole(method, path, body, headers, patience)
        if status == _UNAUTHORIZED and self._access is not access:
            status, data = self._whole(method, path, body, headers, patience)
        if status >= 300:
            raise refusal(status, data)
        return data

    def close(self) -> None:
        """Ends every connection; threads that wait on one wake up with an OutcomeUnknown."""
        with self._lock:
            self._closed = True
            for channel in self._busy:
                channel.shut()
            for _, channel in self._idle:
                channel.close()
            self._idle.clear()

    def _whole(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], silence_seconds: float
    ) -> tuple[int, bytes]:
        access = self._access
        channel, answer = self._send(access, method, access.base + path, body, headers, silence_seconds)
        try:
            data = answer.read()
        finally:
            self._end(access, channel, answer)
        if answer.repeated and answer.status >= 300 and answer.status not in _SETTLING:
            raise OutcomeUnknown(f"no answer, and then {answer.status}: {message_of(data)}")
        return answer.status, data

    def _end(self, access: Access, channel: Channel, answer: Answer) -> None:
        self._put_back(access, channel, reusable=answer.complete and answer.keep_alive)
        if answer.status == _UNAUTHORIZED:
            self._renew(access)

    def _renew(self, rejected: Access) -> None:
        with self._renewing:
            if self._access is not rejected:
                return
            try:
                self._access = self._credentials.load()
            except ConfigurationError as error:
                logger.warning("credentials are no longer accepted and cannot be read anew: %s", error)

    def _send(
        self,
        access: Access,
        method: str,
        target: str,
        body: bytes,
        own_headers: Mapping[str, str],
        silence_seconds: float,
    ) -> tuple[Channel, Answer]:
        headers = {**self._headers, **own_headers}
        if authorization := access.authorization():
            headers["Authorization"] = authorization
        repeated = False
        while True:
            channel = self._take_again(access) if repeated else self._take(access)
            kept, channel.used = channel.used, True
            try:
                channel.send(method, target, headers, body)
                return channel, Answer(channel, silence_seconds, repeated=repeated)
            except BrokenExchange as error:
                self._put_back(access, channel, reusable=False)
                # The server may close an idle connection at any moment, also as the request is on its way.
                if not (kept and error.dead) or self._closed:
                    raise
                repeated = True
            except BaseException:
                self._put_back(access, channel, reusable=False)
                raise

    def _take_again(self, access: Access) -> Channel:
        """For a request whose first sending may have arrived: that it cannot be repeated is no refusal."""
        try:
            return self._take(access)
        except Refused as error:
            raise OutcomeUnknown(f"no answer, and then {error}") from None

    def _take(self, access: Access) -> Channel:
        while (channel := self._take_idle(access)) is not None:
            if time.monotonic() - channel.idle_since < _FRESH_SECONDS or not channel.stale():
                return channel
            self._put_back(access, channel, reusable=False)
        channel = Channel(access.dial(CONNECT_SECONDS), access.host)
        with self._lock:
            self._busy.add(channel)
            closed = self._closed
        if closed:
            self._put_back(access, channel, reusable=False)
            raise Refused("this process has closed its connections", 503)
        return channel

    def _take_idle(self, access: Access) -> Channel | None:
        with self._lock:
            while self._idle:
                owner, channel = self._idle.pop()
                if owner is access:
                    self._busy.add(channel)
                    return channel
                channel.close()
        return None

    def _put_back(self, access: Access, channel: Channel, *, reusable: bool) -> None:
        channel.idle_since = time.monotonic()
        with self._lock:
            self._busy.discard(channel)
            if reusable and access is self._access and not self._closed and len(self._idle) < _IDLE_KEPT:
                self._idle.append((access, channel))
                return
        channel.close()


def refusal(status: int, body: bytes) -> ClusterError:
    """What an answer of status 300 and above means, with the message of the Status in `body`."""
    message = f"{status}: {message_of(body)}"
    if status >= 500:
        return OutcomeUnknown(message)
    kind = {404: NotFound, 409: Conflict}.get(status, Refused)
    return kind(message, status)


def message_of(body: bytes) -> str:
    """The message of a Status, or the beginning of whatever `body` is, in one line."""
    try:
        return msgspec.json.decode(body, type=Status).message
    except msgspec.MsgspecError:
        return " ".join(body[:200].decode("utf-8", "replace").split())
