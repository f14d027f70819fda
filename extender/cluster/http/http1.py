"""One HTTP/1.1 exchange at a time over a kept connection.

A kept connection of `http.client` or of urllib3's pool would do, at a price: a POST costs 130 us of CPU here, 260 us by
http.client and 440 us by urllib3 (TLS and system calls alone: 75 us; the same machine, the same API server), and
http.client passes over one interim answer only and takes surplus bytes for the next one. llhttp parses, by httptools.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

import httptools

from extender.errors import OutcomeUnknown
from extender.runtime.fibers import READABLE, WRITABLE, ready

_PIECE_BYTES = 64 * 1024
_SEND_SECONDS = 10.0
T = TypeVar("T")


class BrokenExchange(OutcomeUnknown):
    """The connection ended, hung or made no sense before the response was complete.

    Attributes:
        dead: it had ended before one byte of the response came, as kept connections do that the server has closed.
    """

    def __init__(self, message: str, *, dead: bool = False) -> None:
        super().__init__(message)
        self.dead = dead


class Hung(BrokenExchange):
    """Nothing came in the time allowed."""


class HttpConnection:
    """A connected socket; for one thread at a time, but `shut` may come from any.

    Attributes:
        used: a request was sent on it.
        idle_since: when its last exchange ended, for its pool to note, in monotonic seconds.
        deadline: when the exchange under way must be over, however it is cut into pieces, in monotonic seconds.
    """

    def __init__(self, sock: socket.socket, host: str) -> None:
        self._socket, self._host = sock, host
        sock.setblocking(False)  # whoever waits lets other fibers of its thread go on
        self.used = False
        self.idle_since, self.deadline = 0.0, inf

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Sends a request. Raises BrokenExchange: the connection is gone."""
        fields = {"Host": self._host, **headers}
        if body or method != "GET":
            fields["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        unsent = memoryview(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        try:
            while unsent:
                unsent = unsent[self._once_ready(partial(self._socket.send, unsent), WRITABLE, _SEND_SECONDS) :]
        except TimeoutError:
            raise Hung("the request could not be sent in time") from None
        except OSError as error:
            raise BrokenExchange(f"the connection ended: {error}", dead=True) from None

    def receive(self, silence_seconds: float) -> bytes:
        """Returns the next bytes; none at the end of the connection.

        Raises:
            Hung: none came in `silence_seconds`, or before the deadline.
        """
        try:
            if not self._pending():  # to read at once, in vain, would lose the interpreter's lock once more for it
                self._wait(READABLE, silence_seconds)
            return self._once_ready(partial(self._socket.recv, _PIECE_BYTES), READABLE, silence_seconds)
        except TimeoutError:
            came = "no whole answer came in" if time.monotonic() >= self.deadline else "nothing came for"
            raise Hung(f"{came} {silence_seconds:.3g} s") from None
        except OSError:
            return b""

    def stale(self) -> bool:
        """Returns whether the server has closed the idle connection, or sent what nobody asked for."""
        return self._pending() or ready(self._socket.fileno(), READABLE, 0)

    def shut(self) -> None:
        """Ends the connection; a thread that waits in `receive` wakes up."""
        with suppress(OSError):  # the other side may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; only for the thread that uses the connection."""
        self._socket.close()

    def _pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.pending())

    def _once_ready(self, transfer: Callable[[], T], events: int, seconds: float) -> T:
        """Returns what `transfer` does as soon as the socket lets it. Raises TimeoutError."""
        while True:
            try:
                return transfer()
            except BlockingIOError:
                self._wait(events, seconds)
            except ssl.SSLWantReadError:  # of a TLS record a part has come; or a server that renegotiates has to speak
                self._wait(READABLE, seconds)
            except ssl.SSLWantWriteError:
                self._wait(WRITABLE, seconds)

    def _wait(self, events: int, seconds: float) -> None:
        """Raises TimeoutError."""
        if self.deadline != inf:
            seconds = min(seconds, max(self.deadline - time.monotonic(), 0.0))
        if not ready(self._socket.fileno(), events, seconds):
            raise TimeoutError


class Response:
    """The final response to one request, read as it comes; interim ones (1xx) are passed over.

    Attributes:
        status: the HTTP status.
        keep_alive: the connection is good for another exchange once the response is complete.
        complete: the whole body has come.
        repeated: the request was sent once before, on a connection that ended without a word.
    """

    def __init__(self, connection: HttpConnection, silence_seconds: float, *, repeated: bool = False) -> None:
        """Reads the head.

        Args:
            silence_seconds: the longest pause between two pieces.

        Raises:
            BrokenExchange: no response came, or not of HTTP.
        """
        self.status = 0
        self.repeated = repeated
        self._fields: list[tuple[bytes, bytes]] = []
        self.keep_alive = self.complete = False
        self._connection, self._silence_seconds = connection, silence_seconds
        self._pieces: list[bytes] = []
        self._head_complete = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._silent = True
        while not self._head_complete:
            self._advance()

    def header(self, name: bytes) -> str:
        """Returns the value of the header `name`, given in lower case; "" without one."""
        return next((value.decode("latin-1") for field, value in self._fields if field.lower() == name), "")

    def abort(self) -> None:
        """Ends the connection; a thread that waits for a piece wakes up with a BrokenExchange."""
        self._connection.shut()

    def pieces(self) -> Iterator[bytes]:
        """Yields the body as it comes, until it is complete. Raises BrokenExchange: the body breaks off or hangs."""
        while True:
            arrived, self._pieces = self._pieces, []
            if arrived:
                yield arrived[0] if len(arrived) == 1 else b"".join(arrived)
            elif self.complete:
                return
            else:
                self._advance()

    def read(self) -> bytes:
        """Returns the rest of the body. Raises BrokenExchange."""
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
                raise BrokenExchange(f"the answer is not HTTP: {error}") from None
        if self.complete:
            self._parser = None  # it holds this object in turn: a circle that only a collection of garbage would free

    def _end(self) -> None:
        """Takes the end of the connection for that of a body that has no other; it is a fault otherwise."""
        if not self._head_complete or self.header(b"content-length") or self.header(b"transfer-encoding"):
            raise BrokenExchange("the connection ended before the answer did", dead=self._silent)
        self.keep_alive, self.complete, self._parser = False, True, None

    # ---- called by the parser

    def on_message_begin(self) -> None:
        self.keep_alive = False  # also where a second response follows the complete one: nobody has asked for it

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if self.complete or 100 <= status < 200:
            return
        self.status = status
        self.keep_alive = self._parser.should_keep_alive()  # llhttp knows no more once the message is complete
        self._head_complete = True

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self.complete = True
        else:
            self._fields.clear()
