"""The small server beside the loop."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping

import pytest

from extender.web.access import is_loopback
from extender.web.answers import Answer, Page
from extender.web.app import PageServer, PrivatePages
from tests.web.servers import Wire, get, post


def _raise(*_: object) -> Answer:
    raise RuntimeError("in a page")


def _split(*_: object) -> Answer:
    return Answer(200, b"", headers=(("X", "a\r\nSet-Cookie: b"),))


def _echo(query: Mapping[str, list[str]], accept: str) -> Answer:
    return Answer(200, json.dumps([query, accept]).encode())


@pytest.fixture
def served() -> Iterator[PageServer]:
    pages: dict[str, Page] = {"/echo": _echo, "/raise": _raise, "/debug/echo": _echo, "/split": _split}
    body_actions = {"/simulate": lambda body: Answer(200, body)}
    server = PageServer("127.0.0.1", 0, PrivatePages(pages, {"/act": _echo}, body_actions=body_actions))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/echo?verbose", 200, [{"verbose": [""]}, "text/plain"], id="a page"),
        pytest.param("/debug/echo", 200, [{}, "text/plain"], id="a page for this machine"),
        pytest.param("/nothing", 404, {"error": "nothing is served at /nothing"}, id="no page"),
        pytest.param("/raise", 500, {"error": "internal error: the log has the cause"}, id="a page that fails"),
        pytest.param("/split", 500, {"error": "internal error: the log has the cause"}, id="a header of two lines"),
    ],
)
def test_pages(served: PageServer, path: str, status: int, body: object) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    for _ in range(2):  # the connection is kept
        connection.request("GET", path, headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (status, body)
    connection.close()


def test_other_machines_get_the_pages_about_the_process_only(served: PageServer) -> None:
    """A service mesh passes the requests of other machines on from 127.0.0.6."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60, source_address=("127.0.0.6", 0))
    statuses = []
    for path in ("/echo", "/debug/echo", "//debug/echo"):
        connection.request("GET", path)
        answer = connection.getresponse()
        statuses.append((answer.status, b"allowed only from this machine" in answer.read()))
    connection.close()
    assert statuses == [(200, False), (403, True), (403, True)]


def connect(server: PageServer) -> Wire:
    return Wire(socket.create_connection(("127.0.0.1", server.port), timeout=60))


def test_an_action_of_the_loop_needs_a_post(served: PageServer) -> None:
    with (wire := connect(served)).socket:
        assert wire.send(post(b"{}", "/act")).reply().status == 200
        reply = wire.send(get("/act")).reply()
        assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_pages_are_read_and_not_posted_to(served: PageServer) -> None:
    with (wire := connect(served)).socket:
        reply = wire.send(post(b"{}", "/echo")).reply()
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_the_body_of_a_get_is_not_the_next_request(served: PageServer) -> None:
    smuggled = get("/raise")
    head = f"GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(smuggled)}\r\n\r\n".encode()
    with (wire := connect(served)).socket:
        wire.send(head + smuggled)
        wire.send(get("/nothing"))
        assert [wire.reply().status, wire.reply().status] == [200, 404]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /debug/echo HTTP/1.1\r\nHost: rebound.example\r\n\r\n", id="by its header"),
        pytest.param(b"GET http://rebound.example/debug/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", id="by its URL"),
    ],
)
def test_a_host_that_is_not_this_machine_gets_no_page_about_pods(served: PageServer, head: bytes) -> None:
    with (wire := connect(served)).socket:
        wire.send(head)
        assert wire.reply().status == 403


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(post(b"{}", "/simulate"), 200, id="a question"),
        pytest.param(post(b"{}", "/simulate", Origin="http://localhost"), 200, id="of this server's own page"),
        pytest.param(post(b"{}", "/simulate", Origin="http://evil.example"), 403, id="of another site"),
        pytest.param(post(b"{}", "/simulate", Content_Type="text/plain"), 415, id="as another site may post it"),
        pytest.param(post(b"{}", "/simulate", Content_Type=""), 415, id="of no media type"),
        pytest.param(post(b"", "/act", Content_Type=""), 200, id="an action"),
        pytest.param(post(b"", "/act", Content_Type="", Origin="null"), 403, id="an action of a sandboxed frame"),
        pytest.param(post(b"", "/act", Content_Type=FORM), 415, id="an action by a form"),
    ],
)
def test_another_site_may_not_post(served: PageServer, sent: bytes, status: int) -> None:
    with (wire := connect(served)).socket:
        assert wire.send(sent).reply().status == status


def test_silent_connections_do_not_keep_others_out(served: PageServer) -> None:
    silent = [connect(served) for _ in range(100)]
    with (wire := connect(served)).socket:
        assert wire.send(get("/echo")).reply().status == 200
    for each in silent:
        each.socket.close()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("", False),
    ],
)
def test_what_is_this_machine(address: str, local: bool) -> None:
    assert is_loopback(address) is local
