"""Responses from a socket, in all forms of HTTP/1.1 and some that are not HTTP."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from extender.cluster.pool import BrokenExchange, HttpConnection, Response
from extender.errors import OutcomeUnknown


@pytest.fixture
def ends() -> Iterator[tuple[HttpConnection, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield HttpConnection(ours, "api:443"), theirs


def test_a_request_on_the_wire(ends: tuple[HttpConnection, socket.socket]) -> None:
    connection, server = ends
    connection.send("POST", "/x", [("A", "b")], b"body")
    assert server.recv(1000) == b"POST /x HTTP/1.1\r\nHost: api:443\r\nA: b\r\nContent-Length: 4\r\n\r\nbody"


@pytest.mark.parametrize(
    ("sent", "body", "keep_alive"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", True, id="a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True, id="empty"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
            b"ok",
            True,
            id="chunks",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False, id="the last one"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok", b"ok", False, id="no other end than the connection's"),
    ],
)
def test_a_response_is_read_to_its_end(
    ends: tuple[HttpConnection, socket.socket], sent: bytes, body: bytes, keep_alive: bool
) -> None:
    connection, server = ends
    server.sendall(sent)
    server.shutdown(socket.SHUT_WR)
    answer = Response(connection, 5.0)
    assert (answer.status, answer.read(), answer.keep_alive, answer.complete) == (200, body, keep_alive, True)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    "interim",
    [
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="100"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nRetry-After: 9\r\n\r\n" * 3, id="several"),
    ],
)
def test_interim_responses_are_skipped(ends: tuple[HttpConnection, socket.socket], interim: bytes) -> None:
    connection, server = ends
    server.sendall(interim)
    server.sendall(OK)
    response = Response(connection, 5.0)
    assert (response.status, response.read(), response.keep_alive) == (200, b"ok", True)
    assert response.header(b"retry-after") == ""


@pytest.mark.parametrize(
    "surplus", [pytest.param(OK, id="a second answer"), pytest.param(b"x", id="nonsense"), pytest.param(b"H", id="H")]
)
def test_surplus_bytes_end_the_connection_but_not_the_response(
    ends: tuple[HttpConnection, socket.socket], surplus: bytes
) -> None:
    connection, server = ends
    server.sendall(OK + surplus)
    response = Response(connection, 5.0)
    assert (response.status, response.read(), response.keep_alive) == (200, b"ok", False)


def test_surplus_bytes_that_come_later_make_the_connection_stale(
    ends: tuple[HttpConnection, socket.socket],
) -> None:
    connection, server = ends
    server.sendall(OK)
    assert Response(connection, 5.0).keep_alive
    server.sendall(OK)
    assert connection.stale()


def test_pieces_come_as_they_arrive(ends: tuple[HttpConnection, socket.socket]) -> None:
    connection, server = ends
    server.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n3\r\none\r\n")
    answer = Response(connection, 5.0)
    assert answer.header(b"retry-after") == "7"
    assert answer.header(b"x") == ""
    pieces = answer.pieces()
    assert next(pieces) == b"one"
    server.sendall(b"3\r\ntwo\r\n0\r\n\r\n")
    assert list(pieces) == [b"two"]


@pytest.mark.parametrize(
    ("sent", "dead"),
    [
        pytest.param(b"", True, id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", False, id="half a head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", False, id="half a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhal", False, id="half a chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", False, id="no chunk"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", False, id="another protocol"),
    ],
)
def test_a_response_that_ends_too_early_is_broken(
    ends: tuple[HttpConnection, socket.socket], sent: bytes, dead: bool
) -> None:
    connection, server = ends
    server.sendall(sent)
    server.close()
    with pytest.raises(OutcomeUnknown) as caught:
        Response(connection, 5.0).read()
    assert isinstance(caught.value, BrokenExchange)
    assert caught.value.dead is dead


class Renegotiating(socket.socket):
    """TLS 1.2 may have to read before it can write, and to write before it can read: here once for each call."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(fileno=sock.detach())
        self.to_come = [ssl.SSLWantReadError, ssl.SSLWantWriteError]

    def send(self, data: Any, flags: int = 0) -> int:
        if self.to_come and self.to_come[0] is ssl.SSLWantReadError:
            raise self.to_come.pop(0)
        return super().send(data, flags)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self.to_come and self.to_come[0] is ssl.SSLWantWriteError:
            raise self.to_come.pop(0)
        return super().recv(size, flags)


def test_a_server_may_renegotiate_during_an_exchange() -> None:
    ours, server = socket.socketpair()
    with Renegotiating(ours) as renegotiating, server:
        connection = HttpConnection(renegotiating, "api:443")
        server.sendall(OK)
        connection.send("GET", "/x", [], b"")
        assert Response(connection, 5.0).read() == b"ok"
        assert server.recv(1000).startswith(b"GET /x")
        assert renegotiating.to_come == []


def test_a_silent_connection_is_not_a_dead_one(ends: tuple[HttpConnection, socket.socket]) -> None:
    with pytest.raises(BrokenExchange, match="no bytes arrived") as caught:
        Response(ends[0], 0.05)
    assert not caught.value.dead


def test_a_connection_that_the_server_has_closed_is_stale(ends: tuple[HttpConnection, socket.socket]) -> None:
    connection, server = ends
    assert not connection.stale()
    server.close()
    assert connection.stale()
