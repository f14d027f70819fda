"""Reads HTTP/1.1 requests from a blocking byte source, strictly and within limits.

The grammar is that of RFC 9112, without what it allows for old times' sake; refused is all that request smuggling is
made of: bare CR or LF, folded lines, space before a colon, Content-Length beside Transfer-Encoding or twice, a missing
or repeated Host, transfer codings other than chunked, control characters. Heads that come again and again, as a
scheduler's do, are parsed once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from urllib.parse import unquote_to_bytes

Send = Callable[[bytes], None]
Receive = Callable[[int, float], bytes]
"""Returns up to so many bytes, b"" at the end. Raises TimeoutError after so many seconds."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_PIECE_BYTES, _BODY_PIECE_BYTES = 64 * 1024, 1024 * 1024
_LARGEST_CACHED_HEAD_BYTES, _LONGEST_CHUNK_LINE_BYTES, _MOST_CHUNKS = 1024, 1024, 16 * 1024

_REQUEST_LINE = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE) ([!-~]+) HTTP/([0-9]\.[0-9])")
_FIELD = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):([\t -~\x80-\xff]*)")
_ABSOLUTE = re.compile(rb"https?://((?:[-.0-9A-Za-z_~%]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?)(/[^?]*)?(?:\?(.*))?")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[ -~\t\x80-\xff]*)?")
_ONCE = (b"content-type", b"content-encoding", b"transfer-encoding", b"content-length", b"host")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, fields and seconds that one client may take up (for head and body: from their first byte)."""

    body_bytes: int = 64 * 1024 * 1024
    head_bytes: int = 32 * 1024
    fields: int = 100
    idle_seconds: float = 120.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    send_seconds: float = 60.0


class RequestRefused(Exception):
    """The request gets this status and the connection ends, because what follows on it cannot be trusted."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Budget:
    """Counts the bytes of bodies that all connections of a server hold together, and those of each client.

    Of bodies as large as they may be, `most` fit in at once, and `most_of_client` of one client.
    """

    def __init__(self, body_bytes: int, most: int, most_of_client: int) -> None:
        self._left, self._client_bytes = most * body_bytes, most_of_client * body_bytes
        self._taken = Counter[str]()
        self._lock = Lock()

    def take(self, client: str, size: int) -> None:
        """Raises RequestRefused (503) where `size` more bytes would be too many."""
        with self._lock:
            if size > self._left or self._taken[client] + size > self._client_bytes:
                raise RequestRefused(503, "too many large requests at once: try again")
            self._left -= size
            self._taken[client] += size

    def give_back(self, client: str, size: int) -> None:
        with self._lock:
            self._left += size
            self._taken[client] -= size
            if not self._taken[client]:
                del self._taken[client]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A request's head. Requests may share one.

    Attributes:
        path: unquoted, each character a byte, as WSGI has PATH_INFO.
        fields: by name in lower case, those of one name joined by commas.
    """

    method: str
    path: str
    query: str
    version: str
    fields: Mapping[bytes, bytes]
    keep_alive: bool
    content_length: int
    chunked: bool
    expects_continue: bool

    def field(self, name: bytes) -> str:
        """Returns the value of the header `name`, given in lower case; "" without one."""
        return self.fields.get(name, b"").decode("latin-1")


class RequestReader:
    """Reads the requests of one client's connection, one after another; pipelined ones wait in the buffer."""

    def __init__(
        self, receive: Receive, send: Send, limits: Limits, budget: Budget, client: str, clock: Callable[[], float]
    ) -> None:
        self._receive_piece, self._send, self._monotonic = receive, send, clock
        self._limits, self._budget, self._client = limits, budget, client
        self._buffer = b""
        self._taken = 0

    def wait(self) -> bool:
        """Waits for the first byte of a request; False when the client is gone or idle for too long."""
        if not self._buffer:
            with suppress(TimeoutError):
                self._buffer = self._receive_piece(_PIECE_BYTES, self._limits.idle_seconds)
        return bool(self._buffer)

    def read_head(self) -> Head | None:
        """Returns the head whose first bytes `wait` saw; None when the client left before it was complete.

        Raises:
            RequestRefused: it is malformed, too large or too slow.
        """
        buffer, deadline, most = self._buffer.lstrip(b"\r\n"), None, self._limits.head_bytes
        while (end := buffer.find(_END_OF_HEAD)) < 0 and len(buffer) <= most:
            deadline = deadline or self._monotonic() + self._limits.head_seconds
            piece = self._receive(_PIECE_BYTES, deadline, "head")
            if not piece:
                return None
            buffer = (buffer + piece).lstrip(b"\r\n")
        if not 0 < end <= most - len(_END_OF_HEAD):
            raise RequestRefused(431, f"the request's head is longer than {most} bytes")
        self._buffer = buffer[end + len(_END_OF_HEAD) :]
        parse = _cached_head if end <= _LARGEST_CACHED_HEAD_BYTES else parse_head
        return parse(buffer[:end], self._limits.fields)

    def read_body(self, head: Head) -> bytes:
        """Returns the whole body that follows `head`; it counts in the budget until `release`.

        Raises:
            RequestRefused: it is malformed, too large or too slow.
        """
        if not head.chunked and not head.content_length:
            return b""
        if head.content_length > self._limits.body_bytes:
            raise self._too_large(f"{head.content_length} bytes")
        if head.expects_continue and not self._buffer:
            self._send(_CONTINUE)
        deadline = self._monotonic() + self._limits.body_seconds
        self._take(len(self._buffer))
        return self._chunks(deadline) if head.chunked else self._exactly(head.content_length, deadline)

    def release(self) -> None:
        """Gives the bytes of the last request's body back to the budget."""
        if self._taken:
            self._budget.give_back(self._client, self._taken)
            self._taken = 0

    def _exactly(self, length: int, deadline: float) -> bytes:
        pieces, missing = [self._buffer[:length]], length - len(self._buffer)
        self._buffer = self._buffer[length:]
        while missing > 0:
            pieces.append(self._receive_body(min(missing, _BODY_PIECE_BYTES), deadline))
            missing -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _chunks(self, deadline: float) -> bytes:
        # The limit counts the bytes on the wire, so that chunk extensions and trailers cannot go round it.
        pieces, wire_bytes = [], 0
        for _ in range(_MOST_CHUNKS):
            line = self._line(deadline)
            size = _CHUNK.fullmatch(line)
            if size is None:
                raise RequestRefused(400, "malformed request: not the size of a chunk")
            length = int(size[1], 16)
            wire_bytes += len(line) + length + 4
            if wire_bytes > self._limits.body_bytes:
                raise self._too_large("more bytes")
            if not length:
                break
            pieces.append(self._exactly(length, deadline))
            if self._exactly(2, deadline) != b"\r\n":
                raise RequestRefused(400, "malformed request: a chunk is longer than it says")
        else:
            raise self._too_large("too many chunks")
        while trailer := self._line(deadline):
            wire_bytes += len(trailer)
            if wire_bytes > self._limits.body_bytes or not _FIELD.fullmatch(trailer):
                raise RequestRefused(400, "malformed request: trailer fields")
        return b"".join(pieces)

    def _line(self, deadline: float) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0 and len(self._buffer) <= _LONGEST_CHUNK_LINE_BYTES:
            self._buffer += self._receive_body(_PIECE_BYTES, deadline)
        if not 0 <= end <= _LONGEST_CHUNK_LINE_BYTES:
            raise RequestRefused(400, "malformed request: a chunk's line without an end")
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line

    def _receive_body(self, size: int, deadline: float) -> bytes:
        piece = self._receive(size, deadline, "body")
        if not piece:
            raise RequestRefused(400, "the body ended early")
        self._take(len(piece))
        return piece

    def _take(self, size: int) -> None:
        self._budget.take(self._client, size)
        self._taken += size

    def _receive(self, size: int, deadline: float, part: str) -> bytes:
        left = deadline - self._monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            return self._receive_piece(size, left)
        except TimeoutError:
            raise RequestRefused(408, f"the request's {part} did not arrive in time") from None

    def _too_large(self, size: str) -> RequestRefused:
        return RequestRefused(413, f"the body has {size}, the limit is {self._limits.body_bytes}")


def parse_head(raw: bytes, most_fields: int) -> Head:
    """Returns the head in `raw`, which ends before the empty line. Raises RequestRefused."""
    first, *lines = raw.split(b"\r\n")
    said = _REQUEST_LINE.fullmatch(first)
    if said is None:
        raise RequestRefused(400, "malformed request line")
    method, target, version = said[1].decode(), said[2], said[3].decode()
    if version not in ("1.1", "1.0"):
        raise RequestRefused(505, f"HTTP/{version} is not spoken here: use HTTP/1.1")
    if len(lines) > most_fields:
        raise RequestRefused(431, f"more than {most_fields} header fields")
    fields = _fields(lines, version)
    path, query, authority = _parts(target)
    if authority:  # which counts, whatever the Host header says (RFC 9112, 3.2.2)
        fields = {**fields, b"host": authority}
    chunked, length = _framing(fields, version)
    options = {option.strip().lower() for option in fields.get(b"connection", b"").split(b",")}
    keep_alive = b"close" not in options and (version == "1.1" or b"keep-alive" in options)
    expects = fields.get(b"expect", b"").lower() if version == "1.1" else b""
    if expects not in (b"", b"100-continue"):
        raise RequestRefused(417, "the only expectation met here is 100-continue")
    return Head(method, path, query, version, fields, keep_alive, length, chunked, bool(expects))


_cached_head = lru_cache(maxsize=256)(parse_head)


def _fields(lines: list[bytes], version: str) -> Mapping[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for line in lines:
        parts = _FIELD.fullmatch(line)
        if parts is None:
            raise RequestRefused(400, "malformed header field")
        name, value = parts[1].lower(), parts[2].strip(b" \t")
        if name in fields:
            if name in _ONCE:
                raise RequestRefused(400, f"more than one {name.decode().title()} header")
            value = fields[name] + b"," + value
        fields[name] = value
    if version == "1.1" and b"host" not in fields:
        raise RequestRefused(400, "want exactly one Host header")
    return fields


def _framing(fields: Mapping[bytes, bytes], version: str) -> tuple[bool, int]:
    """Returns whether the body is chunked, and else its length."""
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if coding is None:
        if length is not None and not (length.isdigit() and len(length) < 16):
            raise RequestRefused(400, "Content-Length is not a number of bytes")
        return False, int(length or 0)
    if length is not None or version == "1.0" or b"upgrade" in fields:
        raise RequestRefused(400, "Transfer-Encoding with Content-Length, with Upgrade or in HTTP/1.0")
    *others, last = (each.strip().lower() for each in coding.split(b","))
    if others or last != b"chunked":
        raise RequestRefused(501 if last == b"chunked" else 400, "the only Transfer-Encoding spoken here is chunked")
    return True, 0


def _parts(target: bytes) -> tuple[str, str, bytes]:
    """Returns the path, the query and the authority, b"" where the target is a path."""
    authority = b""
    if target.startswith(b"/"):
        path, _, query = target.partition(b"?")
    elif absolute := _ABSOLUTE.fullmatch(target):
        authority, path, query = absolute[1], absolute[2] or b"/", absolute[3] or b""
    else:
        raise RequestRefused(400, "want a path as the request's target")
    return unquote_to_bytes(path).decode("latin-1"), query.decode("latin-1"), authority
