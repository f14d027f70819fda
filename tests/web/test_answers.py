"""Answers as bytes."""

from __future__ import annotations

import json

import pytest

from extender.web.answers import error_answer, render, status_line


def test_the_length_is_the_connection_s_business() -> None:
    headers = [("Content-Length", "99"), ("Transfer-Encoding", "chunked"), ("Connection", "upgrade"), ("X", "y")]
    assert render("200 OK", headers, b"body") == b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody"


def test_an_answer_to_head_keeps_the_length_and_has_no_body() -> None:
    assert render("200 OK", [("Content-Length", "99")], b"", head_only=True).endswith(b"Content-Length: 99\r\n\r\n")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_statuses_without_a_body(status: str) -> None:
    assert render(status, [], b"body", "close") == f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        render("200 OK", [("X", value)], b"")


@pytest.mark.parametrize("message", ["plain", 'quotes " and\nlines', "\ud800 half a pair", "äöü"])
def test_an_error_is_one_line_of_json(message: str) -> None:
    body = error_answer(400, message).body
    assert body.count(b"\n") == 1
    assert body.endswith(b"\n")
    assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize(("status", "line"), [(404, "404 Not Found"), (599, "599 Unknown")])
def test_the_status_line(status: int, line: str) -> None:
    assert status_line(status) == line


def test_an_error_does_not_quote_a_request_at_length() -> None:
    assert len(error_answer(400, "a" * 1_000_000).body) < 2_000
