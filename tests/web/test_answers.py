"""Answers as bytes."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime

import pytest

from extender.web.answers import CLOSE, Answer, error_answer, render


def test_the_bytes_of_an_answer() -> None:
    answer = Answer(200, b"body", "text/plain", (("X", "y"),))
    head, _, body = render(answer).partition(b"\r\n\r\n")
    *lines, date, length = head.decode().split("\r\n")
    assert lines == ["HTTP/1.1 200 OK", "Content-Type: text/plain", "X: y"]
    assert parsedate_to_datetime(date.removeprefix("Date: "))
    assert (length, body) == ("Content-Length: 4", b"body")


def test_the_connection_s_header_is_there_once() -> None:
    answer = Answer(503, b"", headers=(CLOSE,))
    assert render(answer, "close").count(b"\r\nConnection: close\r\n") == 1


def test_an_answer_to_head_keeps_the_length_and_has_no_body() -> None:
    assert render(Answer(200, b"body"), head_only=True).endswith(b"Content-Length: 4\r\n\r\n")


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        render(Answer(200, b"", headers=(("X", value),)))


@pytest.mark.parametrize("message", ["plain", 'quotes " and\nlines', "\ud800 half a pair", "äöü"])
def test_an_error_is_one_line_of_json(message: str) -> None:
    body = error_answer(400, message).body
    assert body.count(b"\n") == 1
    assert body.endswith(b"\n")
    assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize(("status", "line"), [(404, "404 Not Found"), (599, "599 Unknown")])
def test_the_status_line(status: int, line: str) -> None:
    assert render(Answer(status, b"")).startswith(f"HTTP/1.1 {line}\r\n".encode())


def test_an_error_does_not_quote_a_request_at_length() -> None:
    assert len(error_answer(400, "a" * 1_000_000).body) < 2_000
