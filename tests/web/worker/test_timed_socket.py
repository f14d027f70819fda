"""Every call on a socket ends in time, and the time allowed may change from call to call."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from threading import Thread, Timer

import pytest

from extender.web.worker import timed_socket
from extender.web.worker.timed_socket import TimedSocket

Pair = tuple[TimedSocket, socket.socket]
MANY = b"x" * (8 * 1024 * 1024)  # more than the buffers of both ends


@pytest.fixture(params=[socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == socket.AF_UNIX:
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
    with ours, theirs:
        yield TimedSocket(ours), theirs


def test_what_is_there_is_received_at_once_and_nothing_ends_in_time(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"hello")
    assert ours.receive(100, 60.0) == b"hello"
    for seconds in (0.05, 1e-9):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.receive(100, seconds)
        assert time.monotonic() - began < 30
    theirs.sendall(b"again")
    assert ours.receive(2, 60.0) == b"ag"
    theirs.close()
    assert (ours.receive(100, 60.0), ours.receive(100, 60.0)) == (b"ain", b"")


def test_a_long_wait_is_several_short_ones(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_socket, "_WAIT_SECONDS", 0.05)
    ours, theirs = pair
    sender = Timer(0.2, theirs.sendall, (b"late",))
    sender.start()
    assert ours.receive(100, 60.0) == b"late"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive(100, 0.22)
    assert time.monotonic() - began >= 0.2


def test_all_is_sent_to_who_takes_it(pair: Pair) -> None:
    ours, theirs = pair
    received = bytearray()

    def take() -> None:
        while len(received) < len(MANY) + 5:
            received.extend(theirs.recv(1 << 20))

    taker = Thread(target=take)
    taker.start()
    ours.send(MANY, 60.0)
    ours.send(b"small", 60.0)
    taker.join()
    assert received == MANY + b"small"


def test_who_takes_a_little_now_and_then_gets_no_more_time(pair: Pair) -> None:
    ours, theirs = pair
    stop = False

    def sip() -> None:
        while not stop:
            theirs.recv(64 * 1024)
            time.sleep(0.05)

    sipper = Thread(target=sip)
    sipper.start()
    try:
        with pytest.raises(TimeoutError):
            ours.send(MANY, 0.3)
    finally:
        stop = True
        sipper.join()
