"""An HTTP answer, and the one-line JSON that every error of the front is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

import msgspec

Headers = Sequence[tuple[str, str]]

JSON = "application/json"
_LONGEST_MESSAGE = 1024


class Answer(NamedTuple):
    """A complete answer. `headers` are those beside Content-Type and Content-Length."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Headers = ()


def error_answer(status: int, message: str, headers: Headers = ()) -> Answer:
    """`{"error": message}` on one line; of a message that quotes too much of a request, the beginning."""
    clean = message[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
    return Answer(status, msgspec.json.encode({"error": clean}) + b"\n", JSON, headers)


@lru_cache(maxsize=64)
def status_line(status: int) -> str:
    """Status and reason as WSGI wants them: "404 Not Found"."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def wsgi_headers(answer: Answer) -> list[tuple[str, str]]:
    """All headers of `answer`."""
    return [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers]


# What the connection decides, not the application.
_OURS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


def render(
    status: str, headers: Iterable[tuple[str, str]], body: bytes, connection: str = "", head_only: bool = False
) -> bytes:
    """The answer as it goes over the wire; always with a Content-Length, or a Go client keeps opening connections.

    An answer to HEAD (`head_only`) keeps the Content-Length of the body that it leaves out.

    Raises:
        ValueError: a header would break out of its line.
    """
    ours = _OURS - {"content-length"} if head_only else _OURS
    head = _head(status, tuple([field for field in headers if field[0].lower() not in ours]), connection)
    if head_only or status.startswith(_BODILESS):
        return head + b"\r\n"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def render_answer(answer: Answer, date: str, connection: str = "") -> bytes:
    """See `render`; for all requests but HEAD."""
    head = _answer_head(answer.status, answer.content_type, tuple(answer.headers), date, connection)
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(answer.body), answer.body)


@lru_cache(maxsize=64)
def _answer_head(
    status: int, content_type: str, headers: tuple[tuple[str, str], ...], date: str, connection: str
) -> bytes:
    others = [field for field in headers if field[0].lower() not in _OURS]
    return _head(status_line(status), (("Content-Type", content_type), *others, ("Date", date)), connection)


@lru_cache(maxsize=64)
def _head(status: str, headers: tuple[tuple[str, str], ...], connection: str) -> bytes:
    """The lines that are the same for many answers."""
    lines = [f"HTTP/1.1 {status}", *[f"{name}: {value}" for name, value in headers]]
    if connection:
        lines.append(f"Connection: {connection}")
    if any(character in line for line in lines for character in "\r\n\0"):
        raise ValueError("a header of the answer holds a control character")
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


_BODILESS = ("1", "204", "304")
