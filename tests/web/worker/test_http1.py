"""The reader of requests, without sockets: however the bytes are cut, the requests are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.runtime.clock import ManualClock
from extender.web.worker.http1 import Budget, Head, Limits, RequestReader, RequestRefused


class Pieces:
    """A source that gives these pieces, then the end; each piece takes `seconds` to come."""

    def __init__(self, pieces: list[bytes], clock: ManualClock | None = None, seconds: float = 0.0) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self._clock = clock or ManualClock()
        self._seconds = seconds
        self.sent = b""

    def receive(self, size: int, timeout_seconds: float) -> bytes:
        if self._seconds > timeout_seconds:
            raise TimeoutError
        self._clock.advance(self._seconds)
        if not self._pieces:
            return b""
        piece, rest = self._pieces[0][:size], self._pieces[0][size:]
        self._pieces[:1] = [rest] if rest else []
        return piece

    def send(self, data: bytes) -> None:
        self.sent += data


def reader_of(
    source: Pieces, limits: Limits, budget: Budget, client: str, clock: ManualClock | None = None
) -> RequestReader:
    return RequestReader(source.receive, source.send, limits, budget, client, (clock or ManualClock()).monotonic)


def read_all(
    source: Pieces, limits: Limits | None = None, clock: ManualClock | None = None
) -> list[tuple[Head, bytes]]:
    reader = reader_of(source, limits or Limits(), Budget(1 << 30, 1, 1), "", clock)
    requests = []
    while reader.wait() and (head := reader.read_head()) is not None:
        requests.append((head, reader.read_body(head)))
        reader.release()
    return requests


def encoded(target: str, body: bytes, chunk: int) -> bytes:
    head = f"POST /{target} HTTP/1.1\r\nHost: t\r\n"
    if not chunk:
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    chunks = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in chunks)
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + coded + b"0\r\n\r\n"


messages = st.tuples(
    st.text("abc/", max_size=5), st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n"]))
)


@given(st.lists(messages, max_size=4), st.data())
def test_requests_do_not_depend_on_where_bytes_are_cut(sent: list[tuple[str, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encoded(target, body, 0) for target, body in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    read = read_all(Pieces(pieces))
    assert [(head.path[1:], body) for head, body in read] == sent
    assert all(head.keep_alive for head, _ in read)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 30))
def test_chunks_however_cut_are_the_body(body: bytes, chunk: int, cut: int) -> None:
    stream = encoded("x", body, chunk)
    [(head, read)] = read_all(Pieces([stream[at : at + cut] for at in range(0, len(stream), cut)]))
    assert (read, head.keep_alive) == (body, True)


@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_requests_or_a_refusal(garbage: bytes) -> None:
    for stream in (garbage, b"POST / HTTP/1.1\r\nHost: t\r\n" + garbage + b"\r\n\r\n" + garbage):
        try:
            read_all(Pieces([stream]))
        except RequestRefused as refused:
            assert 400 <= refused.status < 600


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: " + b"x" * 200 + b"\r\n\r\n", 431, id="head over the limit"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: " + b"x" * 2000, 431, id="head without an end"),
        pytest.param(encoded("", b"x" * 51, 0), 413, id="body over the limit"),
        pytest.param(encoded("", b"x" * 51, 10), 413, id="chunks over the limit"),
        pytest.param(encoded("", b"x" * 9, 1), 413, id="small chunks that cost more than they bring"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 60 + b"\r\nx\r\n0\r\n\r\n",
            413,
            id="a long chunk extension",
        ),
    ],
)
def test_sizes(stream: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_all(Pieces([stream]), Limits(head_bytes=100, body_bytes=50))
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("pieces", "seconds", "part"),
    [
        pytest.param([b"GET / HTTP/1.1\r\n"] + [b"X: y\r\n"] * 20, 1.0, "head", id="a header a second"),
        pytest.param([b"G", b"ET / HTTP/1.1\r\n"], 11.0, "head", id="a pause in the head"),
        pytest.param(
            [encoded("", b"", 0).replace(b"0\r\n", b"99\r\n")] + [b"x"] * 99, 1.0, "body", id="a byte a second"
        ),
    ],
)
def test_slowness(pieces: list[bytes], seconds: float, part: str) -> None:
    clock = ManualClock()
    with pytest.raises(RequestRefused, match=part) as refused:
        read_all(Pieces(pieces, clock, seconds), Limits(idle_seconds=100, head_seconds=10, body_seconds=60), clock)
    assert refused.value.status == 408


def test_idling_is_no_slowness() -> None:
    assert read_all(Pieces([b"G"], seconds=121.0)) == []


def test_continue_is_sent_only_when_somebody_waits_for_it() -> None:
    request = b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    waiting, hasty = Pieces([request, b"{}"]), Pieces([request + b"{}"])
    assert [body for source in (waiting, hasty) for _, body in read_all(source)] == [b"{}", b"{}"]
    assert (waiting.sent, hasty.sent) == (b"HTTP/1.1 100 Continue\r\n\r\n", b"")


def _reader(budget: Budget, client: str, size: int) -> RequestReader:
    request = encoded("", b"x" * size, 0)
    reader = reader_of(Pieces([request[:10_000], request[10_000:]]), Limits(), budget, client)
    assert reader.wait()
    return reader


def _read(reader: RequestReader) -> None:
    head = reader.read_head()
    assert head is not None
    reader.read_body(head)


@pytest.mark.parametrize("size", [80_000, 9_000], ids=["large", "there with the head"])
@pytest.mark.parametrize("clients", ["ab", "aa"], ids=["all clients", "one client"])
def test_bodies_share_one_budget(clients: str, size: int) -> None:
    limit = size + size // 2
    budget = Budget(limit, 1 if clients == "ab" else 2, 1)
    first, second = (_reader(budget, client, size) for client in clients)
    _read(first)
    with pytest.raises(RequestRefused) as refused:
        _read(second)
    assert refused.value.status == 503
    first.release()
    second.release()
    budget.take("a", limit)
