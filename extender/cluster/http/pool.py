"""Keeps connections to a server open between requests; the one that was used last is reused first.

An endpoint is the address of a server and how to connect to it: directly or through a proxy, with or without TLS.
urllib3's pool would use its own connections, which are slower than those of `exchange`; the docstring of `exchange` has
the figures. If one connection hangs, this pool closes all connections that were idle at that time. The pool sends a
request again only if the server had closed the connection before the first byte of the response.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit
from weakref import WeakSet

from extender.cluster.http.exchange import BrokenExchange, Headers, HttpConnection, Hung, Response
from extender.errors import OutcomeUnknown, Refused
from extender.runtime.fibers import in_thread
from extender.runtime.ports import Check, always

_MOST_MILLISECONDS_UNACKNOWLEDGED = 10_000  # like the time limit of a call
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Endpoint:
    """One server with one set of credentials.

    Endpoints are compared by identity, so two endpoints with equal settings do not share connections.

    Attributes:
        host: the value of the Host header.
        server_name: the name that the server's certificate must have.
        tls: the TLS settings with the client's certificate; None for plain HTTP.
    """

    host: str
    address: tuple[str, int]
    server_name: str
    tls: ssl.SSLContext | None = None
    proxy: SplitResult | None = None
    proxy_headers: Mapping[str, str] | None = None

    def dial(self, timeout_seconds: float) -> socket.socket:
        """Opens a connection, with TLS if the endpoint uses it.

        Raises:
            Refused: the server cannot be reached within `timeout_seconds`. Its status is 503, as if from a gateway.
        """
        sock = None
        try:
            sock = self._tunnel(self.proxy, timeout_seconds) if self.proxy else self._direct(timeout_seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The system would retry for many minutes to deliver a request, even after this process has ended. But the
            # next leader counts on it that a write does not arrive so late.
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # macOS has no such option
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MOST_MILLISECONDS_UNACKNOWLEDGED)
            return self.tls.wrap_socket(sock, server_hostname=self.server_name) if self.tls else sock
        except (OSError, ValueError, http.client.HTTPException) as error:
            if sock is not None:
                sock.close()
            raise Refused(f"{self.host} cannot be reached: {one_line(error)}", 503) from None

    def _direct(self, timeout_seconds: float) -> socket.socket:
        return socket.create_connection(self.address, timeout_seconds)

    def _tunnel(self, proxy: SplitResult, timeout_seconds: float) -> socket.socket:
        connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout_seconds)
        connection.set_tunnel(*self.address, headers=self.proxy_headers)
        connection.connect()
        return connection.sock


def address_of(url: SplitResult) -> tuple[str, int]:
    """Returns the URL's host and port (by default the port of its scheme). Raises ValueError if the port is invalid."""
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def split_http_url(text: str) -> SplitResult:
    """Returns the parts of an http or https URL. Raises ValueError for any other text."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"server {text!r} is not an http or https URL")
    return url


def client_context(
    authorities: str | None, pem: bytes, *, verified: bool, cafile: Path | None = None
) -> ssl.SSLContext:
    """Returns a TLS context that trusts `authorities` (PEM), or else `cafile`, or else the system's.

    Args:
        pem: the certificate and key of the client; b"" if the client has no certificate.
        verified: True if the server's certificate is to be verified.

    Raises:
        OSError: a certificate cannot be read (ssl.SSLError).
    """
    context = ssl.create_default_context(cafile=None if authorities else cafile, cadata=authorities)
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pem:
        # The ssl module reads certificates only from files. Other users cannot read a temporary file.
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def content(path: str | Path | None) -> bytes:
    """Returns the content of the file; b"" if no path is given."""
    return Path(path).read_bytes() if path else b""


def one_line(error: Exception) -> str:
    """Returns the error's message in one line, without an errno; the name of its type if the message is empty."""
    return " ".join(_ERRNO.sub("", str(error)).split()) or type(error).__name__


class Request(NamedTuple):
    """One request; `target` is its path and query."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""


class ConnectionPool:
    """The connections of one client. Many exchanges may run at once.

    If one connection hangs, all connections that were idle at that time are closed, because they may hang for the same
    reason.
    """

    def __init__(self, connect_seconds: float, most_idle: int = 64) -> None:
        self._connect_seconds = connect_seconds
        self._most_idle = most_idle
        self._lock = threading.Lock()
        self._idle: list[tuple[Endpoint, HttpConnection]] = []
        self._busy: dict[HttpConnection, Endpoint] = {}
        self._retired: WeakSet[Endpoint] = WeakSet()
        self._closed = False

    @contextmanager
    def exchange(
        self,
        endpoint: Endpoint,
        request: Request,
        silence_seconds: float,
        *,
        deadline: float = inf,
        repeatable: bool = True,
        check: Check = always,
    ) -> Iterator[Response]:
        """Sends a request. The caller reads the response's body in the `with` block.

        Args:
            silence_seconds: the longest time without a byte of the response.
            deadline: when the exchange must be complete, in monotonic seconds.
            repeatable: True if the request may be sent again when the server had closed the idle connection.
            check: called before anything is sent: after the connection is open, and again for a repetition.

        Raises:
            Refused: the server cannot be reached, or `check` refuses the request.
            BrokenExchange: no complete response arrived in time.
        """
        began_at = time.monotonic()
        try:
            connection, response = self._send(
                endpoint, request, silence_seconds, deadline, repeatable=repeatable, check=check
            )
            try:
                yield response
            finally:
                self._put_back(connection, reusable=response.complete and response.keep_alive)
        except Hung:
            self._end_idle(idle_since_before=began_at)
            raise

    def retire(self, endpoint: Endpoint) -> None:
        """Stops reusing connections to `endpoint`. Exchanges that have begun can go on."""
        with self._lock:
            self._retired.add(endpoint)
        self._end_idle(endpoint=endpoint)

    def close(self) -> None:
        """Ends every connection. Threads that wait on one get a BrokenExchange."""
        with self._lock:
            self._closed = True
            for connection in self._busy:
                connection.shut()
        self._end_idle()

    def _send(
        self,
        endpoint: Endpoint,
        request: Request,
        silence_seconds: float,
        deadline: float,
        *,
        repeatable: bool,
        check: Check,
    ) -> tuple[HttpConnection, Response]:
        connection = self._take_idle(endpoint)
        if connection is not None:
            try:
                return connection, self._send_over(connection, request, silence_seconds, deadline, check)
            except BrokenExchange as error:
                # The server may close an idle connection at any moment, even while the request is sent.
                if not (repeatable and error.dead) or self._closed:
                    raise
        repeated = connection is not None
        try:
            connection = self._open(endpoint)
            response = self._send_over(connection, request, silence_seconds, deadline, check, repeated=repeated)
        except Refused as error:
            if repeated:  # the first attempt may have arrived, even if the second was not sent
                raise OutcomeUnknown(f"no response to the first attempt, and then {error}") from None
            raise
        return connection, response

    def _send_over(
        self,
        connection: HttpConnection,
        request: Request,
        silence_seconds: float,
        deadline: float,
        check: Check,
        *,
        repeated: bool = False,
    ) -> Response:
        connection.deadline = deadline
        try:
            connection.send(*request, check)
            return Response(connection, silence_seconds, repeated=repeated)
        except BaseException:
            self._put_back(connection, reusable=False)
            raise

    def _take_idle(self, endpoint: Endpoint) -> HttpConnection | None:
        """Returns an idle connection that the server has not closed; None if there is no such connection."""
        while True:
            with self._lock:
                entry = next((entry for entry in reversed(self._idle) if entry[0] is endpoint), None)
                if entry is None:
                    return None
                self._idle.remove(entry)
                connection = entry[1]
                self._busy[connection] = endpoint
            if not connection.stale():
                return connection
            self._put_back(connection, reusable=False)

    def _open(self, endpoint: Endpoint) -> HttpConnection:
        connection = HttpConnection(in_thread(lambda: endpoint.dial(self._connect_seconds)), endpoint.host)
        with self._lock:
            self._busy[connection] = endpoint
            closed = self._closed
        if closed:
            self._put_back(connection, reusable=False)
            raise Refused("this process has closed its connections", 503)
        return connection

    def _put_back(self, connection: HttpConnection, *, reusable: bool) -> None:
        connection.idle_since = time.monotonic()
        with self._lock:
            endpoint = self._busy.pop(connection)
            in_use = endpoint not in self._retired and not self._closed
            if reusable and in_use and len(self._idle) < self._most_idle:
                self._idle.append((endpoint, connection))
                return
        connection.close()

    def _end_idle(self, *, endpoint: Endpoint | None = None, idle_since_before: float = inf) -> None:
        def is_to_end(its_endpoint: Endpoint, connection: HttpConnection) -> bool:
            return (endpoint is None or its_endpoint is endpoint) and connection.idle_since < idle_since_before

        with self._lock:
            ended = [connection for its_endpoint, connection in self._idle if is_to_end(its_endpoint, connection)]
            self._idle = [entry for entry in self._idle if not is_to_end(*entry)]
        for connection in ended:
            connection.close()
