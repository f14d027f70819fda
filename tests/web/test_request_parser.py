"""The parser of requests: however the bytes are cut, the requests are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.web.request_parser import Head, Limits, RequestParser, RequestRefused, parse_head


def read_all(pieces: list[bytes], limits: Limits | None = None) -> list[tuple[Head, bytes]]:
    """The complete requests in the pieces."""
    parser, requests = RequestParser(limits or Limits()), list[tuple[Head, bytes]]()
    head: Head | None = None
    for piece in pieces:
        parser.feed(piece)
        while head is not None or (head := parser.next_head()) is not None:
            body = parser.next_body()
            if body is None:
                break
            requests.append((head, body))
            head = None
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
    read = read_all(pieces)
    assert [(head.path[1:], body) for head, body in read] == sent
    assert all(head.keep_alive for head, _ in read)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 30))
def test_chunks_make_the_body_wherever_they_are_cut(body: bytes, chunk: int, cut: int) -> None:
    stream = encoded("x", body, chunk)
    [(head, read)] = read_all([stream[at : at + cut] for at in range(0, len(stream), cut)])
    assert (read, head.keep_alive) == (body, True)


@given(st.binary(max_size=200))
def test_any_bytes_are_requests_or_refused(garbage: bytes) -> None:
    for stream in (garbage, b"POST / HTTP/1.1\r\nHost: t\r\n" + garbage + b"\r\n\r\n" + garbage):
        try:
            read_all([stream])
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
        read_all([stream], Limits(head_bytes=100, body_bytes=50))
    assert refused.value.status == status


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"1\r\nx\r\n" * 20_000, id="many chunks"),
        pytest.param(b"1388\r\n" + b"\r\n\r\n" * 1250 + b"\r\n", id="many empty lines in a chunk"),
    ],
)
def test_a_chunked_body_of_too_many_pieces_is_refused(body: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(RequestRefused) as refused:
        read_all([head, *[body] * 15])
    assert refused.value.status == 413


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 1000])
def test_a_request_after_a_chunked_one_is_another_request(cut: int) -> None:
    chunked = encoded("first", b"a\r\n\r\nb", 3).replace(b"0\r\n\r\n", b"0\r\nX-Trailer: t\r\n\r\n")
    stream = chunked + encoded("second", b"body", 0) + encoded("third", b"x", 1) + encoded("fourth", b"", 0)
    read = read_all([stream[at : at + cut] for at in range(0, len(stream), cut)])
    assert [(head.path, body) for head, body in read] == [
        ("/first", b"a\r\n\r\nb"),
        ("/second", b"body"),
        ("/third", b"x"),
        ("/fourth", b""),
    ]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param(b"GET  / HTTP/1.1", 400, id="two spaces"),
        pytest.param(b"GET / HTTP/1.1 ", 400, id="a space at the end"),
        pytest.param(b"GET\t/ HTTP/1.1", 400, id="a tab"),
        pytest.param(b"GET /", 400, id="HTTP/0.9"),
        pytest.param(b"GET / HTTP/0.9", 505, id="HTTP/0.9 by name"),
        pytest.param(b"GET / HTTP/1.2", 505, id="HTTP/1.2"),
        pytest.param(b"GET / HTTP/3", 505, id="HTTP/3"),
        pytest.param(b"GET / RTSP/1.0", 400, id="RTSP"),
        pytest.param(b"SOURCE / ICE/1.0", 400, id="ICE"),
        pytest.param(b"SOURCE / HTTP/1.1", 400, id="a method of ICE"),
        pytest.param(b"get / HTTP/1.1", 400, id="a method in small letters"),
        pytest.param(b"OPTIONS * HTTP/1.1", 400, id="a target that is no path"),
        pytest.param(b"GET /\xff HTTP/1.1", 400, id="a raw byte in the target"),
        pytest.param(b"GET /\x00 HTTP/1.1", 400, id="a NUL in the target"),
    ],
)
def test_an_ambiguous_request_line_is_refused(line: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(line + b"\r\nHost: t\r\n\r\n", 100)
    assert refused.value.status == status


@pytest.mark.parametrize("field", [b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings", b"Upgrade: websocket"])
def test_an_offer_to_upgrade_is_not_taken_up(field: bytes) -> None:
    head = b"POST /x HTTP/1.1\r\nHost: t\r\n" + field + b"\r\nContent-Length: 2\r\n\r\n"
    assert [(read.path, body, read.keep_alive) for read, body in read_all([head + b"{}", head, b"[]"])] == [
        ("/x", b"{}", True),
        ("/x", b"[]", True),
    ]


@pytest.mark.parametrize(
    ("version", "connection", "keep"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"close", False),
        (b"1.1", b"x, Close", False),
        (b"1.1", b"keep-alive", True),
        (b"1.0", b"", False),
        (b"1.0", b"Keep-Alive", True),
        (b"1.0", b"close", False),
    ],
)
def test_the_version_and_connection_header_decide_whether_another_request_may_follow(
    version: bytes, connection: bytes, keep: bool
) -> None:
    field = b"Connection: " + connection + b"\r\n" if connection else b""
    assert parse_head(b"GET / HTTP/" + version + b"\r\nHost: t\r\n" + field + b"\r\n", 100).keep_alive is keep


def test_a_tls_handshake_is_refused_at_once() -> None:
    """kube-scheduler with enableHTTPS against http would else wait for httpTimeout, and name that as the error."""
    with pytest.raises(RequestRefused, match="the client speaks TLS"):
        read_all([b"\x16\x03\x01\x02\x00\x01\x00"])
