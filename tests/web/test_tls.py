"""HTTPS, client certificates, and certificates that change while the server runs."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from extender.web import access
from extender.web.access import ReloadingContext, server_context
from tests.stock.process import free_port
from tests.web.servers import OURS, Server, extender, get, gunicorn, post

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    _write(ca.issue_cert("localhost"), folder)
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with extender(*_tls_flags(folder), "--client-ca", str(folder / "ca.pem"), "--client-names", "scheduler") as server:
        yield server


def _write(certificate: trustme.LeafCert, folder: Path) -> None:
    """As a mounted secret changes: the new files take the place of the old ones at once."""
    certificate.private_key_pem.write_to_path(str(folder / "key.new"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.new"))
    (folder / "key.new").replace(folder / "key.pem")
    (folder / "cert.new").replace(folder / "cert.pem")


def _tls_flags(folder: Path) -> tuple[str, ...]:
    return ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))


def _client(ca: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def _serial(server: Server, ca: trustme.CA) -> str:
    wire = server.connect(_client(ca))
    with wire.socket:
        assert isinstance(wire.socket, ssl.SSLSocket)
        return str((wire.socket.getpeercert() or {})["serialNumber"])


def test_a_client_with_a_listed_name_may_call(server: Server, ca: trustme.CA) -> None:
    assert server.ask(post(), _client(ca, ca.issue_cert("scheduler"))).status == 200


def test_a_common_name_counts_too(server: Server, ca: trustme.CA) -> None:
    assert server.ask(post(), _client(ca, ca.issue_cert("other", common_name="scheduler"))).status == 200


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param(None, "a client certificate is required", id="no certificate"),
        pytest.param("stranger", "the client certificate's name is not in clientNames", id="another name"),
    ],
)
@pytest.mark.parametrize(
    "request_bytes",
    [post(), get("/metrics"), get("/debug/cache/dump"), get("/nothing"), get("/scheduler/filter")],
    ids=["verb", "metrics", "debug", "404", "405"],
)
def test_clients_that_are_not_on_the_list_are_refused(
    server: Server, ca: trustme.CA, name: str | None, error: str, request_bytes: bytes
) -> None:
    reply = server.ask(request_bytes, _client(ca, ca.issue_cert(name) if name else None))
    assert (reply.status, reply.error) == (403, error)


def test_the_body_of_a_refused_client_is_not_read(server: Server, ca: trustme.CA) -> None:
    """They are refused by their head: the announced body is neither awaited nor charged."""
    wires = [server.connect(_client(ca)) for _ in range(8)]
    for wire in wires:
        wire.send(post(b"{", Content_Length=str(60 * 1024 * 1024)))
        assert wire.reply().status == 403
    body = b'{"nodes": ["a"], "pad": "%b"}' % (b"x" * 2_000_000)
    assert server.ask(post(body), _client(ca, ca.issue_cert("scheduler"))).status == 200


@pytest.mark.parametrize("probe", ["/livez", "/readyz", "/readyz?verbose"])
def test_probes_need_no_certificate(server: Server, ca: trustme.CA, probe: str) -> None:
    assert server.ask(get(probe), _client(ca)).status == 200


def test_a_certificate_of_another_ca_is_refused(server: Server, ca: trustme.CA) -> None:
    stranger = trustme.CA().issue_cert("scheduler")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        server.ask(post(), _client(ca, stranger))
    assert server.ask(get("/livez"), _client(ca)).status == 200


def test_plain_http_to_the_tls_port_ends(server: Server, ca: trustme.CA) -> None:
    with (wire := server.connect()).socket, suppress(ConnectionError):
        assert b"HTTP" not in wire.send(get("/livez")).socket.recv(65536)
    assert server.ask(get("/livez"), _client(ca)).status == 200


def test_a_connection_serves_many_requests_over_tls(server: Server, ca: trustme.CA) -> None:
    with (wire := server.connect(_client(ca, ca.issue_cert("scheduler")))).socket:
        for size in (10, 100_000, 2_000_000):
            body = b'{"nodes": ["a"], "pad": "%b"}' % (b"x" * size)
            assert wire.send(post(body)).reply().json["NodeNames"] == ["a"]


def test_an_idle_tls_connection_does_not_hold_up_the_end(folder: Path, ca: trustme.CA) -> None:
    with extender(*_tls_flags(folder)) as server, (wire := server.connect(_client(ca))).socket:
        assert wire.send(get("/livez")).reply().status == 200
        server.terminate()
        assert server.exit_code() == 0
    assert "did not end in time" not in server.log


@pytest.mark.parametrize(
    "worker", [pytest.param(OURS, id="ours"), pytest.param("gthread", id="gthread", marks=pytest.mark.slow)]
)
def test_new_files_serve_the_next_connection(worker: str, ca: trustme.CA, tmp_path: Path) -> None:
    _write(ca.issue_cert("localhost"), tmp_path)
    flags = ("--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem"))
    with gunicorn(worker, *flags) as server:
        old = _serial(server, ca)
        assert _serial(server, ca) == old
        _write(ca.issue_cert("localhost"), tmp_path)
        assert _serial(server, ca) != old


def test_a_connection_under_a_withdrawn_ca_ends(ca: trustme.CA, tmp_path: Path) -> None:
    _write(ca.issue_cert("localhost"), tmp_path)
    withdrawn, ca_file = trustme.CA(), tmp_path / "clients.pem"
    withdrawn.cert_pem.write_to_path(str(ca_file))
    with extender(*_tls_flags(tmp_path), "--client-ca", str(ca_file), "--client-names", "scheduler") as server:
        wire = server.connect(_client(ca, withdrawn.issue_cert("scheduler")))
        with wire.socket:
            assert wire.send(post()).reply().status == 200
            ca.cert_pem.write_to_path(str(tmp_path / "clients.new"))
            (tmp_path / "clients.new").replace(ca_file)
            assert wire.ended()
        assert server.ask(post(), _client(ca, ca.issue_cert("scheduler"))).status == 200


@pytest.fixture
def context(ca: trustme.CA, tmp_path: Path) -> ReloadingContext:
    _write(ca.issue_cert("localhost"), tmp_path)
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    return ReloadingContext([certificate, key], lambda: server_context(certificate, key, None))


def test_the_context_is_kept_while_nothing_changes(context: ReloadingContext) -> None:
    assert context.current() is context.current()


def test_the_context_outlives_files_that_do_not_fit(context: ReloadingContext, ca: trustme.CA, tmp_path: Path) -> None:
    first = context.current()
    ca.issue_cert("localhost").private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    assert context.current() is first
    (tmp_path / "cert.pem").unlink()
    assert context.current() is first
    _write(ca.issue_cert("localhost"), tmp_path)
    assert context.current() is not first


def test_files_that_could_not_be_read_are_tried_again_though_they_do_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_RETRY_SECONDS", 0.0)
    file, broken = tmp_path / "cert.pem", [False]

    def build() -> ssl.SSLContext:
        if broken[0]:
            raise OSError("permission denied")
        return ssl.create_default_context()

    file.write_text("1")
    context = ReloadingContext([str(file)], build)
    first = context.current()
    broken[0] = True
    file.write_text("22")
    assert context.current() is first
    broken[0] = False
    assert context.current() is not first


@pytest.mark.parametrize("certified", [False, True])
def test_the_address_of_probes_and_metrics_serves_no_verb(folder: Path, ca: trustme.CA, certified: bool) -> None:
    """Without certificates, or with those of another CA: neither may bind."""
    scrapers, port = trustme.CA(), free_port()
    scrapers.cert_pem.write_to_path(str(folder / "scrapers.pem"))
    flags = (*_tls_flags(folder), "--client-ca", str(folder / "ca.pem"), "--metrics-bind", f"127.0.0.1:{port}")
    scraper = _client(ca, scrapers.issue_cert("prometheus"))
    with extender(*flags, *(("--metrics-client-ca", str(folder / "scrapers.pem")) if certified else ())) as server:
        assert server.ask(get("/readyz"), _client(ca)).status == 200  # the worker listens at both from its start
        probes = Server(server.process, port)
        anybody, access = (_client(ca), scraper) if certified else (None, None)
        assert [probes.ask(get(path), anybody).body for path in ("/livez", "/readyz")] == [b"ok", b"ok"]
        assert probes.ask(get("/metrics"), anybody).status == (403 if certified else 200)
        assert b"extender_build_info" in probes.ask(get("/metrics"), access).body
        assert [probes.ask(post(), access).status, probes.ask(get("/debug/cache/dump"), access).status] == [404, 404]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            server.ask(post(), scraper)
