"""One connection: the budget that it shares with others, and when it asks for a body."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from extender.web.answers import CLOSE, Answer, error_answer, header_lines, status_line
from extender.web.connection import Application, Budget, ClientConnection, Environ, Lifecycle, render
from extender.web.request_parser import Limits, RequestRefused
from tests.web.servers import PATIENCE_SECONDS, Wire, post


@dataclass
class Lengths:
    """An application that answers each body with its length, once it is let go."""

    let_go: threading.Event
    lifecycle: Lifecycle = field(default_factory=lambda: Lifecycle(Limits()))

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        try:
            length = len(environ["wsgi.input"].read())
        except RequestRefused as refused:
            start_response(str(refused.status), [("Content-Length", "0"), CLOSE])
            return []
        self.let_go.wait(PATIENCE_SECONDS)
        start_response("200 OK", [("Content-Length", str(len(str(length))))])
        return [str(length).encode()]

    def refuse(self, status: int, _client: str, _request: str, reason: str) -> Answer:
        return error_answer(status, reason)


@contextmanager
def connected(application: Application, budget: Budget, client: str = "") -> Iterator[Wire]:
    here, there = socket.socketpair()
    here.settimeout(PATIENCE_SECONDS)
    thread = threading.Thread(target=ClientConnection(there, client, application, budget, None).serve)
    thread.start()
    with here:
        yield Wire(here)
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("size", [80_000, 9_000], ids=["large", "there with the head"])
@pytest.mark.parametrize("clients", ["ab", "aa"], ids=["all clients", "one client"])
def test_bodies_share_one_budget_until_they_are_answered(clients: str, size: int) -> None:
    limit = size + size // 2
    budget = Budget(limit, 1 if clients == "ab" else 2, 1)
    let_go = threading.Event()
    application = Lengths(let_go)
    with connected(application, budget, clients[0]) as first, connected(application, budget, clients[1]) as second:
        first.send(post(b"x" * size))
        while not budget_is_taken(budget, clients[0], size):
            pass
        second.send(post(b"x" * size))
        assert second.reply().status == 503
        let_go.set()
        assert first.reply().body == str(size).encode()
    budget.take(clients[0], limit)


def budget_is_taken(budget: Budget, client: str, size: int) -> bool:
    return budget._taken_bytes[client] >= size


def test_continue_is_sent_only_to_a_client_that_waits_for_it() -> None:
    let_go = threading.Event()
    let_go.set()
    request = post(b"", Expect="100-continue", Content_Length="2")
    with connected(Lengths(let_go), Budget(1000, 1, 1)) as wire:
        assert wire.send(request).reply().status == 100
        assert wire.send(b"{}").reply().status == 200
        assert wire.send(request + b"{}").reply().status == 200


def test_the_bytes_of_an_answer() -> None:
    answer = Answer(200, b"body", "text/plain", (("X", "y"),))
    head, _, body = render(status_line(200), header_lines(answer), answer.body).partition(b"\r\n\r\n")
    *lines, date = head.decode().split("\r\n")
    assert lines == ["HTTP/1.1 200 OK", "Content-Type: text/plain", "Content-Length: 4", "X: y"]
    assert parsedate_to_datetime(date.removeprefix("Date: "))
    assert body == b"body"


def test_the_connection_s_header_is_there_once() -> None:
    rendered = render("503 Service Unavailable", header_lines(Answer(503, b"", headers=(CLOSE,))), b"", "close")
    assert rendered.count(b"\r\nConnection: close\r\n") == 1
