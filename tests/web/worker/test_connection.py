"""One connection: the budget that it shares with others, and when it asks for a body."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from extender.web.answers import Answer, error_answer
from extender.web.worker.application import Lifecycle
from extender.web.worker.connection import Budget, ClientConnection
from extender.web.worker.request_parser import Limits
from tests.web.servers import PATIENCE_SECONDS, Wire, post


def application(let_go: threading.Event) -> Lifecycle:
    """Answers each body with its length, once it is let go."""

    def answer(body: bytes) -> Answer:
        let_go.wait(PATIENCE_SECONDS)
        return Answer(200, str(len(body)).encode())

    return Lifecycle(
        lambda *_: answer, lambda status, _client, _request, reason: error_answer(status, reason), Limits()
    )


@contextmanager
def connected(lifecycle: Lifecycle, budget: Budget, client: str = "") -> Iterator[Wire]:
    here, there = socket.socketpair()
    here.settimeout(PATIENCE_SECONDS)
    thread = threading.Thread(target=ClientConnection(there, client, lifecycle, budget, None).serve)
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
    lifecycle = application(let_go)
    with connected(lifecycle, budget, clients[0]) as first, connected(lifecycle, budget, clients[1]) as second:
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
    with connected(application(let_go), Budget(1000, 1, 1)) as wire:
        assert wire.send(request).reply().status == 100
        assert wire.send(b"{}").reply().status == 200
        assert wire.send(request + b"{}").reply().status == 200
