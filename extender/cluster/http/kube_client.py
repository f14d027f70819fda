"""Calls to the API server: kept connections, time limits on everything, credentials that may change under way."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from math import inf
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from extender.cluster.http.credentials import ClientConfig, Credentials
from extender.cluster.http.http1 import Response
from extender.cluster.http.pool import ConnectionPool, Request
from extender.errors import ClusterError, ConfigurationError, Conflict, NotFound, OutcomeUnknown, Refused
from extender.runtime.fibers import in_thread

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
_RENEWAL_SECONDS = 1.0  # how long a call waits for new credentials: a plugin may take longer, or hang
_AGAIN_SECONDS = 10.0
JSON = "application/json"
_UNAUTHORIZED = 401
_SETTLING = (404, 409)  # they tell how things stand, whichever of two sendings made them so
# A gateway says so when it has given up waiting, whatever has become of the request behind it; 499 is nginx's.
_SAYING_NOTHING = (408, 499)

_NO_ANSWER = "<error>"  # as client-go's metrics say it
ObserveRequest = Callable[[str, str, str, float], object]
"""(method, host, status code or "<error>", seconds until the answer's head)."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Status(msgspec.Struct, gc=False):
    """metav1.Status: what the API server says when it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Caller(ABC):
    """Calls the API server."""

    @abstractmethod
    def call(
        self, method: str, path: str, body: bytes, content_type: str = JSON, timeout_seconds: float = CALL_SECONDS
    ) -> bytes:
        """Sends `body`; returns the answer's body. Nothing is sent later than `timeout_seconds` from now.

        Raises:
            Refused: the API server said no (status 4xx: Conflict, NotFound among them), or cannot be reached (503).
            OutcomeUnknown: any other status than 2xx, an answer that cannot be read, or none; or the first of two
                sendings got none and the second was turned down: that says nothing of the first.
        """

    def call_for(
        self,
        decode: Callable[[bytes], T],
        method: str,
        path: str,
        body: bytes,
        content_type: str = JSON,
        timeout_seconds: float = CALL_SECONDS,
    ) -> T:
        """Returns the answer's object; see `call`. Raises OutcomeUnknown, too, where it cannot be decoded."""
        data = self.call(method, path, body, content_type, timeout_seconds)
        try:
            return decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise OutcomeUnknown(f"the answer to {method} {path} cannot be read: {error}") from None


class KubeClient(Caller):
    """Any number of calls at once, as the credentials say that stand at the time."""

    def __init__(self, credentials: Credentials, observe: ObserveRequest = lambda *_: None) -> None:
        """`observe` is told of every request. Raises ConfigurationError where the credentials cannot be read."""
        self._credentials, self._observe = credentials, observe
        self._config = credentials.load()
        self._headers = {"User-Agent": f"extender/{version('extender')}", "Accept": JSON}
        self._pool = ConnectionPool(CONNECT_SECONDS)
        self._lock = threading.Lock()
        self._renewed: threading.Event | None = None  # set when the renewal under way is over
        self._renewal_began_at = self._renew_again_at = 0.0

    @property
    def address(self) -> str:
        """The URL of the API server."""
        endpoint = self._config.endpoint
        return f"{'https' if endpoint.tls else 'http'}://{endpoint.host}{self._config.base}"

    @contextmanager
    def get(
        self, path: str, query: Mapping[str, str], silence_seconds: float, accept: str = JSON
    ) -> Iterator[Response]:
        """Sends a GET; the response, whatever its status, is read within the block.

        Raises:
            Refused: the API server could not be reached.
            OutcomeUnknown: no answer came in `silence_seconds`, or it broke off.
        """
        config = self._current()
        target = config.base + (f"{path}?{urlencode(query)}" if query else path)
        request = Request("GET", target, self._headers_of(config, {"Accept": accept}))
        with self._exchange(config, request, silence_seconds) as response:
            yield response
        if response.status == _UNAUTHORIZED:
            self._renew(config)

    def call(
        self, method: str, path: str, body: bytes, content_type: str = JSON, timeout_seconds: float = CALL_SECONDS
    ) -> bytes:
        """See Caller. A body is sent a second time if a kept connection turns out to be dead."""
        headers = {"Content-Type": content_type} if body else {}
        config, deadline = self._current(), time.monotonic() + timeout_seconds
        status, data = self._whole(config, method, path, body, headers, deadline)
        if status == _UNAUTHORIZED and (renewed := self._renew(config)) is not config:
            status, data = self._whole(renewed, method, path, body, headers, deadline)
        if not 200 <= status < 300:
            raise error_of(status, data)
        return data

    def close(self) -> None:
        """Ends every connection; threads that wait on one wake up with an OutcomeUnknown."""
        self._pool.close()

    def _whole(
        self,
        config: ClientConfig,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        deadline: float,
    ) -> tuple[int, bytes]:
        request = Request(method, config.base + path, self._headers_of(config, headers), body)
        with self._exchange(config, request, deadline - time.monotonic(), deadline) as response:
            data = response.read()
        status = response.status
        if response.repeated and not 200 <= status < 300 and status not in _SETTLING:
            raise OutcomeUnknown(f"no answer, and then {status}: {message_of(data)}")
        return status, data

    @contextmanager
    def _exchange(
        self, config: ClientConfig, request: Request, silence_seconds: float, deadline: float = inf
    ) -> Iterator[Response]:
        """Sends the request, and has it observed once the head of its answer is there, or none is to come."""
        code, began_at = _NO_ANSWER, time.monotonic()
        try:
            with self._pool.exchange(config.endpoint, request, silence_seconds, deadline=deadline) as response:
                code = str(response.status)
                self._observe(request.method, config.endpoint.host, code, time.monotonic() - began_at)
                yield response
        except Refused:
            self._begin_renewal(config, rejected=False)
            raise
        finally:
            if code is _NO_ANSWER:
                self._observe(request.method, config.endpoint.host, code, time.monotonic() - began_at)

    def _headers_of(self, config: ClientConfig, own: Mapping[str, str]) -> Mapping[str, str]:
        headers = {**self._headers, **own}
        if config.authorization:
            headers["Authorization"] = config.authorization
        return headers

    # ---- credentials

    def _current(self) -> ClientConfig:
        config = self._config
        if time.monotonic() >= config.valid_until:
            self._begin_renewal(config, rejected=False)
        return config

    def _renew(self, rejected: ClientConfig) -> ClientConfig:
        """Returns credentials that were read later than `rejected`, or these if that takes too long."""
        renewed = self._begin_renewal(rejected, rejected=True)
        if renewed is not None:
            in_thread(lambda: renewed.wait(self._renewal_began_at + _RENEWAL_SECONDS - time.monotonic()))
        return self._config

    def _begin_renewal(self, config: ClientConfig, *, rejected: bool) -> threading.Event | None:
        """Has a thread read the credentials, unless one does, or did a moment ago; no call waits for a plugin.

        Also where the server cannot be reached: its certificate may be by another CA now.
        """
        with self._lock:
            now = time.monotonic()
            if self._config is not config or self._renewed is not None or now < self._renew_again_at:
                return self._renewed
            self._renewal_began_at, self._renew_again_at = now, now + _AGAIN_SECONDS
            renewed = threading.Event()
            arguments = (config, rejected, renewed)
            try:
                threading.Thread(target=self._load, args=arguments, name="credentials", daemon=True).start()
            except RuntimeError as error:  # there are too many
                logger.warning("the credentials cannot be read anew, and are tried again: %s", error)
                return None
            self._renewed = renewed
            return renewed

    def _load(self, before: ClientConfig, rejected: bool, renewed: threading.Event) -> None:
        try:
            config = self._credentials.load(before, rejected=rejected)
            if config.endpoint is not before.endpoint:
                self._pool.retire(before.endpoint)
            self._config = config
        except ConfigurationError as error:
            logger.warning("the credentials cannot be read anew, and are tried again: %s", error)
        finally:
            with self._lock:
                self._renewed = None
            renewed.set()


def error_of(status: int, body: bytes) -> ClusterError:
    """Returns the error that an answer of another status than 2xx stands for.

    Only a status of 4xx with a message that can be read is the API server's own "no".
    """
    message = f"{status}: {message_of(body)}"
    if not 400 <= status < 500 or status in _SAYING_NOTHING or not _is_text(body):
        return OutcomeUnknown(message)
    kind = {404: NotFound, 409: Conflict}.get(status, Refused)
    return kind(message, status)


_STATUS = msgspec.json.Decoder(Status)


def message_of(body: bytes) -> str:
    """Returns the message of a Status, or the beginning of whatever `body` is, in one line."""
    try:
        return _STATUS.decode(body).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return " ".join(body[:200].decode("utf-8", "replace").split())


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
