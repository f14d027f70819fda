"""Errors and status lines."""

from __future__ import annotations

import json

import pytest

from extender.web.answers import error_answer, status_line


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
