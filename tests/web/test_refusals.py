"""A request that is refused leaves a line with its path, its caller and the reason; many leave few."""

from __future__ import annotations

import logging
import socket

import pytest

from extender.web import answers
from extender.web.answers import MOST_A_SECOND, Answer, refuse
from extender.web.app import PageServer, PrivatePages
from tests.web.servers import Wire, post

_TOO_MUCH = post(b"", "/simulate", Content_Length="99999999")


@pytest.fixture
def without_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this second may have had their lines."""
    monkeypatch.setattr(logging.getLogger(answers.__name__), "filters", [])


@pytest.mark.usefixtures("without_pace")
@pytest.mark.parametrize(
    ("request_bytes", "line"),
    [
        pytest.param(
            post(b"{}", "/schedule/filter"),
            "status=404 client=127.0.0.1 request='POST /schedule/filter' reason='nothing",
            id="no path",
        ),
        pytest.param(
            _TOO_MUCH, "status=413 client=127.0.0.1 request='POST /simulate' reason='the body has 99", id="too large"
        ),
        pytest.param(
            b"GET /livez HTTP/1.1\r\n\r\n",
            "status=400 client=127.0.0.1 request='' reason='expected exactly",
            id="no Host",
        ),
    ],
)
def test_a_line_says_who_asked_for_what(request_bytes: bytes, line: str, caplog: pytest.LogCaptureFixture) -> None:
    server = PageServer("127.0.0.1", 0, PrivatePages({"/livez": lambda *_: Answer(200, b"ok")}))
    server.start()
    with (wire := Wire(socket.create_connection(("127.0.0.1", server.port), timeout=60))).socket:
        wire.send(request_bytes).reply()
    server.stop()
    assert any(line in each for each in caplog.messages), caplog.messages


def test_many_leave_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50 * MOST_A_SECOND):
        refuse(404, "10.0.0.7", "GET /nope", "nothing is served there")
    assert len(caplog.messages) < 20 * MOST_A_SECOND


@pytest.mark.usefixtures("without_pace")
def test_a_long_request_leaves_a_short_line(caplog: pytest.LogCaptureFixture) -> None:
    refuse(404, "10.0.0.7", "GET /" + "x" * 30_000, "nothing is served at /" + "x" * 30_000)
    [line] = caplog.messages
    assert len(line) < 1500
