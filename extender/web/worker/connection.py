"""Clients' connections: each is served in a thread, so many at a time; the requests of one are read, answered, sent."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from math import ceil, inf

from extender.runtime.threads import ParkedThreads
from extender.web.answers import CLOSE, render
from extender.web.worker.application import Lifecycle
from extender.web.worker.http1 import Budget, Head, RequestReader, RequestRefused

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS, _LINGER_SECONDS, _PAUSE_SECONDS = 10.0, 2.0, 0.05
_BODIES_AT_ONCE, _BODIES_OF_A_CLIENT = 4, 2


class Phase(IntEnum):
    """The states of a connection, in the order in which connections make way for another."""

    HALF = 0  # the client has sent half a request, or does not take the answer
    NEW = 1  # it has asked nothing yet
    IDLE = 2  # it has got an answer, and may ask again
    BUSY = 3  # a request is worked on; it does not make way


class ClientConnection:
    """Serves one accepted socket until the client leaves, misbehaves or idles, or until `finish` is called.

    Attributes:
        client: the client's address, "" where it has none.
        tls: the context that the connection was made under.
        finishing: no request is answered but the one in flight.
        since: when the client was last waited for, in seconds of the monotonic clock.
    """

    def __init__(
        self, accepted: socket.socket, client: str, application: Lifecycle, budget: Budget, tls: ssl.SSLContext | None
    ) -> None:
        self.client, self.tls = client, tls
        self._socket, self._application, self._budget = accepted, application, budget
        self.finishing, self._timeout_seconds, self._asked = False, 0, ""
        self.phase, self.since = Phase.NEW, time.monotonic()

    def finish(self, *, make_way: bool = False) -> None:
        """Ends the connection after the request in flight; to `make_way`, after none that is not sent in full."""
        self.finishing = True
        # A last request is answered. By the plain socket: SSLSocket.shutdown takes TLS from under the reading thread.
        with suppress(OSError):
            if self.phase in (Phase.NEW, Phase.IDLE):
                socket.socket.shutdown(self._socket, socket.SHUT_RD)
            elif make_way and self.phase is Phase.HALF:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _receive(self, size: int, timeout_seconds: float) -> bytes:
        if self.phase is Phase.BUSY:
            self._enter(Phase.HALF)
        self._limit(timeout_seconds)
        return self._socket.recv(size)

    def _send(self, data: bytes) -> None:
        sent = 0
        if self.tls is None:
            with suppress(BlockingIOError):
                sent = os.write(self._socket.fileno(), data)  # not waiting, as the socket's own method would
        if sent < len(data):
            self._enter(Phase.HALF)
            self._limit(self._application.limits.send_seconds)
            self._socket.sendall(data[sent:])

    def serve(self) -> None:
        """Runs the connection to its end; raises nothing."""
        try:
            self._limit(_HANDSHAKE_SECONDS)
            if self.tls is not None:
                self._socket = secured = self.tls.wrap_socket(self._socket, True, do_handshake_on_connect=False)
                secured.do_handshake()
            self._exchange_all()
        except RequestRefused as refused:
            self._refuse(refused)
        except ssl.SSLCertVerificationError as error:
            _log.warning("a client's certificate was refused: %s", error.verify_message)
        except OSError as error:
            _log.debug("connection ended: %s", error)
        except Exception:
            _log.exception("connection failed")
        finally:
            self._socket.close()

    def _exchange_all(self) -> None:
        limits = self._application.limits
        reader = RequestReader(self._receive, self._send, limits, self._budget, self.client, time.monotonic)
        try:
            while not self.finishing and reader.wait():
                self.phase, self._asked = Phase.BUSY, ""
                head = reader.read_head()
                if head is None or not self._exchange(head, reader):
                    return
                reader.release()
                if self.phase is not Phase.IDLE:
                    self._enter(Phase.IDLE)
        finally:
            reader.release()

    def _exchange(self, head: Head, reader: RequestReader) -> bool:
        """Answers one request. Returns whether another may follow."""
        self._asked = f"{head.method} {head.path}"
        handler = self._application.admit(head, self._socket)
        body = reader.read_body(head)
        self.phase = Phase.BUSY
        answer = handler(body)
        keep = head.keep_alive and not (CLOSE in answer.headers or self.finishing or self._application.draining)
        connection = "close" if not keep else "keep-alive" if head.version == "1.0" else ""
        self._enter(Phase.IDLE)  # already: the client may be quicker than this thread
        self._send(render(answer, connection, head_only=head.method == "HEAD"))
        return keep

    def _refuse(self, refused: RequestRefused) -> None:
        answer = self._application.refuse(refused.status, self.client, self._asked, refused.message)
        with suppress(OSError):
            self._send(render(answer, "close"))
            # Closing with unread bytes resets the connection, and the client would lose the answer.
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
            ends_at = time.monotonic() + _LINGER_SECONDS
            while (left := ends_at - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not socket.socket.recv(self._socket, 1 << 16):
                    return

    def _limit(self, seconds: float) -> None:
        """Limits the time of the socket's next calls, in whole seconds: only where it changes it is a system call."""
        if ceil(seconds) != self._timeout_seconds:
            self._timeout_seconds = ceil(seconds)
            self._socket.settimeout(self._timeout_seconds)

    def _enter(self, phase: Phase) -> None:
        self.phase, self.since = phase, time.monotonic()


class Acceptor:
    """Serves `application` on `listeners`, to no more than `most` connections at once.

    A client's address has three quarters of them at most. Where there are too many, the one makes way for which its
    client has been waited for longest, or else the one that has been idle for longest. `open`: those that are served.
    """

    def __init__(
        self,
        application: Lifecycle,
        listeners: Sequence[socket.socket],
        most: int,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._application, self._listeners, self._tls_context = application, listeners, tls_context
        self._most, self._most_of_client = most, max(1, most - most // 4)
        self._budget = Budget(application.limits.body_bytes, _BODIES_AT_ONCE, _BODIES_OF_A_CLIENT)
        self._threads = ParkedThreads(self._serve, "connection")
        self.open: set[ClientConnection] = set()  # add, discard and copy of a set are atomic
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def turn(self, seconds: float) -> None:
        """Accepts what comes, for so long at most."""
        for key, _ in self._selector.select(seconds):
            self._accept(key.fileobj)  # type: ignore[arg-type]  # only listeners are registered
        self._present_tls()

    def close(self) -> None:
        """Accepts nothing more and lets each connection end after the call in flight."""
        self._selector.close()
        for listener in self._listeners:
            listener.close()
        self.finish()

    def finish(self, idle_since: float = inf) -> None:
        """Ends each connection after the call in flight, if its client was last waited for before that time."""
        for connection in self.open.copy():
            if connection.since < idle_since:
                connection.finish()

    def _present_tls(self) -> ssl.SSLContext | None:
        """Ends connections made under other TLS files than the present: their clients' CA may have been withdrawn."""
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
        except OSError as error:  # out of file descriptors, as a rule
            _log.error("cannot accept a connection: %s", error)
            self._application.refuse(503, "", "", "no connection can be accepted")
            _make_way(self.open.copy())
            time.sleep(_PAUSE_SECONDS)  # not to spin until one is free
            return
        client = str(address[0]) if isinstance(address, tuple) else ""
        if client:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not (self._has_room(client) and self._start(accepted, client)):
            self._application.refuse(503, client, "", "no room for another connection")
            accepted.close()

    def _start(self, accepted: socket.socket, client: str) -> bool:
        connection = ClientConnection(accepted, client, self._application, self._budget, self._present_tls())
        self.open.add(connection)
        try:
            self._threads.take(connection)
        except RuntimeError as error:
            self.open.discard(connection)
            _log.error("cannot serve a connection: %s", error)
            return False
        return True

    def _serve(self, connection: ClientConnection) -> None:
        try:
            connection.serve()
        finally:
            self.open.discard(connection)

    def _has_room(self, client: str) -> bool:
        """Returns whether one more connection may come in; another makes way for it where it can."""
        staying = {each for each in self.open.copy() if not each.finishing or each.phase is Phase.BUSY}
        of_client = {connection for connection in staying if connection.client == client}
        if len(of_client) >= self._most_of_client:
            return _make_way(of_client)
        return len(staying) < self._most or _make_way(staying)


def _make_way(connections: set[ClientConnection]) -> bool:
    """Ends one of the connections. Returns False where a request is worked on for each of them."""
    waiting = [connection for connection in connections if connection.phase is not Phase.BUSY]
    if waiting:
        min(waiting, key=lambda connection: (connection.phase, connection.since)).finish(make_way=True)
    return bool(waiting)
