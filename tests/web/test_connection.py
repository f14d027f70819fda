"""One connection: the budget that it shares with others, when it asks for a body, and when its place is taken."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.web.answers import CLOSE, Answer, error_answer, header_lines, status_line
from extender.web.connection import Application, Budget, ClientConnection, Environ, Lifecycle, Phase, Places, render
from extender.web.request_parser import Limits, RequestRefused
from tests.stock.waiting import wait_until
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
        assert wait_until(lambda: budget._taken_bytes[clients[0]] >= size)
        second.send(post(b"x" * size))
        assert second.reply().status == 503
        let_go.set()
        assert first.reply().body == str(size).encode()
    budget.take(clients[0], limit)


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


LINGERING, NEW, HALF, IDLE, BUSY = Phase


@dataclass(eq=False)
class Held:
    """A connection, which began to wait at the second `since`."""

    client: str
    phase: Phase
    since: float = 0.0
    finishing: bool = False

    def finish(self, *, make_way: bool = False) -> None:
        assert make_way
        self.finishing = True


def held(text: str) -> list[Held]:
    """Parses "a:NEW a:IDLE ..."; the first connection is the oldest."""
    parts = (part.split(":") for part in text.split())
    return [Held(client, Phase[phase], number) for number, (client, phase) in enumerate(parts)]


@pytest.mark.parametrize(
    ("most", "before", "client", "has_room", "closed"),
    [
        pytest.param(4, "a:IDLE", "b", True, None, id="a place is free"),
        pytest.param(4, "a:NEW a:IDLE b:IDLE b:LINGERING", "c", True, 3, id="one that lingers goes first"),
        pytest.param(4, "a:HALF a:IDLE a:NEW b:IDLE", "c", True, 2, id="then one that has sent nothing"),
        pytest.param(4, "a:IDLE a:HALF a:BUSY b:IDLE", "c", True, 1, id="then one with half a request"),
        pytest.param(4, "b:IDLE a:IDLE a:IDLE a:BUSY", "c", True, 1, id="then the one idle for longest of the greedy"),
        pytest.param(4, "b:NEW a:IDLE a:IDLE a:IDLE", "c", True, 1, id="an address with few is spared, even if new"),
        pytest.param(4, "a:IDLE a:IDLE a:NEW b:NEW", "b", True, 2, id="few replace those of many"),
        pytest.param(4, "a:IDLE a:NEW a:NEW b:NEW", "a", True, 1, id="many replace their own"),
        pytest.param(4, "a:BUSY a:BUSY a:BUSY", "a", False, None, id="a client has three quarters"),
        pytest.param(4, "a:BUSY a:BUSY a:BUSY b:BUSY", "c", False, None, id="all are busy"),
        pytest.param(16, " ".join(["a:BUSY"] * 7 + ["b:BUSY"] * 7), "b", False, None, id="the last places are kept"),
        pytest.param(16, " ".join(["a:BUSY"] * 7 + ["b:BUSY"] * 7), "c", True, None, id="for addresses with few"),
        pytest.param(1, "a:IDLE", "b", True, 0, id="a single place"),
        pytest.param(1, "", "b", True, None, id="a single free place"),
    ],
)
def test_closing_order(most: int, before: str, client: str, has_room: bool, closed: int | None) -> None:
    connections = held(before)
    assert Places(most).make_room(client, connections) is has_room
    assert [number for number, each in enumerate(connections) if each.finishing] == [closed] * (closed is not None)


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(Phase)), max_size=120),
)
def test_no_address_exceeds_the_places_and_no_busy_connection_is_closed(
    most: int, arrivals: list[tuple[str, Phase]]
) -> None:
    places, connections = Places(most), list[Held]()
    for number, (client, phase) in enumerate(arrivals):
        before = [each for each in connections if not each.finishing]
        has_room = places.make_room(client, connections)
        closed = [each for each in before if each.finishing]
        assert all(each.phase is not BUSY for each in closed)
        if not has_room:
            assert not closed
            continue
        connections.append(Held(client, phase, number))
        staying = [each for each in connections if not each.finishing]
        assert len(staying) <= most
        assert sum(each.client == client for each in staying) <= max(1, most - most // 4)


@given(st.integers(32, 64), st.sampled_from([LINGERING, NEW, HALF, IDLE]), st.integers(1, 7), st.integers(0, 3))
def test_an_address_with_few_always_gets_a_place_and_keeps_it(
    most: int, phase: Phase, strangers: int, few: int
) -> None:
    """However many connections up to seven other addresses open, before and after."""
    places, connections = Places(most), [Held("kubelet", NEW, number) for number in range(few)]

    def arrive(times: int) -> None:
        for number in range(times):
            stranger = f"stranger-{number % strangers}"
            if places.make_room(stranger, connections):
                connections.append(Held(stranger, phase, len(connections)))

    arrive(2 * most)
    assert places.make_room("kubelet", connections)
    connections.append(Held("kubelet", NEW, 0))
    arrive(2 * most)
    assert not any(each.finishing for each in connections if each.client == "kubelet")
