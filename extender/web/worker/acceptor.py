"""Accepts connections and serves each in a thread, so many at a time."""

from __future__ import annotations

import logging
import math
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Sequence

from extender.runtime.threads import ParkedThreads
from extender.web.worker.application import Lifecycle
from extender.web.worker.connection import ClientConnection, Phase
from extender.web.worker.http1 import Budget

_log = logging.getLogger(__name__)
_PAUSE_SECONDS, _BODIES_AT_ONCE, _BODIES_OF_A_CLIENT = 0.05, 4, 2


class Acceptor:
    """Serves `application` on `listeners`, to no more than `most` connections at once.

    A client's address has three quarters of them at most. Where there are too many, the one makes way for which its
    client has been waited for longest, or else the one that has been idle for longest.
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
        self._open: set[ClientConnection] = set()  # add, discard and copy of a set are atomic
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

    def finish(self, idle_since: float = math.inf) -> None:
        """Ends each connection after the call in flight, if its client was last waited for before that time."""
        for connection in self._open.copy():
            if connection.since < idle_since:
                connection.finish()

    def open_connections(self) -> int:
        """Returns the number of connections that are served."""
        return len(self._open)

    def _present_tls(self) -> ssl.SSLContext | None:
        """Ends connections made under other TLS files than the present: their clients' CA may have been withdrawn."""
        tls = self._tls_context() if self._tls_context else None
        for connection in self._open.copy():
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
            _make_way(self._open.copy())
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
        self._open.add(connection)
        try:
            self._threads.take(connection)
        except RuntimeError as error:
            self._open.discard(connection)
            _log.error("cannot serve a connection: %s", error)
            return False
        return True

    def _serve(self, connection: ClientConnection) -> None:
        try:
            connection.serve()
        finally:
            self._open.discard(connection)

    def _has_room(self, client: str) -> bool:
        """Returns whether one more connection may come in; another makes way for it where it can."""
        staying = {connection for connection in self._open.copy() if not connection.ending}
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
