"""Callers are admitted by certificate, by address, and by the headers that a web page cannot change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from extender.web.access import AccessRules, Certificate, is_loopback, names_this_machine
from extender.web.request_parser import RequestRefused
from tests.web.servers import OURS, Server, extender, gunicorn

pytestmark = pytest.mark.processes

CALLER: Certificate = {
    "subject": ((("commonName", "system:kube-scheduler"),),),
    "subjectAltName": (("DNS", "scheduler.example"), ("URI", "spiffe://other")),
}


@dataclass(frozen=True)
class Ends:
    """A connection without a socket."""

    peer: str = "127.0.0.1"
    local: str = "127.0.0.1"
    shown: Certificate | None = None

    def peer_address(self) -> str:
        return self.peer

    def local_address(self) -> str:
        return self.local

    def certificate(self) -> Certificate | None:
        return self.shown


def status(rules: AccessRules, method: str, path: str, host: str, origin: str = "", ends: Ends | None = None) -> int:
    """Returns 200 for a request that may be sent."""
    try:
        rules.check(method, path, host, origin, ends or Ends())
    except RequestRefused as refused:
        return refused.status
    return 200


OWN_NAMES = [
    "localhost",
    "LocalHost:8888",
    "127.0.0.1",
    "127.0.0.1:8888",
    "127.0.0.2:8888",
    "[::1]",
    "[::1]:8888",
    "[::ffff:127.0.0.1]:8888",
    "[0:0:0:0:0:0:0:1]:1",
]
OTHER_NAMES = [
    "",
    ":8888",
    "rebound.example",
    "rebound.example:8888",
    "localhost.example",
    "localhost.",
    "127.0.0.1.",
    "127.0.0.1.nip.io:8888",
    "2130706433",
    "2130706433:8888",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1:",
    "127.0.0.1:8888:8888",
    "127.0.0.1,rebound.example",
    "127.0.0.1@rebound.example",
    "rebound.example@127.0.0.1",
    "0.0.0.0:8888",
    "[::]:8888",
    "::1",
    "::1:8888",
    "[::1%25lo]:8888",
    "[::1%lo]",
    "[fe80::1]",
    "[::ffff:10.0.0.7]",
    "[127.0.0.1]",
    "10.0.0.7:8888",
    "127.0.0.1 ",
    "\u0661\u0662\u0667.0.0.1",
    "1" * 5000,
]


@pytest.mark.parametrize("host", OWN_NAMES)
def test_a_host_of_this_machine(host: str) -> None:
    assert names_this_machine(host)


@pytest.mark.parametrize("host", OTHER_NAMES)
def test_a_host_that_is_not_certainly_this_machine(host: str) -> None:
    assert not names_this_machine(host)


@pytest.mark.parametrize("path", ["/scheduler/bind", "/metrics", "/", "/nothing"])
@pytest.mark.parametrize(
    ("host", "local", "expected"),
    [
        pytest.param("127.0.0.1:8888", "127.0.0.1", 200, id="by its address"),
        pytest.param("localhost:8888", "::1", 200, id="by its name"),
        pytest.param("rebound.example:8888", "127.0.0.1", 403, id="a rebound name"),
        pytest.param("rebound.example:8888", "::1", 403, id="a rebound name, IPv6"),
        pytest.param("rebound.example:8888", "::ffff:127.0.0.1", 403, id="a rebound name, IPv4 in IPv6"),
        pytest.param("rebound.example:8888", "127.0.0.5", 403, id="a rebound name, another loopback address"),
        pytest.param("extender.svc:8888", "10.1.2.3", 200, id="a Service, at the address of a pod"),
        pytest.param("extender.svc:8888", "", 200, id="at a socket without an IP address"),
    ],
)
def test_on_loopback_verbs_and_metrics_need_a_host_of_this_machine(
    path: str, host: str, local: str, expected: int
) -> None:
    assert status(AccessRules(), "POST", path, host, ends=Ends(local=local)) == expected


def test_probes_may_have_any_host() -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert status(AccessRules(certificate_required=True), "GET", path, "10.1.2.3:8888") == 200


def test_an_insecure_bind_allows_any_host_but_for_pages_about_pods() -> None:
    rules = AccessRules(any_host=True)
    assert status(rules, "POST", "/scheduler/bind", "extender.svc") == 200
    assert status(rules, "GET", "/debug/cache/dump", "extender.svc") == 403


@pytest.mark.parametrize("path", ["/debug/cache/dump", "/ui/pending", "/configz", "/simulate"])
@pytest.mark.parametrize(
    ("peer", "host", "expected"),
    [
        pytest.param("127.0.0.1", "localhost:8888", 200, id="this machine"),
        pytest.param("::1", "[::1]:8888", 200, id="this machine, IPv6"),
        pytest.param("::ffff:127.0.0.1", "localhost", 200, id="this machine, IPv4 in IPv6"),
        pytest.param("127.0.0.6", "localhost:8888", 403, id="a service mesh"),
        pytest.param("10.0.0.7", "localhost:8888", 403, id="another machine"),
        pytest.param("", "localhost:8888", 403, id="an unknown peer"),
        pytest.param("127.0.0.1", "rebound.example", 403, id="a rebound name"),
        pytest.param("127.0.0.1", "", 403, id="no Host"),
    ],
)
def test_pages_about_pods_are_for_this_machine(path: str, peer: str, host: str, expected: int) -> None:
    assert status(AccessRules(), "GET", path, host, ends=Ends(peer, local="10.1.2.3")) == expected


@pytest.mark.parametrize(
    ("names", "shown", "expected"),
    [
        pytest.param((), None, 403, id="no certificate"),
        pytest.param((), CALLER, 200, id="any that the CA signed"),
        pytest.param(("system:kube-scheduler",), CALLER, 200, id="by its common name"),
        pytest.param(("scheduler.example",), CALLER, 200, id="by a DNS name"),
        pytest.param(("spiffe://other",), CALLER, 403, id="another kind of name"),
        pytest.param(("somebody",), CALLER, 403, id="another name"),
    ],
)
def test_a_certificate_decides_whatever_the_host(
    names: tuple[str, ...], shown: Certificate | None, expected: int
) -> None:
    rules = AccessRules(certificate_required=True, names=frozenset(names))
    for path in ("/scheduler/bind", "/debug/cache/dump", "/metrics"):
        assert status(rules, "GET", path, "extender.svc", ends=Ends("10.0.0.7", shown=shown)) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        pytest.param("", 200, id="no browser"),
        pytest.param("http://localhost:8888", 200, id="a page of this server"),
        pytest.param("HTTP://LOCALHOST:8888", 200, id="in capitals"),
        pytest.param("http://localhost:3000", 403, id="another server of this machine"),
        pytest.param("http://127.0.0.1:8888", 403, id="another name of this server"),
        pytest.param("https://evil.example", 403, id="another site"),
        pytest.param("null", 403, id="a sandboxed frame"),
        pytest.param("http://", 403, id="nothing"),
        pytest.param("http://localhost:8888,http://evil.example", 403, id="two"),
    ],
)
@pytest.mark.parametrize("path", ["/debug/log-level", "/simulate", "/scheduler/bind"])
def test_another_site_may_not_post(path: str, origin: str, expected: int) -> None:
    for rules, shown in ((AccessRules(), None), (AccessRules(certificate_required=True), CALLER)):
        assert status(rules, "POST", path, "localhost:8888", origin, Ends(shown=shown)) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.6", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_addresses_of_the_loopback_interface(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.fixture(scope="module", params=[pytest.param(OURS, id="ours"), pytest.param("gthread", id="gthread")])
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    with gunicorn(request.param, "--threads", "4") as server:
        yield server


def request_of(target: str, *fields: str, version: str = "1.1", body: bytes = b"{}") -> bytes:
    head = "".join(f"{field}\r\n" for field in (*fields, f"Content-Length: {len(body)}"))
    return f"{target} HTTP/{version}\r\n{head}\r\n".encode() + body


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(request_of("POST /scheduler/filter", "Host: 127.0.0.1:8888", JSON), 200, id="kube-scheduler"),
        pytest.param(request_of("POST /scheduler/filter", "Host: localhost:8888", JSON), 200, id="by name"),
        pytest.param(request_of("POST /scheduler/filter", "Host: rebound.example", JSON), 403, id="a rebound name"),
        pytest.param(request_of("POST /scheduler/filter", "Host: 2130706433", JSON), 403, id="digits alone"),
        pytest.param(request_of("GET /metrics", "Host: rebound.example", body=b""), 403, id="metrics, rebound"),
        pytest.param(request_of("GET /livez", "Host: 10.1.2.3:8888", body=b""), 200, id="a probe"),
        pytest.param(request_of("POST /scheduler/filter", JSON, version="1.0"), 403, id="HTTP/1.0 without Host"),
        pytest.param(request_of("GET /metrics", version="1.0", body=b""), 403, id="metrics, HTTP/1.0 without Host"),
        pytest.param(request_of("POST /scheduler/filter", "Host: ", JSON), 403, id="an empty Host"),
        pytest.param(
            request_of("POST /scheduler/filter", "Host: rebound.example", "X-Forwarded-Host: localhost", JSON),
            403,
            id="X-Forwarded-Host",
        ),
        pytest.param(
            request_of("POST /scheduler/filter", "Host: localhost", "Origin: http://evil.example", JSON),
            403,
            id="another origin",
        ),
        pytest.param(
            request_of("OPTIONS /scheduler/filter", "Host: localhost", "Origin: http://evil.example", body=b""),
            403,
            id="a preflight",
        ),
    ],
)
def test_a_server_on_loopback(either: Server, sent: bytes, expected: int) -> None:
    reply = either.ask(sent)
    assert reply.status == expected
    assert "access-control-allow-origin" not in reply.headers


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with extender() as server:
        yield server


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            request_of("POST http://rebound.example/scheduler/filter", "Host: localhost", JSON), id="in the target"
        ),
        pytest.param(
            request_of("POST /scheduler/filter", "Host: localhost", "Host: rebound.example", JSON), id="a second one"
        ),
    ],
)
def test_another_host_beside_the_header_is_refused(ours: Server, sent: bytes) -> None:
    reply = ours.ask(sent)
    assert reply.status in (400, 403)
    assert reply.headers["connection"] == "close"


def test_a_refused_caller_is_not_asked_for_the_body(ours: Server) -> None:
    with (wire := ours.connect()).socket:
        head, _, _ = request_of(
            "POST /scheduler/filter", "Host: rebound.example", JSON, "Expect: 100-continue"
        ).partition(b"{")
        assert wire.send(head).reply().status == 403
        assert wire.ended()


def test_a_refusal_is_logged_and_says_what_to_do(ours: Server) -> None:
    reply = ours.ask(request_of("POST /scheduler/bind", "Host: rebound.example", JSON))
    assert "insecureBind" in json.loads(reply.body)["error"]
    ours.until_logged(
        "status=403 client=127.0.0.1 request='POST /scheduler/bind' reason='the Host header must name this machine"
    )
