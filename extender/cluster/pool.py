"""Keeps connections to a server open between requests; the one that was used last is reused first.

An endpoint is the address of a server and how to connect to it: directly or through a proxy, with or without TLS. If
one connection hangs, the pool closes all connections that were idle at that time. The pool sends a request again only
if the server had closed the connection before the first byte of the response.

`HttpConnection` sends one HTTP/1.1 request at a time; httptools (llhttp) parses the responses. Measured on one machine
against one API server, a POST costs 130 us of CPU here, of which 75 us are for TLS and system calls. It costs 260 us
with a connection of `http.client` and 440 us with urllib3's pool. In addition, `http.client` skips only one interim
response (1xx), and mistakes surplus bytes for the next response.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakSet

import httptools

from extender.errors import OutcomeUnknown, Refused
from extender.runtime.fibers import READABLE, WRITABLE, in_thread, ready
from extender.runtime.ports import Check, always

_PIECE_BYTES = 64 * 1024
_SEND_SECONDS = 10.0
_NO_RESPONSE = "<error>"  # client-go's metrics give this label to a request without a response
Headers = Sequence[tuple[str, str]]  # pairs of a name and a value; a name may occur more than once
ObserveRequest = Callable[[str, str, str, float], object]
"""Receives the method, the host, the status code or "<error>", and the seconds until the response began."""
T = TypeVar("T")


class BrokenExchange(OutcomeUnknown):
    """The connection failed or timed out before the response was complete, or the response is not HTTP.

    Attributes:
        dead: True if the connection ended before the first byte of the response. That happens if the server had
            closed the idle connection.
    """

    def __init__(self, message: str, *, dead: bool = False) -> None:
        super().__init__(message)
        self.dead = dead


class Hung(BrokenExchange):
    """No byte arrived in the allowed time."""


class HttpConnection:
    """A connected socket. One thread uses it at a time; any thread may call `shut`.

    Attributes:
        idle_since: when its last exchange ended, in monotonic seconds; the pool sets it.
        deadline: when the whole current exchange must be complete, in monotonic seconds.
    """

    def __init__(self, sock: socket.socket, host: str) -> None:
        self._socket = sock
        self._host = host
        self.idle_since = 0.0
        self.deadline = inf
        sock.setblocking(False)  # a wait must not block the other fibers of this thread

    def send(self, method: str, target: str, headers: Headers, body: bytes, check: Check = always) -> None:
        """Sends a request, and calls `check` before each piece, so also before the last byte.

        Raises:
            Refused: from `check`, or the deadline has passed. The server cannot have the whole request.
            BrokenExchange: the connection has ended.
        """
        fields = [("Host", self._host), *headers]
        if body or method != "GET":
            fields.append(("Content-Length", str(len(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        unsent = memoryview(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        try:
            while unsent:
                unsent = unsent[self._once_ready(partial(self._send_piece, unsent, check), WRITABLE, _SEND_SECONDS) :]
        except TimeoutError:
            raise Hung("the request could not be sent in time") from None
        except OSError as error:
            raise BrokenExchange(f"the connection ended: {error}", dead=True) from None

    def _send_piece(self, unsent: memoryview, check: Check) -> int:
        if time.monotonic() >= self.deadline:
            raise Refused("the request could not be sent in time", 503)
        check()
        return self._socket.send(unsent)

    def receive(self, silence_seconds: float) -> bytes:
        """Returns the next bytes; b"" at the end of the connection.

        Raises:
            Hung: no byte arrived in `silence_seconds`, or before the deadline.
        """
        try:
            # Waits first, because a read without data would release and take the GIL once more. OpenSSL holds back no
            # data, because a piece has room for a whole TLS record.
            self._wait(READABLE, silence_seconds)
            return self._once_ready(partial(self._socket.recv, _PIECE_BYTES), READABLE, silence_seconds)
        except TimeoutError:
            event = (
                "the response was not complete after" if time.monotonic() >= self.deadline else "no bytes arrived for"
            )
            raise Hung(f"{event} {silence_seconds:.3g} s") from None
        except OSError:
            return b""

    def stale(self) -> bool:
        """Returns True if the server has closed the idle connection, or has sent bytes without a request."""
        return ready(self._socket.fileno(), READABLE, 0)

    def shut(self) -> None:
        """Ends the connection. A thread that waits in `receive` then wakes up."""
        with suppress(OSError):  # the server may already have closed the connection
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket. Only the thread that uses the connection may call this."""
        self._socket.close()

    def _once_ready(self, transfer: Callable[[], T], events: int, seconds: float) -> T:
        """Calls `transfer` again whenever the socket is ready, until it does not block; returns its result.

        Raises:
            TimeoutError: the socket was not ready in `seconds`, or before the deadline.
        """
        while True:
            try:
                return transfer()
            except BlockingIOError:
                self._wait(events, seconds)
            except ssl.SSLWantReadError:  # a TLS record is incomplete, or the server renegotiates
                self._wait(READABLE, seconds)
            except ssl.SSLWantWriteError:
                self._wait(WRITABLE, seconds)

    def _wait(self, events: int, seconds: float) -> None:
        """Waits up to `seconds` until the socket is ready. Raises TimeoutError."""
        if self.deadline != inf:
            seconds = min(seconds, max(self.deadline - time.monotonic(), 0.0))
        if not ready(self._socket.fileno(), events, seconds):
            raise TimeoutError


class Response:
    """The final response to one request, read as it arrives. Interim responses (1xx) are skipped.

    Attributes:
        status: the HTTP status.
        keep_alive: True if the connection can be used again once the response is complete.
        complete: True if the whole body has arrived.
        repeated: True if the request was sent a second time, because its first connection ended without a response.
    """

    def __init__(self, connection: HttpConnection, silence_seconds: float, *, repeated: bool = False) -> None:
        """Reads the status line and the headers.

        Args:
            silence_seconds: the longest time without a byte of the response.

        Raises:
            BrokenExchange: no response arrived, or it is not HTTP.
        """
        self.status = 0
        self.keep_alive = False
        self.complete = False
        self.repeated = repeated
        self._connection = connection
        self._silence_seconds = silence_seconds
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._head_complete = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._silent = True
        while not self._head_complete:
            self._advance()

    def header(self, name: bytes) -> str:
        """Returns the value of the header `name` (in lower case); "" if it is missing."""
        return next((value.decode("latin-1") for field, value in self._fields if field.lower() == name), "")

    def abort(self) -> None:
        """Ends the connection. A thread that waits for a piece of the body gets a BrokenExchange."""
        self._connection.shut()

    def pieces(self) -> Iterator[bytes]:
        """Yields the body in pieces as they arrive. Raises BrokenExchange if the body ends too early or hangs."""
        while True:
            arrived = self._pieces
            self._pieces = []
            if arrived:
                yield arrived[0] if len(arrived) == 1 else b"".join(arrived)
            elif self.complete:
                return
            else:
                self._advance()

    def read(self) -> bytes:
        """Returns the rest of the body. Raises BrokenExchange if the body ends too early or hangs."""
        return b"".join(self.pieces())

    def _advance(self) -> None:
        data = self._connection.receive(self._silence_seconds)
        if not data:
            self._end()
            return
        self._silent = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep_alive = False
            if not self.complete:
                raise BrokenExchange(f"the response is not HTTP: {error}") from None
        if self.complete:
            # Breaks a reference cycle with the parser, which only the garbage collector would free.
            self._parser = None

    def _end(self) -> None:
        """Handles the end of the connection. If the response does not state its length, the body is now complete.

        Raises:
            BrokenExchange: the head is incomplete, or the body is shorter than the response states.
        """
        if not self._head_complete or self.header(b"content-length") or self.header(b"transfer-encoding"):
            raise BrokenExchange("the connection ended before the response was complete", dead=self._silent)
        self.keep_alive = False
        self.complete = True
        self._parser = None

    # ---- callbacks of the parser (httptools)

    def on_message_begin(self) -> None:
        self.keep_alive = False  # a second response answers no request, so the connection must be closed

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if self.complete or 100 <= status < 200:
            return
        self.status = status
        # The value is read now, because the parser forgets it once the message is complete.
        self.keep_alive = self._parser.should_keep_alive()
        self._head_complete = True

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self.complete = True
        else:
            self._fields.clear()


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
    """One request, and its limits.

    Attributes:
        target: the path and query.
        silence_seconds: the longest time without a byte of the response.
        deadline: when the exchange must be complete, in monotonic seconds.
        repeatable: True if the request may be sent again when the server had closed the idle connection.
        check: called before anything is sent: after the connection is open, and again for a repetition.
    """

    method: str
    target: str
    headers: Headers
    silence_seconds: float
    body: bytes = b""
    deadline: float = inf
    repeatable: bool = True
    check: Check = always


class ConnectionPool:
    """The connections of one client. Many exchanges may run at once.

    If one connection hangs, all connections that were idle at that time are closed, because they may hang for the same
    reason.

    Args:
        observe: called when a response begins, or if there is none.
    """

    def __init__(self, connect_seconds: float, most_idle: int = 64, observe: ObserveRequest = lambda *_: None) -> None:
        self._connect_seconds = connect_seconds
        self._most_idle = most_idle
        self._observe = observe
        self._lock = threading.Lock()
        self._idle: list[tuple[Endpoint, HttpConnection]] = []
        self._busy: dict[HttpConnection, Endpoint] = {}
        self._retired: WeakSet[Endpoint] = WeakSet()
        self._closed = False

    @contextmanager
    def exchange(self, endpoint: Endpoint, request: Request) -> Iterator[Response]:
        """Sends a request. The caller reads the response's body in the `with` block.

        Raises:
            Refused: the server cannot be reached, or the request's `check` refuses it.
            BrokenExchange: no complete response arrived in time.
        """
        began_at = time.monotonic()
        try:
            try:
                connection, response = self._send(endpoint, request)
            except BaseException:
                self._observe(request.method, endpoint.host, _NO_RESPONSE, time.monotonic() - began_at)
                raise
            try:
                self._observe(request.method, endpoint.host, str(response.status), time.monotonic() - began_at)
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

    def _send(self, endpoint: Endpoint, request: Request) -> tuple[HttpConnection, Response]:
        connection = self._take_idle(endpoint)
        if connection is not None:
            try:
                return connection, self._send_over(connection, request)
            except BrokenExchange as error:
                # The server may close an idle connection at any moment, even while the request is sent.
                if not (request.repeatable and error.dead) or self._closed:
                    raise
        repeated = connection is not None
        try:
            connection = self._open(endpoint)
            response = self._send_over(connection, request, repeated=repeated)
        except Refused as error:
            if repeated:  # the first attempt may have arrived, even if the second was not sent
                raise OutcomeUnknown(f"no response to the first attempt, and then {error}") from None
            raise
        return connection, response

    def _send_over(self, connection: HttpConnection, request: Request, *, repeated: bool = False) -> Response:
        connection.deadline = request.deadline
        try:
            connection.send(request.method, request.target, request.headers, request.body, request.check)
            return Response(connection, request.silence_seconds, repeated=repeated)
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
