"""HTTP/1.1 as both workers speak it, over real sockets."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.servers import OURS, PATIENCE_SECONDS, Server, Wire, extender, get, gunicorn, held, post

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", params=[pytest.param(OURS, id="ours"), pytest.param("gthread", id="gthread")])
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    with gunicorn(request.param, "--keep-alive", "60", "--threads", "4", EXTENDER_BODY_LIMIT="100k") as server:
        yield server


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with extender("--body-limit", "100k", IMPATIENT="yes") as server:
        yield server


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(post(b'{"nodes": ["a", "b"]}'), 200, id="a call"),
        pytest.param(post(Content_Type="application/json; charset=utf-8"), 200, id="a media type with a parameter"),
        pytest.param(post(Content_Type="APPLICATION/JSON"), 200, id="a media type in capitals"),
        pytest.param(post(b"{"), 400, id="malformed JSON"),
        pytest.param(post(b""), 400, id="an empty body"),
        pytest.param(post(Content_Type="text/plain"), 415, id="another media type"),
        pytest.param(post(Content_Type=""), 415, id="no media type"),
        pytest.param(post(Content_Encoding="gzip"), 415, id="a compressed body"),
        pytest.param(post(b"x" * 100_001), 413, id="a body over the limit"),
        pytest.param(get("/scheduler/filter"), 405, id="GET on a verb"),
        pytest.param(post(path="/scheduler/nothing"), 404, id="an unknown path"),
        pytest.param(get("/nothing"), 404, id="an unknown page"),
    ],
)
def test_a_status_for_every_request(either: Server, request_bytes: bytes, status: int) -> None:
    reply = either.ask(request_bytes)
    assert reply.status == status
    assert reply.body.count(b"\n") <= 1
    assert ("error" in reply.json) == (status != 200)


def test_a_wrong_method_is_answered_with_the_allowed_one(either: Server) -> None:
    assert either.ask(get("/scheduler/filter")).headers["allow"] == "POST"


def test_a_body_at_the_limit_is_read(either: Server) -> None:
    body = json.dumps({"pad": "x" * (100_000 - 11)}).encode()
    assert len(body) == 100_000
    assert either.ask(post(body)).status == 200


def test_a_connection_serves_many_requests(either: Server) -> None:
    with (wire := either.connect()).socket:
        for number in range(5):
            answer = wire.send(post(json.dumps({"nodes": [f"n{number}"]}).encode())).reply()
            assert answer.json["NodeNames"] == [f"n{number}"]
            assert answer.headers.get("connection", "keep-alive") == "keep-alive"


def test_pipelined_requests_are_answered_in_order(either: Server) -> None:
    with (wire := either.connect()).socket:
        wire.send(b"".join(post(json.dumps({"nodes": [name]}).encode()) for name in "abc"))
        assert [wire.reply().json["NodeNames"] for _ in "abc"] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("sizes", [[13, 8], [1] * 21], ids=["two chunks", "a byte each"])
def test_a_chunked_body(either: Server, sizes: list[int]) -> None:
    rest, wire_body = b'{"nodes": ["chunks"]}', b""
    for size in sizes:
        wire_body += b"%x;name=value\r\n%b\r\n" % (size, rest[:size])
        rest = rest[size:]
    request = post(b"", Content_Length="", Transfer_Encoding="chunked") + wire_body + b"0\r\nX-Trailer: t\r\n\r\n"
    with (wire := either.connect()).socket:
        for _ in range(2):
            assert wire.send(request).reply().json["NodeNames"] == ["chunks"]


def test_a_chunked_body_over_the_limit(either: Server) -> None:
    body = b"".join(b"400\r\n%b\r\n" % (b"x" * 1024) for _ in range(100)) + b"0\r\n\r\n"
    assert either.ask(post(b"", Content_Length="", Transfer_Encoding="chunked") + body).status == 413


def test_a_body_is_asked_for_with_100(either: Server) -> None:
    with (wire := either.connect()).socket:
        wire.send(post(b"", Content_Length="16", Expect="100-continue"))
        assert wire.reply().status == 100
        assert wire.send(b'{"nodes": ["a"]}').reply().json["NodeNames"] == ["a"]


def test_http_1_0_closes(either: Server) -> None:
    with (wire := either.connect()).socket:
        reply = wire.send(b"GET /livez HTTP/1.0\r\n\r\n").reply()
        assert (reply.status, reply.body) == (200, b"ok")
        assert wire.ended()


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(Connection="close"), id="with a body"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", id="without a body"),
    ],
)
def test_a_client_may_close(either: Server, request_bytes: bytes) -> None:
    with (wire := either.connect()).socket:
        assert wire.send(request_bytes).reply().headers["connection"] == "close"
        assert wire.ended()


def test_close_counts_among_other_connection_options(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        wire.send(b"GET /livez HTTP/1.1\r\nHost: t\r\nConnection: x, Close\r\n\r\n")
        assert wire.reply().headers["connection"] == "close"
        assert wire.ended()


def test_http_1_0_may_keep_the_connection(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        for _ in range(2):
            reply = wire.send(b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").reply()
            assert (reply.status, reply.headers["connection"]) == (200, "keep-alive")


@pytest.mark.parametrize(
    "accept", [";q=1", "a;b;c=,;", "text/plain;version=x;q=y", "\x80/\xff", "*/*;escaping=nothing"]
)
def test_no_accept_header_is_a_defect(ours: Server, accept: str) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept.encode("latin-1") + b"\r\n\r\n"
    assert ours.ask(request).status in (200, 406)


def test_head_is_answered_with_the_length_and_no_body(either: Server) -> None:
    with (wire := either.connect()).socket:
        assert wire.send(get("/livez", "HEAD")).reply(head_only=True).headers["content-length"] == "2"
        assert wire.send(get("/livez")).reply().body == b"ok"


def test_absolute_and_escaped_targets(either: Server) -> None:
    assert either.ask(get("http://localhost/livez?verbose")).body.startswith(b"[+]ping ok")
    assert either.ask(get("/%6Civez")).body == b"ok"


def test_calls_at_once_do_not_wait_for_each_other(either: Server, tmp_path: Path) -> None:
    slow, quick = either.connect(), either.connect()
    with slow.socket, quick.socket:
        slow.send(held(tmp_path / "end"))
        assert quick.send(post()).reply().status == 200
        (tmp_path / "end").touch()
        assert slow.reply().status == 200


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param("Content-Length: 4\r\nTransfer-Encoding: chunked", 400, id="length and chunked"),
        pytest.param("Content-Length: 4\r\nContent-Length: 5", 400, id="two lengths"),
        pytest.param("Content-Length: 4\r\nContent-Length: 4", 400, id="a length twice"),
        pytest.param("Content-Length: +4", 400, id="a length with a sign"),
        pytest.param("Content-Length: 0x4", 400, id="a length in hexadecimal"),
        pytest.param("Content-Length: 99999999999999999999999", 400, id="a length beyond 64 bits"),
        pytest.param("Content-Length: 4, 4", 400, id="a list of lengths"),
        pytest.param("Transfer-Encoding: gzip, chunked", 501, id="a coding that is not spoken"),
        pytest.param("Transfer-Encoding: xchunked", 400, id="almost chunked"),
        pytest.param("Transfer-Encoding: chunked, identity", 400, id="chunked not last"),
        pytest.param("Transfer-Encoding : chunked", 400, id="space before the colon"),
        pytest.param("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400, id="chunked twice"),
        pytest.param("X: a\r\n b", 400, id="a folded line"),
        pytest.param("X: a\rb", 400, id="a bare CR"),
        pytest.param("X: a\nY: b", 400, id="a bare LF"),
        pytest.param("X: a\0b", 400, id="a NUL"),
        pytest.param(": a", 400, id="no name"),
        pytest.param("no colon", 400, id="no colon"),
        pytest.param("Host: other", 400, id="a second Host"),
        pytest.param("Content-Type: a/b\r\nContent-Type: application/json", 400, id="two content types"),
        pytest.param("Content-Length: 4\r\nExpect: miracles", 417, id="an unknown expectation"),
        pytest.param(
            "Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked", 400, id="Upgrade with chunks"
        ),
        pytest.param("X: " + "x" * 40_000, 431, id="a long header"),
        pytest.param("\r\n".join(f"X{i}: y" for i in range(150)), 431, id="many headers"),
    ],
)
def test_what_could_be_read_in_two_ways_ends_the_connection(ours: Server, head: str, status: int) -> None:
    with (wire := ours.connect()).socket:
        wire.send(f"POST /scheduler/filter HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode() + SMUGGLED)
        reply = wire.reply()
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert reply.error
        assert wire.ended()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET /livez HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 505, id="another version"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="the HTTP/2 preface"),
        pytest.param(b"DESCRIBE /livez RTSP/1.0\r\nHost: a\r\n\r\n", 400, id="RTSP"),
        pytest.param(b"GET /livez\r\n\r\n", 400, id="HTTP/0.9"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="CONNECT"),
        pytest.param(
            b"CONNECT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="CONNECT with chunks",
        ),
        pytest.param(b"GET /livez RTSP/1.0\r\nHost: a\r\n\r\n", 400, id="RTSP with a method of HTTP"),
        pytest.param(b"GET http://a:b:c/livez HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a URL with a malformed authority"),
        pytest.param(b"GET http:///livez HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a URL without an authority"),
        pytest.param(b"GET /li\x80vez HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a raw byte in the target"),
        pytest.param(b"JUMP /livez HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="an unknown method"),
        pytest.param(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="chunked in HTTP/1.0"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="TLS to a plain port"),
        pytest.param(post(b"", Content_Length="", Transfer_Encoding="chunked") + b"zz\r\n", 400, id="a bad chunk size"),
        pytest.param(
            post(b"", Content_Length="", Transfer_Encoding="chunked") + b"1\r\nab\r\n0\r\n\r\n", 400, id="a long chunk"
        ),
        pytest.param(b"GET /" + b"x" * 40_000, 431, id="an endless target"),
    ],
)
def test_malformed_requests(ours: Server, request_bytes: bytes, status: int) -> None:
    with (wire := ours.connect()).socket:
        assert wire.send(request_bytes).reply().status == status
        assert wire.ended()


def test_a_body_too_large_is_refused_before_it_is_sent(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        assert wire.send(post(b"", Content_Length="100001", Expect="100-continue")).reply().status == 413
        assert wire.ended()


def test_the_answer_arrives_although_the_large_body_is_not_read(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        assert wire.send(post(b"x" * 2_000_000)).reply().status == 413


@pytest.mark.parametrize(
    ("beginning", "status"),
    [
        pytest.param(b"POST /scheduler/filter HT", 408, id="half a head"),
        pytest.param(post(b"{", Content_Length="100"), 408, id="half a body"),
        pytest.param(post(b"", Content_Length="", Transfer_Encoding="chunked") + b"5\r\nab", 408, id="half a chunk"),
    ],
)
def test_a_slow_client_gets_408_and_its_connection_ends(ours: Server, beginning: bytes, status: int) -> None:
    with (wire := ours.connect()).socket:
        assert wire.send(beginning).reply().status == status
        assert wire.ended()


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="of a head"),
        pytest.param(post(b"", Content_Length="1000"), id="of a body"),
        pytest.param(post(b"", Content_Length="", Transfer_Encoding="chunked") + b"400\r\n", id="of a chunk"),
    ],
)
def test_bytes_that_trickle_in_do_not_extend_the_time(ours: Server, beginning: bytes) -> None:
    with (wire := ours.connect()).socket:
        wire.send(beginning)
        wire.socket.settimeout(0.05)
        for _ in range(400):
            wire.send(b"P")
            try:
                assert b" 408 " in wire.socket.recv(65536)
                return
            except TimeoutError:
                continue
        pytest.fail("400 single bytes at 50 ms each were waited for")


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="nothing sent"),
        pytest.param(b"POST /scheduler/filter HT", id="half a head"),
        pytest.param(post(b"{", Content_Length="100"), id="half a body"),
    ],
)
def test_a_client_that_leaves_harms_no_other(ours: Server, beginning: bytes) -> None:
    with (wire := ours.connect()).socket:
        wire.send(beginning)
    assert ours.ask(get("/livez")).status == 200


def test_half_closed_after_the_request_gets_its_answer(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        wire.send(post())
        wire.socket.shutdown(1)
        assert wire.reply().status == 200


def test_an_idle_connection_is_closed_in_time(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        assert wire.send(get("/livez")).reply().status == 200
        assert wire.ended()


def test_an_offer_to_upgrade_is_ignored(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        request = b"GET /livez HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        assert wire.send(request).reply().body == b"ok"


def test_what_is_pipelined_behind_chunks_is_the_next_request(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        chunked = post(b"", Content_Length="", Transfer_Encoding="chunked") + b"2\r\n{}\r\n0\r\n\r\n"
        wire.send(chunked + SMUGGLED)
        assert [wire.reply().status, wire.reply().status] == [200, 404]


def test_refusals_below_the_application_are_counted(ours: Server) -> None:
    before = _rejected(ours, "505")
    ours.ask(b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n")
    assert _rejected(ours, "505") == before + 1


def test_the_longest_idle_connection_is_closed_for_a_new_one() -> None:
    with extender("--connections", "3") as server:
        wires = [server.connect() for _ in range(3)]
        for wire in wires:
            assert wire.send(get("/livez")).reply().status == 200
        assert server.ask(get("/livez")).status == 200
        assert wires[0].ended()
        assert wires[2].send(get("/livez")).reply().status == 200


@pytest.fixture
def small() -> Iterator[Server]:
    """Eight connections at most, six of a client's address."""
    with extender("--connections", "8") as server:
        yield server


def test_a_connection_with_half_a_head_is_closed_before_an_idle_one(small: Server) -> None:
    idle = [small.connect() for _ in range(2)]
    for wire in idle:
        assert wire.send(get("/livez")).reply().status == 200
    halves = [small.connect().send(b"GET /livez HT") for _ in range(4)]
    assert small.ask(get("/livez")).status == 200
    assert _one_has_ended(halves)
    assert [wire.send(get("/livez")).reply().status for wire in idle] == [200, 200]


def test_a_connection_without_a_request_is_closed_before_an_idle_one(small: Server) -> None:
    idle = small.connect()
    assert idle.send(get("/livez")).reply().status == 200
    silent = [small.connect() for _ in range(5)]
    assert small.ask(get("/livez")).status == 200
    assert _one_has_ended(silent)
    assert idle.send(get("/livez")).reply().status == 200


def test_busy_connections_are_not_closed_and_new_ones_are_refused(small: Server, tmp_path: Path) -> None:
    busy = [small.connect().send(held(tmp_path / "end")) for _ in range(6)]
    small.until_logged("held", times=6)
    assert small.connect().ended()
    (tmp_path / "end").touch()
    assert [wire.reply().json["NodeNames"] for wire in busy] == [["a"]] * 6


@pytest.mark.slow
def test_connections_with_an_unread_answer_count_and_are_closed_for_new_ones(small: Server) -> None:
    """Each answer is larger than the buffers of both ends, so that it is being sent while others come."""
    nodes = json.dumps({"pod": "kube-system/p", "nodes": ["n" * 1000] * 20_000}).encode()
    with extender("--connections", "8", "--exempt-namespaces", "kube-system") as server:
        stuck = []
        for _ in range(12):
            wire = server.connect()
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(post(nodes)).socket.recv(1)
            stuck.append(wire)
        threads = len(list(Path(f"/proc/{server.worker_pid}/task").iterdir()))
        assert server.ask(get("/livez")).status == 200
        assert threads < 8 + 12


def _one_has_ended(wires: list[Wire]) -> bool:
    readable, _, _ = select.select([wire.socket for wire in wires], [], [], PATIENCE_SECONDS)
    return [wire.ended() for wire in wires if wire.socket in readable] == [True]


def _rejected(server: Server, code: str) -> float:
    text = server.ask(get("/metrics")).body.decode()
    lines = (
        line for line in text.splitlines() if line.startswith(f'extender_rejected_requests_total{{code="{code}"}}')
    )
    return float(next(lines, "x 0").split()[-1])


def test_the_trace_of_the_caller_reaches_the_log(ours: Server) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert ours.ask(post(traceparent=f"00-{trace}-00f067aa0ba902b7-01")).status == 200
    ours.until_logged(f"trace_id={trace}")
