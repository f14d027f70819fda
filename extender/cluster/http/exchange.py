"""Sends one HTTP/1.1 request at a time over a connection that stays open.

httptools (llhttp) parses the responses. Measured on one machine against one API server, a POST costs 130 us of CPU
here, of which 75 us are for TLS and system calls. It costs 260 us with a connection of `http.client` and 440 us with
urllib3's pool. In addition, `http.client` skips only one interim response (1xx), and mistakes surplus bytes for the
next response.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

import httptools

from extender.errors import OutcomeUnknown, Refused
from extender.runtime.fibers import READABLE, WRITABLE, ready
from extender.runtime.ports import Check, always

_PIECE_BYTES = 64 * 1024
_SEND_SECONDS = 10.0
Headers = Sequence[tuple[str, str]]  # pairs of a name and a value; a name may occur more than once
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
            if not self._pending():  # avoids a read without data, which would release and take the GIL once more
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
        return self._pending() or ready(self._socket.fileno(), READABLE, 0)

    def shut(self) -> None:
        """Ends the connection. A thread that waits in `receive` then wakes up."""
        with suppress(OSError):  # the server may already have closed the connection
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket. Only the thread that uses the connection may call this."""
        self._socket.close()

    def _pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.pending())

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
