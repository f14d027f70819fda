"""Serves clients' connections with one thread for each, and limits their number.

`ClientConnection` reads the head of a request and calls the application, as WSGI (PEP 3333) defines it. `Application`
is all that it knows of the application. The body is received only when the application reads it, so that a client that
may not call cannot send one.

`Places` decides which connection is closed when no place is left for a new one. A stranger on the network needs no
credentials to open connections, and kubelet's probes, which must not fail, have none either: they come from the node's
address. So places are shared between client addresses. An address with few connections never makes way for one with
many, and some places are kept for addresses that have next to none.
"""

from __future__ import annotations

import atexit
import logging
import os
import selectors
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import IntEnum
from functools import lru_cache, partial
from math import ceil, inf
from threading import Lock, Thread
from types import FrameType
from typing import Any, Protocol

from extender.runtime.threads import ParkedThreads
from extender.web.answers import CLOSE, Answer, header_lines, status_line
from extender.web.request_parser import Head, Limits, RequestParser, RequestRefused

Environ = dict[str, Any]
"""The environment of a request, as WSGI (PEP 3333) defines it."""


@dataclass
class Lifecycle:
    """The functions that a server calls to start, drain and stop our application, and the limits for its clients.

    Attributes:
        on_start: starts the threads of the application (watches, timers), which would not survive the fork.
        on_stop: stops these threads.
        compare: compares the cache with the API server soon. Called on SIGUSR2; must be safe in a signal handler.
        hand_over: hands over the lease. Runs in a separate thread when draining begins.
        reload: reads the policy again soon. Called on SIGHUP; must be safe in a signal handler.
    """

    limits: Limits
    drain_seconds: float = 0.0
    on_start: Callable[[], None] = lambda: None
    on_stop: Callable[[], None] = lambda: None
    compare: Callable[[], None] = lambda: None
    hand_over: Callable[[], None] = lambda: None
    reload: Callable[[], None] = lambda: None
    started: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def start(self) -> None:
        """Starts the application; further calls do nothing."""
        with self._lock:
            if not self.started:
                self.on_start()
                self.started = True

    def drain(self) -> None:
        """Makes the process unready, and starts to hand over the lease; calls are still answered."""
        if not self.draining:
            self.draining = True
            Thread(target=self.hand_over, name="hand-over", daemon=True).start()

    def stop(self) -> None:
        """Stops a started application; further calls do nothing."""
        with self._lock:
            if self.started and not self._stopped:
                self._stopped = True
                self.on_stop()


class Application(Protocol):
    """A WSGI application that our worker can serve."""

    lifecycle: Lifecycle

    def __call__(self, environ: Environ, _start_response: Any, /) -> Iterable[bytes]: ...

    def refuse(self, status: int, client: str, request: str, reason: str) -> Answer:
        """Counts and logs a request that was refused before it could be passed on. Returns the answer to it."""


def take_signals(lifecycle: Lifecycle) -> None:
    """Sets signal handlers for gunicorn's own workers, which do not call `lifecycle` themselves.

    SIGTERM makes the process unready before the worker stops. SIGUSR2 compares the cache with the API server. At exit
    the application is stopped.

    This works because such a worker sets its own handlers before it loads the application. With --preload the
    application is loaded first, so the handlers set here are lost. `worker.ThreadPerConnection` replaces them too, but
    it calls `lifecycle` itself.
    """
    stop_worker = signal.getsignal(signal.SIGTERM)
    if not callable(stop_worker) or threading.current_thread() is not threading.main_thread():
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if lifecycle.draining:
            stop_worker(number, frame)
            return
        lifecycle.drain()
        # The first signal only starts the drain. A second one ends the worker after the drain.
        again = threading.Timer(lifecycle.drain_seconds, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.siginterrupt(signal.SIGTERM, False)
    signal.signal(signal.SIGUSR2, lambda *_: lifecycle.compare())
    atexit.register(lifecycle.stop)


_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS, _LINGER_SECONDS, _PAUSE_SECONDS = 10.0, 2.0, 0.05
_BODIES_AT_ONCE, _BODIES_OF_A_CLIENT = 4, 2
_MOST_PIECE_BYTES = 1024 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Budget:
    """Limits the memory that request bodies take.

    Args:
        body_bytes: the largest size of a body.
        most: all clients together may use the memory of this many bodies.
        most_of_client: one client may use the memory of this many bodies.
    """

    def __init__(self, body_bytes: int, most: int, most_of_client: int) -> None:
        self._free_bytes = most * body_bytes
        self._client_bytes = most_of_client * body_bytes
        self._taken_bytes = Counter[str]()
        self._lock = Lock()

    def take(self, client: str, size: int) -> None:
        """Reserves `size` bytes for the client. Raises RequestRefused (503) if a limit would be exceeded."""
        with self._lock:
            if size > self._free_bytes or self._taken_bytes[client] + size > self._client_bytes:
                raise RequestRefused(503, "too many large requests at once: try again")
            self._free_bytes -= size
            self._taken_bytes[client] += size

    def give_back(self, client: str, size: int) -> None:
        with self._lock:
            self._free_bytes += size
            self._taken_bytes[client] -= size
            if not self._taken_bytes[client]:
                del self._taken_bytes[client]


class RequestBody:
    """The body of a request, as `wsgi.input`.

    Args:
        receive: receives the body from the client.
        received: True if the request has no body.
    """

    def __init__(self, receive: Callable[[], bytes], received: bool) -> None:
        self._receive = receive
        self.received = received

    def read(self, _size: int = -1) -> bytes:
        """Returns the whole body, however many bytes are asked for; b"" if it was read before.

        Raises:
            RequestRefused: the body is malformed, too large or too slow, or the client has left.
        """
        if self.received:
            return b""
        try:
            body = self._receive()
        except OSError as error:
            raise RequestRefused(400, "the body ended early") from error
        self.received = True
        return body


class ClientConnection:
    """Serves one accepted socket until the client leaves, misbehaves or idles, or until `finish` is called.

    Attributes:
        client: the client's address, "" if it has none.
        tls: the TLS context of the connection; None without TLS.
        finishing: True if the connection ends after the request in flight.
        since: when the connection began to wait for the client, in seconds of the monotonic clock.
    """

    def __init__(
        self, accepted: socket.socket, client: str, application: Application, budget: Budget, tls: ssl.SSLContext | None
    ) -> None:
        self.client = client
        self.tls = tls
        self.finishing = False
        self.phase = Phase.NEW
        self.since = time.monotonic()
        self._socket = accepted
        self._application = application
        self._limits = application.lifecycle.limits
        self._parser = RequestParser(self._limits)
        self._budget = budget
        self._budgeted_bytes = 0
        self._timeout_seconds = 0
        self._request = ""

    def finish(self, *, make_way: bool = False) -> None:
        """Ends the connection after the request in flight.

        Args:
            make_way: True to end the connection even if the client has sent part of a request.
        """
        self.finishing = True
        # The socket below TLS is shut down, because SSLSocket.shutdown would remove TLS while another thread reads.
        with suppress(OSError):
            if self.phase in (Phase.NEW, Phase.IDLE):
                socket.socket.shutdown(self._socket, socket.SHUT_RD)
            elif make_way and self.phase in (Phase.HALF, Phase.LINGERING):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def serve(self) -> None:
        """Answers requests until the connection ends; raises nothing."""
        try:
            self._limit(_HANDSHAKE_SECONDS)
            if self.tls is not None:
                self._socket = secured = self.tls.wrap_socket(self._socket, True, do_handshake_on_connect=False)
                secured.do_handshake()
            self._exchange_all()
        except RequestRefused as refused:
            self._refuse(refused)
        except ssl.SSLCertVerificationError as error:
            _log.warning("client certificate refused client=%s reason=%r", self.client, error.verify_message)
        except OSError as error:
            _log.debug("connection ended client=%s reason=%r", self.client, str(error))
        except Exception:
            _log.exception("connection failed client=%s", self.client)
        finally:
            self._socket.close()

    def _exchange_all(self) -> None:
        shared = environ_of_connection(self._socket)
        try:
            while not self.finishing and self._await_request():
                self.phase = Phase.BUSY
                self._request = ""
                head = self._read_head()
                if head is None or not self._exchange(head, shared):
                    return
                self._release()
                if self.phase is not Phase.IDLE:
                    self._enter(Phase.IDLE)
        finally:
            self._release()

    def _exchange(self, head: Head, shared: Environ) -> bool:
        """Answers one request. Returns True if another may follow."""
        self._request = f"{head.method} {head.path}"
        body = RequestBody(partial(self._read_body, head), received=not (head.chunked or head.content_length))
        status, headers, content = self._call(environ_of(shared, head, body))
        if CLOSE not in headers:
            body.read()  # reads what the application has not, because the next request follows it
        keep = head.keep_alive and not (CLOSE in headers or self.finishing or self._application.lifecycle.draining)
        connection = "close" if not keep else "keep-alive" if head.version == "1.0" else ""
        # The phase is set before the answer is sent, because the next request may arrive at once.
        self._enter(Phase.IDLE)
        self._send(render(status, headers, content, connection))
        if not body.received:
            self._linger()
        return keep

    def _call(self, environ: Environ) -> tuple[str, Sequence[tuple[str, str]], bytes]:
        """Returns the status, the headers and the body of the application's answer."""
        started: list[tuple[str, Sequence[tuple[str, str]]]] = []
        parts = self._application(environ, lambda status, headers, _=None: started.append((status, headers)))
        content = b"".join(parts)
        if close := getattr(parts, "close", None):
            close()
        return *started[-1], content

    # ---- reading within limits of time and size

    def _await_request(self) -> bool:
        """Waits for the first byte of a request. Returns False if the client leaves or idles for too long."""
        if not self._parser.buffered:
            with suppress(TimeoutError):
                self._parser.feed(self._receive(self._limits.idle_seconds))
        return bool(self._parser.buffered)

    def _read_head(self) -> Head | None:
        """Returns the head of the next request; None if the client leaves before the head is complete.

        Raises:
            RequestRefused: the head is malformed, too large or too slow.
        """
        deadline: float | None = None
        while (head := self._parser.next_head()) is None:
            deadline = deadline or time.monotonic() + self._limits.head_seconds
            data = self._receive_before(deadline, "head")
            if not data:
                return None
            self._parser.feed(data)
        return head

    def _read_body(self, head: Head) -> bytes:
        """Receives the body that follows `head`. Until `_release`, it counts against the memory limits of `Budget`.

        Raises:
            RequestRefused: the body is malformed, too large or too slow.
        """
        buffered = self._parser.buffered
        self._take(buffered)
        deadline = time.monotonic() + self._limits.body_seconds
        while (body := self._parser.next_body()) is None:
            if head.expects_continue and not buffered:
                self._send(_CONTINUE)
                buffered = 1
            data = self._receive_before(deadline, "body")
            if not data:
                raise RequestRefused(400, "the body ended early")
            self._take(len(data))
            self._parser.feed(data)
        self.phase = Phase.BUSY
        return body

    def _receive_before(self, deadline: float, part: str) -> bytes:
        try:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            return self._receive(seconds)
        except TimeoutError:
            raise RequestRefused(408, f"the request's {part} did not arrive in time") from None

    def _receive(self, timeout_seconds: float) -> bytes:
        if self.phase is Phase.BUSY:
            self._enter(Phase.HALF)
        self._limit(timeout_seconds)
        return self._socket.recv(min(self._parser.wanted, _MOST_PIECE_BYTES))

    def _take(self, size: int) -> None:
        self._budget.take(self.client, size)
        self._budgeted_bytes += size

    def _release(self) -> None:
        """Gives the memory of the last body back to the budget."""
        if self._budgeted_bytes:
            self._budget.give_back(self.client, self._budgeted_bytes)
            self._budgeted_bytes = 0

    # ---- writing

    def _send(self, data: bytes) -> None:
        sent = 0
        if self.tls is None:
            with suppress(BlockingIOError):
                sent = os.write(self._socket.fileno(), data)  # os.write does not wait, unlike the socket's `send`
        if sent < len(data):
            self._enter(Phase.HALF)
            self._limit(self._limits.send_seconds)
            self._socket.sendall(data[sent:])

    def _refuse(self, refused: RequestRefused) -> None:
        answer = self._application.refuse(refused.status, self.client, self._request, refused.message)
        with suppress(OSError):
            self._send(render(status_line(answer.status), header_lines(answer), answer.body, "close"))
            self._linger()

    def _linger(self) -> None:
        """Waits until the client has read the answer.

        Closing a socket with unread bytes resets the connection, and the client would lose the answer.
        """
        socket.socket.shutdown(self._socket, socket.SHUT_WR)
        self._enter(Phase.LINGERING)
        deadline = self.since + _LINGER_SECONDS
        while (seconds := deadline - time.monotonic()) > 0:
            self._socket.settimeout(seconds)
            if not socket.socket.recv(self._socket, 1 << 16):
                return

    def _limit(self, seconds: float) -> None:
        """Sets the time limit of the socket's next calls. It is rounded up to whole seconds to save system calls."""
        if ceil(seconds) != self._timeout_seconds:
            self._timeout_seconds = ceil(seconds)
            self._socket.settimeout(self._timeout_seconds)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()


def environ_of_connection(connected: socket.socket) -> Environ:
    """Returns the part of the WSGI environment that all requests of a connection share."""
    client, server = _host_port(connected.getpeername()), _host_port(connected.getsockname())
    return {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if isinstance(connected, ssl.SSLSocket) else "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "gunicorn.socket": connected,
        "SCRIPT_NAME": "",
        "SERVER_NAME": server[0],
        "SERVER_PORT": server[1],
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": client[1],
    }


def environ_of(shared: Environ, head: Head, body: RequestBody) -> Environ:
    """Returns the WSGI environment of a request; `shared` is that of its connection."""
    environ = {
        **shared,
        "wsgi.input": body,
        "REQUEST_METHOD": head.method,
        "PATH_INFO": head.path,
        "QUERY_STRING": head.query,
        "SERVER_PROTOCOL": "HTTP/" + head.version,
    }
    for name, value in head.fields.items():
        # WSGI cannot tell `a_b` from `a-b`, and `wsgi.input` has no chunks.
        if b"_" not in name and name != b"transfer-encoding":
            environ[_variable(name)] = value.decode("latin-1")
    return environ


@lru_cache(maxsize=256)
def _variable(name: bytes) -> str:
    """Returns the name that WSGI gives to a header."""
    variable = name.decode("latin-1").upper().replace("-", "_")
    return variable if variable in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + variable


def render(status: str, headers: Iterable[tuple[str, str]], content: bytes, connection: str = "") -> bytes:
    """Returns an answer as the bytes to send. `connection` is the value of its header Connection; "" for none."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers if name != "Connection")]
    lines.append(_date(int(time.time())))
    if connection:
        lines.append(f"Connection: {connection}")
    return "\r\n".join((*lines, "\r\n")).encode("latin-1") + content


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return f"Date: {formatdate(seconds, usegmt=True)}"


def _host_port(address: object) -> tuple[str, str]:
    return (str(address[0]), str(address[1])) if isinstance(address, tuple) else ("localhost", "")


class Acceptor:
    """Serves `application` on `listeners`, with at most `most` connections at once; see `Places`.

    Attributes:
        open: the connections that are being served.
    """

    def __init__(
        self,
        application: Application,
        listeners: Sequence[socket.socket],
        most: int,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._application = application
        self._listeners = listeners
        self._tls_context = tls_context
        self._places = Places(most)
        self._budget = Budget(application.lifecycle.limits.body_bytes, _BODIES_AT_ONCE, _BODIES_OF_A_CLIENT)
        self._threads = ParkedThreads(self._serve, "connection")
        self.open: set[ClientConnection] = set()  # needs no lock: `add`, `discard` and `copy` of a set are atomic
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def turn(self, seconds: float) -> None:
        """Waits at most `seconds` for new connections, and accepts them."""
        for key, _ in self._selector.select(seconds):
            self._accept(key.fileobj)  # type: ignore[arg-type]  # only listeners are registered
        self._current_tls()

    def close(self) -> None:
        """Stops accepting, and ends each connection after the request in flight."""
        self._selector.close()
        for listener in self._listeners:
            listener.close()
        self.finish()

    def finish(self, idle_since: float = inf) -> None:
        """Ends the connections whose attribute `since` is before `idle_since`; by default, ends all connections.

        `idle_since` is in monotonic seconds. A request in flight is still answered.
        """
        for connection in self.open.copy():
            if connection.since < idle_since:
                connection.finish()

    def _current_tls(self) -> ssl.SSLContext | None:
        """Returns the current TLS context, and ends connections made with an earlier one.

        The earlier context may have trusted a CA that is no longer trusted.
        """
        tls = self._tls_context() if self._tls_context else None
        for connection in self.open.copy():
            if connection.tls is not tls:
                connection.finish()
        return tls

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:  # usually the process has no file descriptors left
            _log.error("connection not accepted reason=%r", str(error))
            self._application.refuse(503, "", "", "the process has no file descriptors left for another connection")
            make_way(self.open.copy())
            time.sleep(_PAUSE_SECONDS)  # waits a moment, because another attempt would fail at once, too
            return
        client = str(address[0]) if isinstance(address, tuple) else ""
        if client:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not (self._places.make_room(client, self.open.copy()) and self._start(accepted, client)):
            self._application.refuse(503, client, "", "too many open connections")
            accepted.close()

    def _start(self, accepted: socket.socket, client: str) -> bool:
        connection = ClientConnection(accepted, client, self._application, self._budget, self._current_tls())
        self.open.add(connection)
        try:
            self._threads.take(connection)
        except RuntimeError as error:
            self.open.discard(connection)
            _log.error("connection closed, no thread can serve it client=%s reason=%r", client, str(error))
            return False
        return True

    def _serve(self, connection: ClientConnection) -> None:
        try:
            connection.serve()
        finally:
            self.open.discard(connection)


_FEW = 4  # kubelet sends at most this many probes of one container at once
_MOST_SHARES = 8  # an address may always have an eighth of the places, however many addresses there are


class Phase(IntEnum):
    """The states of a connection, in the order in which connections are closed to make room for new ones."""

    LINGERING = 0  # the request was refused, and the client is given time to read why
    NEW = 1  # no request has arrived yet
    HALF = 2  # the client has sent only part of a request, or does not read the answer
    IDLE = 3  # the last request was answered, and another may arrive
    BUSY = 4  # a request is being handled; such a connection is not closed


class Holder(Protocol):
    """A connection that has a place. See `ClientConnection` for the attributes."""

    client: str
    phase: Phase
    since: float
    finishing: bool

    def finish(self, *, make_way: bool = False) -> None: ...


class Places:
    """Limits connections to `most`.

    One address gets at most three quarters of the places. The last eighth is for addresses with fewer than four
    connections. When places run out, an address gets one of its own places, or one of an address that has more. The
    addresses that have more than an equal share come first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_client = max(1, most - most // 4)
        self._most_for_all = most - most // 8

    def make_room(self, client: str, connections: Collection[Holder]) -> bool:
        """Returns True if a new connection of `client` may be served; may close another connection for that."""
        staying = [each for each in connections if not each.finishing or each.phase is Phase.BUSY]
        counts = Counter(each.client for each in staying)
        of_client = counts[client]
        is_full = len(staying) >= (self._most if of_client < _FEW else self._most_for_all)
        if of_client >= self._most_of_client:
            return make_way([each for each in staying if each.client == client])
        if not is_full:
            return True
        share = self._most // min(len({*counts, client}), _MOST_SHARES)
        yielding = [
            each
            for each in staying
            if each.client == client or counts[each.client] > of_client or each.phase is Phase.LINGERING
        ]
        return make_way(yielding, {address for address, count in counts.items() if count > share})


def make_way(connections: Collection[Holder], above_share: Collection[str] = ()) -> bool:
    """Closes one of the connections. Returns False if all are busy.

    A connection that only lingers is closed first, then one of the addresses in `above_share`.
    """
    waiting = [each for each in connections if each.phase is not Phase.BUSY]
    if waiting:
        min(waiting, key=lambda each: _order(each, above_share)).finish(make_way=True)
    return bool(waiting)


def _order(connection: Holder, above_share: Collection[str]) -> tuple[bool, bool, Phase, float]:
    phase = connection.phase  # read once, because the connection's own thread may change it
    return phase is not Phase.LINGERING, connection.client not in above_share, phase, connection.since
