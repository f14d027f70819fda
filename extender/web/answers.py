"""Creates HTTP answers. Every error is one line of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

Headers = tuple[tuple[str, str], ...]

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
CLOSE = ("Connection", "close")
"""The header of an answer after which the connection is closed."""
_LONGEST_MESSAGE = 1024


class Answer(NamedTuple):
    """A complete answer. `headers` leaves out Content-Type and Content-Length."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Headers = ()


Handler = Callable[[bytes], Answer]
"""Answers the body of a POST. It raises nothing."""
Page = Callable[[Mapping[str, list[str]], str], Answer]
"""Called with the parameters of the query and the Accept header; returns the answer to a request for the page."""


def json_answer(value: object) -> Answer:
    """Returns an answer with status 200 and the value as one line of JSON."""
    return Answer(200, msgspec.json.encode(value) + b"\n")


def error_answer(status: int, message: str, headers: Headers = ()) -> Answer:
    """Returns an answer with the body `{"error": message}` on one line. Cuts a message that is too long."""
    clean = message[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
    return Answer(status, msgspec.json.encode({"error": clean}) + b"\n", JSON, headers)


def health_answer(endpoint: str, checks: Mapping[str, str | None], verbose: bool) -> Answer:
    """Answers as Kubernetes' health endpoints do (k8s.io/apiserver healthz): 200 `ok`, or 503 with the checks.

    Args:
        checks: check -> None if it passed, otherwise what is missing.
        verbose: True to list the checks even if all passed.
    """
    failed = any(missing is not None for missing in checks.values())
    if not failed and not verbose:
        return Answer(200, b"ok", _TEXT)
    lines = [f"[+]{name} ok" if missing is None else f"[-]{name} failed: {missing}" for name, missing in checks.items()]
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return Answer(503 if failed else 200, "".join(line + "\n" for line in lines).encode(), _TEXT)


def status_line(status: int) -> str:
    """Returns the status in the form that WSGI expects, for example "404 Not Found"."""
    return _STATUS_LINES.get(status, f"{status} Unknown")


def header_lines(answer: Answer) -> list[tuple[str, str]]:
    """Returns all headers of `answer`, in the form that WSGI expects.

    There is always a Content-Length: without it a Go client would open a new connection for each call.
    """
    return [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers]


_STATUS_LINES = {int(status): f"{status.value} {status.phrase}" for status in HTTPStatus}
