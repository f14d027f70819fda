"""Kept connections: any number of exchanges at once, the connection that was used last is used first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import NamedTuple
from weakref import WeakSet

from extender.cluster.http.endpoint import Endpoint
from extender.cluster.http.http1 import BrokenExchange, HttpConnection, Hung, Response
from extender.errors import OutcomeUnknown, Refused
from extender.runtime.fibers import in_thread


class Request(NamedTuple):
    """One request; `target` is its path and query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class ConnectionPool:
    """Connections that are free are used again, as long as they lead to the endpoint that is asked.

    Where one connection hangs, none that was idle at that time is used again: what froze it froze them, too.
    """

    def __init__(self, connect_seconds: float, idle_kept: int = 64) -> None:
        self._connect_seconds, self._idle_kept = connect_seconds, idle_kept
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
    ) -> Iterator[Response]:
        """Sends a request; the response's body is read within the block.

        Args:
            silence_seconds: the longest pause in the response.
            deadline: when it must be over, in monotonic seconds.
            repeatable: it is sent a second time if a kept connection turns out to be dead.

        Raises:
            Refused: the server cannot be reached.
            BrokenExchange: no response came in time, or it broke off.
        """
        began_at = time.monotonic()
        try:
            connection, response = self._send(endpoint, request, silence_seconds, deadline, repeatable=repeatable)
            try:
                yield response
            finally:
                self._put_back(connection, reusable=response.complete and response.keep_alive)
        except Hung:
            self._end_idle(idle_since_before=began_at)
            raise

    def retire(self, endpoint: Endpoint) -> None:
        """Uses no connection to `endpoint` again; exchanges under way may end."""
        with self._lock:
            self._retired.add(endpoint)
        self._end_idle(endpoint=endpoint)

    def close(self) -> None:
        """Ends every connection; threads that wait on one wake up with a BrokenExchange."""
        with self._lock:
            self._closed = True
            for connection in self._busy:
                connection.shut()
        self._end_idle()

    def _send(
        self, endpoint: Endpoint, request: Request, silence_seconds: float, deadline: float, *, repeatable: bool
    ) -> tuple[HttpConnection, Response]:
        repeated = False
        while True:
            connection = self._take(endpoint, deadline, repeated=repeated)
            kept, connection.used, connection.deadline = connection.used, True, deadline
            try:
                connection.send(*request)
                return connection, Response(connection, silence_seconds, repeated=repeated)
            except BaseException as error:
                self._put_back(connection, reusable=False)
                # The server may close an idle connection at any moment, also as the request is on its way.
                dead = kept and isinstance(error, BrokenExchange) and error.dead
                if not (repeatable and dead) or self._closed:
                    raise
                repeated = True

    def _take(self, endpoint: Endpoint, deadline: float, *, repeated: bool) -> HttpConnection:
        try:
            connection = (None if repeated else self._take_idle(endpoint)) or self._open(endpoint)
            if time.monotonic() >= deadline:  # the process may have been stopped: another may lead by now
                self._put_back(connection, reusable=False)
                raise Refused("it could not be sent in time", 503)
        except Refused as error:
            if repeated:  # its first sending may have arrived: that it cannot be sent again is no refusal
                raise OutcomeUnknown(f"no answer, and then {error}") from None
            raise
        return connection

    def _take_idle(self, endpoint: Endpoint) -> HttpConnection | None:
        """Returns a connection that is free, and that the server has not closed."""
        while True:
            with self._lock:
                found = next((entry for entry in reversed(self._idle) if entry[0] is endpoint), None)
                if found is None:
                    return None
                self._idle.remove(found)
                connection = found[1]
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
            if reusable and in_use and len(self._idle) < self._idle_kept:
                self._idle.append((endpoint, connection))
                return
        connection.close()

    def _end_idle(self, *, endpoint: Endpoint | None = None, idle_since_before: float = inf) -> None:
        def is_meant(each: Endpoint, connection: HttpConnection) -> bool:
            return (endpoint is None or each is endpoint) and connection.idle_since < idle_since_before

        with self._lock:
            ended = [connection for each, connection in self._idle if is_meant(each, connection)]
            self._idle = [entry for entry in self._idle if not is_meant(*entry)]
        for connection in ended:
            connection.close()
