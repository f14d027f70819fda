"""`explain --from` and `status` read a process that speaks TLS and asks for a client's certificate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trustme

from extender.cli.running import AddressedReplica, ServerTls
from extender.errors import ConfigurationError, ExtenderError

NAME = "extender.extender-system.svc"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    for name, pair in (("server", authority.issue_cert(NAME)), ("client", authority.issue_cert("on-call"))):
        pair.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        pair.cert_chain_pems[0].write_to_path(str(folder / f"{name}.crt"))
    return folder


@pytest.fixture(scope="module")
def address(files: Path) -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files / "ca.crt"))
    context.load_cert_chain(files / "server.crt", files / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def replica(address: str, tls: ServerTls) -> AddressedReplica:
    return AddressedReplica(address, "--from", "`extender serve`", tls)


def test_a_process_is_read_through_a_port_forward_with_ones_own_certificate(address: str, files: Path) -> None:
    tls = ServerTls(files / "ca.crt", files / "client.crt", files / "client.key", NAME)
    assert replica(address, tls).get("/debug/decisions") == (200, b"{}")


@pytest.mark.parametrize(
    ("authority", "name", "message"),
    [(None, NAME, "--certificate-authority"), ("ca.crt", None, "--tls-server-name")],
)
def test_what_is_missing_is_named(
    address: str, files: Path, authority: str | None, name: str | None, message: str
) -> None:
    tls = ServerTls(files / authority if authority else None, files / "client.crt", files / "client.key", name)
    with pytest.raises(ExtenderError, match=f"is not trusted.*{message}"):
        replica(address, tls).get("/")


def test_a_refused_client_and_a_url_of_the_other_protocol_are_named(address: str, files: Path) -> None:
    tls = ServerTls(files / "ca.crt", server_name=NAME)
    with pytest.raises(ExtenderError, match="give a --client-certificate"):
        replica(address, tls).get("/")
    with pytest.raises(ExtenderError, match="may expect https"):
        replica(address.replace("https", "http"), tls).get("/")
    plain = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=plain.serve_forever, args=(0.01,))
    thread.start()
    try:
        with pytest.raises(ExtenderError, match="speaks http:// in place of https://"):
            replica(f"https://127.0.0.1:{plain.server_port}", tls).get("/")
    finally:
        plain.shutdown()
        thread.join()
        plain.server_close()


def test_a_certificate_that_has_expired_is_to_be_renewed(tmp_path: Path) -> None:
    authority, long_ago = trustme.CA(), datetime(2024, 1, 1, tzinfo=UTC)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME, not_before=long_ago, not_after=long_ago + timedelta(1)).configure_cert(context)
    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with pytest.raises(ExtenderError, match="certificate has expired; renew its certificate"):
            replica(f"https://127.0.0.1:{server.server_port}", ServerTls(tmp_path / "ca.crt", server_name=NAME)).get(
                "/"
            )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_that_cannot_be_used_are_named(address: str, files: Path) -> None:
    for tls, option in (
        (ServerTls(files / "none"), "--certificate-authority"),
        (ServerTls(files / "ca.crt", files / "client.key"), "--client-certificate"),
        (ServerTls(client_key=files / "client.key"), "--client-key needs --client-certificate"),
    ):
        with pytest.raises(ConfigurationError, match=option):
            replica(address, tls).get("/")
