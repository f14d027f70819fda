"""Reads HTTP/1.1 requests from a blocking byte source, strictly and within limits.

The head is parsed by httptools (Node's llhttp), which refuses what request smuggling is made of: bare LF, folded lines,
space before a colon, Content-Length beside Transfer-Encoding or twice, control characters. What llhttp leaves to its
user is refused here: other versions, a missing or repeated Host, transfer codings other than chunked, sizes. Heads that
come again and again, as a scheduler's do, are read once. Sources: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import httptools

from extender.web.worker.limits import Budget, Limits, Refusal

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END_OF_HEAD = b"\r\n\r\n"
_PIECE_BYTES = 64 * 1024
_BODY_PIECE_BYTES = 1024 * 1024
_MOST_REMEMBERED_BYTES = 1024


class Source(Protocol):
    """The client's end of a connection."""

    def receive(self, size: int, timeout_seconds: float) -> bytes:
        """Up to `size` bytes, b"" at the end; raises TimeoutError after `timeout_seconds`."""

    def send(self, data: bytes) -> None:
        """Sends all of `data`."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a head says: `target` as sent (path and query), header names in lower case.

    Attributes:
        json_post: the path that JSON is posted to, in a request that says nothing else of matter; "" in any other.
    """

    method: str
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    content_length: int
    chunked: bool
    expects_continue: bool
    json_post: str


@dataclass(slots=True)
class Request:
    """One request, its body whole. Requests that begin alike may share their head."""

    head: Head
    keep_alive: bool
    body: bytes = b""


class _Parsed:
    """Collects what llhttp calls back for one request."""

    __slots__ = ("begun", "complete", "fields", "head_done", "headers", "pieces", "target")

    def __init__(self, fields: int) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.fields = fields
        self.begun = 0
        self.head_done = self.complete = False

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done and len(self.headers) <= self.fields:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.head_done = True

    def on_body(self, piece: bytes) -> None:
        if not self.complete:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True


class RequestReader:
    """Reads the requests of one connection, one after another; pipelined ones wait in the buffer."""

    def __init__(self, source: Source, limits: Limits, budget: Budget, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._limits = limits
        self._budget = budget
        self._monotonic = monotonic
        self._buffer = b""
        self._taken = 0

    def wait(self) -> bool:
        """Waits for the first byte of a request; False when the client is gone or idle for too long."""
        if not self._buffer:
            try:
                self._buffer = self._source.receive(_PIECE_BYTES, self._limits.idle_seconds)
            except TimeoutError:
                return False
        return bool(self._buffer)

    def read(self) -> Request | None:
        """The request whose first bytes `wait` saw; None when the client left before its head was complete.

        Raises:
            Refusal: it is malformed, too large or too slow.
        """
        head = self._head()
        if head is None:
            return None
        read_head = _remembered_head if len(head) <= _MOST_REMEMBERED_BYTES else _read_head
        said = read_head(head, self._limits.fields)
        request = Request(said, said.keep_alive)
        self._body(request, head)
        return request

    def release(self) -> None:
        """The last request's body is no longer held: gives its bytes back to the budget."""
        if self._taken:
            self._budget.give_back(self._taken)
            self._taken = 0

    def _head(self) -> bytes | None:
        buffer, deadline = self._buffer.lstrip(b"\r\n"), None
        while (end := buffer.find(_END_OF_HEAD)) < 0:
            if len(buffer) > self._limits.head_bytes:
                raise Refusal(431, f"the request's head is longer than {self._limits.head_bytes} bytes")
            deadline = deadline or self._monotonic() + self._limits.head_seconds
            piece = self._receive(_PIECE_BYTES, deadline, "head")
            if not piece:
                return None
            buffer = (buffer + piece).lstrip(b"\r\n")
        end += len(_END_OF_HEAD)
        if end > self._limits.head_bytes:
            raise Refusal(431, f"the request's head is longer than {self._limits.head_bytes} bytes")
        self._buffer = buffer[end:]
        return buffer[:end]

    def _body(self, request: Request, head: bytes) -> None:
        said, length = request.head, request.head.content_length
        if length > self._limits.body_bytes:
            raise Refusal(413, f"the body has {length} bytes, the limit is {self._limits.body_bytes}")
        if said.expects_continue and (said.chunked or length) and not self._buffer:
            self._source.send(_CONTINUE)
        if said.chunked:
            self._chunked_body(request, *_parse_head(head, self._limits.fields))
        elif length:
            self._sized_body(request, length)

    def _sized_body(self, request: Request, length: int) -> None:
        buffer = self._buffer
        if len(buffer) >= length:
            request.body, self._buffer = buffer[:length], buffer[length:]
            return
        pieces, missing = [buffer], length - len(buffer)
        deadline = self._monotonic() + self._limits.body_seconds
        while missing:
            piece = self._receive_body(min(missing, _BODY_PIECE_BYTES), deadline)
            pieces.append(piece)
            missing -= len(piece)
        request.body, self._buffer = b"".join(pieces), b""

    def _chunked_body(self, request: Request, parsed: _Parsed, parser: httptools.HttpRequestParser) -> None:
        # The limit counts the bytes on the wire, so that chunk extensions and trailers cannot go round it.
        piece, left = self._buffer, self._limits.body_bytes
        deadline = self._monotonic() + self._limits.body_seconds
        while True:
            left -= len(piece)
            if left < 0:
                raise Refusal(413, f"the body is longer than {self._limits.body_bytes} bytes")
            _feed(parser, piece, parsed)
            if parsed.complete:
                break
            piece = self._receive_body(_PIECE_BYTES, deadline)
        # llhttp does not tell where the body ended: a request pipelined behind it is dropped with the connection.
        request.keep_alive = request.keep_alive and parsed.begun == 1
        request.body, self._buffer = b"".join(parsed.pieces), b""

    def _receive_body(self, size: int, deadline: float) -> bytes:
        piece = self._receive(size, deadline, "body")
        if not piece:
            raise Refusal(400, "the body ended early")
        self._budget.take(len(piece))
        self._taken += len(piece)
        return piece

    def _receive(self, size: int, deadline: float, part: str) -> bytes:
        left = deadline - self._monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            return self._source.receive(size, left)
        except TimeoutError:
            raise Refusal(408, f"the request's {part} did not arrive in time") from None


def _read_head(head: bytes, most_fields: int) -> Head:
    """Raises Refusal."""
    parsed, parser = _parse_head(head, most_fields)
    version = _version(parsed, parser)
    fields = dict(parsed.headers)
    return Head(
        parser.get_method().decode(),
        parsed.target,
        version,
        parsed.headers,
        parser.should_keep_alive(),
        int(fields.get(b"content-length", b"0")),
        b"transfer-encoding" in fields,
        _expects_continue(version, fields),
        _json_post(parser.get_method(), parsed.target, fields),
    )


_remembered_head = lru_cache(maxsize=256)(_read_head)


def _parse_head(head: bytes, most_fields: int) -> tuple[_Parsed, httptools.HttpRequestParser]:
    parsed = _Parsed(most_fields)
    parser = httptools.HttpRequestParser(parsed)
    _feed(parser, head, parsed)
    if not parsed.head_done or parsed.begun != 1:
        raise Refusal(400, "malformed request head")
    if len(parsed.headers) > most_fields:
        raise Refusal(431, f"more than {most_fields} header fields")
    return parsed, parser


def _feed(parser: httptools.HttpRequestParser, data: bytes, parsed: _Parsed) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # An offer to change protocols may be ignored (RFC 9110, 7.8).
    except httptools.HttpParserError as error:
        if not parsed.complete:
            raise Refusal(400, f"malformed request: {error}") from None


def _version(parsed: _Parsed, parser: httptools.HttpRequestParser) -> str:
    """The version of HTTP, once nothing is found to be wrong with the head."""
    version, names = parser.get_http_version(), [name for name, _ in parsed.headers]
    if version not in ("1.1", "1.0"):
        raise Refusal(505, f"HTTP/{version} is not spoken here: use HTTP/1.1")
    if names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
        raise Refusal(400, "want exactly one Host header")
    if not parsed.target.startswith((b"/", b"http://", b"https://")):
        raise Refusal(400, "want a path as the request's target")
    for name in (b"content-type", b"transfer-encoding", b"content-length"):
        if names.count(name) > 1:
            raise Refusal(400, f"more than one {name.decode().title()} header")
    if b"transfer-encoding" in names:
        if version == "1.0":
            raise Refusal(400, "HTTP/1.0 has no Transfer-Encoding")
        if dict(parsed.headers)[b"transfer-encoding"].strip().lower() != b"chunked":
            raise Refusal(501, "the only Transfer-Encoding spoken here is chunked")
    return version


def _json_post(method: bytes, target: bytes, fields: dict[bytes, bytes]) -> str:
    # Targets with a query, escapes or a host are not for those who take short cuts.
    plain = target.startswith(b"/") and target.isascii() and not set(target) & set(b"%?#")
    json = fields.get(b"content-type") == b"application/json" and b"content-encoding" not in fields
    return target.decode() if method == b"POST" and plain and json else ""


def _expects_continue(version: str, fields: dict[bytes, bytes]) -> bool:
    expectation = fields.get(b"expect")
    if expectation is None or version == "1.0":
        return False
    if expectation.strip().lower() != b"100-continue":
        raise Refusal(417, "the only expectation met here is 100-continue")
    return True
