"""Creates HTTP answers. Every error is one line of JSON.

Refused requests are logged, for example after a wrong urlPrefix, because kube-scheduler does not log the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from extender.web.log import LONGEST_TEXT, cut

Headers = tuple[tuple[str, str], ...]

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
CLOSE = ("Connection", "close")
"""The header of an answer after which the connection is closed."""
_LONGEST_MESSAGE = 1024
MOST_A_SECOND = 10
_LONGEST_REQUEST = 256
_log = logging.getLogger(__name__)


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


def refuse(status: int, client: str, request: str, reason: str, headers: Headers = ()) -> Answer:
    """Returns the error answer to a refused request, and logs it, at most `MOST_A_SECOND` times a second."""
    line = cut(request, _LONGEST_REQUEST)
    _log.warning(
        "request refused status=%d client=%s request=%r reason=%r", status, client, line, cut(reason, LONGEST_TEXT)
    )
    return error_answer(status, reason, headers)


class _Pace(logging.Filter):
    """Drops log lines beyond `MOST_A_SECOND` a second; the next line that is logged says how many were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._passed = 0
        if self._passed == MOST_A_SECOND:
            self._left_out += 1
            return False
        self._passed += 1
        if self._left_out:
            record.msg = f"{record.getMessage()} not_logged_before={self._left_out}"
            record.args = None
            self._left_out = 0
        return True


_log.addFilter(_Pace())
