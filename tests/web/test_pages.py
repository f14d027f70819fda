"""The small server beside the loop."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping

import pytest

from extender.web.answers import Answer
from extender.web.pages import PageServer


def _raise(*_: object) -> Answer:
    raise RuntimeError("in a page")


def _echo(query: Mapping[str, list[str]], accept: str) -> Answer:
    return Answer(200, json.dumps([query, accept]).encode())


@pytest.fixture
def served() -> Iterator[PageServer]:
    server = PageServer("127.0.0.1", 0, {"/echo": _echo, "/raise": _raise})
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/echo?verbose", 200, [{"verbose": [""]}, "text/plain"], id="a page"),
        pytest.param("/nothing", 404, {"error": "nothing is served at /nothing"}, id="no page"),
        pytest.param("/raise", 500, {"error": "internal error: the log has the cause"}, id="a page that fails"),
    ],
)
def test_pages(served: PageServer, path: str, status: int, body: object) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    for _ in range(2):  # the connection is kept
        connection.request("GET", path, headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (status, body)
    connection.close()
