"""One HTTP/1.1 exchange at a time over a kept connection.

Why not the client's own transport: a POST costs 130 us of CPU this way, 260 us by http.client and 440 us by urllib3's
pool (TLS and system calls alone: 75 us; the same machine, the same API server). llhttp parses, by httptools.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress

import httptools

from extender.errors import OutcomeUnknown

_PIECE_BYTES = 64 * 1024


class BrokenExchange(OutcomeUnknown):
    """The connection ended, hung or made no sense before the answer was complete.

    Attributes:
        dead: it had ended before one byte of the answer came, as kept connections do that the server has let go.
    """

    def __init__(self, message: str, *, dead: bool = False) -> None:
        super().__init__(message)
        self.dead = dead


class Hung(BrokenExchange):
    """Nothing came in the time allowed."""


class Channel:
    """A connected socket to the API server; for one thread at a time, but `shut` may come from any.

    Attributes:
        used: a request was sent on it.
        idle_since: when it was last used, for its owner to note, in monotonic seconds.
    """

    def __init__(self, sock: socket.socket, host: str) -> None:
        self._socket, self._host = sock, host
        self._timeout_seconds = -1.0
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self.used = False
        self.idle_since = 0.0

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Sends a request.

        Raises:
            BrokenExchange: the connection is gone.
        """
        fields = {"Host": self._host, **headers}
        if body or method != "GET":
            fields["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        try:
            self._socket.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        except OSError as error:
            raise BrokenExchange(f"the connection ended: {error}", dead=not isinstance(error, TimeoutError)) from None

    def receive(self, timeout_seconds: float) -> bytes:
        """The next bytes; none at the end of the connection.

        Raises:
            Hung: none came in `timeout_seconds`.
        """
        try:
            self.limit(timeout_seconds)
            # A TLS socket would try to read first, in vain, and lose the interpreter's lock once more for it.
            if isinstance(self._socket, ssl.SSLSocket) and not (
                self._socket.pending() or self._poll.poll(timeout_seconds * 1000)
            ):
                raise TimeoutError
            return self._socket.recv(_PIECE_BYTES)
        except TimeoutError:
            raise Hung(f"nothing came for {timeout_seconds:g} s") from None
        except OSError:
            return b""

    def limit(self, timeout_seconds: float) -> None:
        """How long a system call may take from now on; to say so is one, even where nothing changes."""
        if timeout_seconds != self._timeout_seconds:
            self._socket.settimeout(timeout_seconds)
            self._timeout_seconds = timeout_seconds

    def stale(self) -> bool:
        """Whether the server has closed the idle connection, or said what nobody asked for."""
        return bool(self._poll.poll(0))

    def shut(self) -> None:
        """Ends the connection; a thread that waits in `receive` wakes up."""
        with suppress(OSError):  # the other side may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket; only for the thread that uses the channel."""
        self._socket.close()


class Answer:
    """The answer to one request, read as it comes.

    Attributes:
        status: the HTTP status.
        keep_alive: the connection is good for another exchange once the answer is complete.
        complete: the whole body has come.
        repeated: the request was sent once before, on a connection that ended without a word.
    """

    def __init__(self, channel: Channel, timeout_seconds: float, *, repeated: bool = False) -> None:
        """Reads the head.

        Args:
            timeout_seconds: the longest silence between two pieces.

        Raises:
            BrokenExchange: no answer came, or not of HTTP.
        """
        self.status = 0
        self.repeated = repeated
        self._fields: list[tuple[bytes, bytes]] = []
        self.keep_alive = self.complete = False
        self._channel, self._timeout_seconds = channel, timeout_seconds
        self._pieces: list[bytes] = []
        self._head_complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._silent = True
        while not self._head_complete:
            self._advance()

    def header(self, name: bytes) -> str:
        """The value of the header `name`, in lower case; "" without one."""
        return next((value.decode("latin-1") for field, value in self._fields if field.lower() == name), "")

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes; ends with it.

        Raises:
            BrokenExchange: the body breaks off or hangs.
        """
        while True:
            arrived, self._pieces = self._pieces, []
            if arrived:
                yield arrived[0] if len(arrived) == 1 else b"".join(arrived)
            elif self.complete:
                return
            else:
                self._advance()

    def read(self) -> bytes:
        """The rest of the body. Raises BrokenExchange."""
        while not self.complete:
            self._advance()
        body, self._pieces = b"".join(self._pieces), []
        return body

    def _advance(self) -> None:
        data = self._channel.receive(self._timeout_seconds)
        if not data:
            raise BrokenExchange("the connection ended before the answer did", dead=self._silent)
        self._silent = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise BrokenExchange(f"the answer is not HTTP: {error}") from None

    # ---- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.keep_alive = self._parser.should_keep_alive()  # llhttp knows no more once the message is complete
        self._head_complete = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete = True
