"""Calls to another extender over real sockets."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from extender.cluster.http_extender import HttpExtender
from extender.errors import ClusterError, ConfigurationError, OutcomeUnknown, Refused
from extender.model.extender_config import ExtenderConfig, TLSConfig
from tests.scheduler.fake_extender import FakeExtender, all_pass, passing
from tests.stock.process import free_port

ASKED = b'{"NodeNames":["a"]}'


def http_extender(url: str, **fields: Any) -> HttpExtender:
    return HttpExtender(ExtenderConfig(url, **fields))


def test_calls_share_a_connection() -> None:
    with FakeExtender(filter=all_pass) as fake:
        extender = http_extender(fake.url + "/")
        for _ in range(3):
            assert json.loads(extender.post("filter", ASKED))["NodeNames"] == ["a"]
        assert (fake.connections, len(fake.requests("filter"))) == (1, 3)
        extender.close()


def test_verbs_may_contain_slashes_and_bodies_may_be_large() -> None:
    names = [f"node-{index}.of.some.cluster.example.com" for index in range(5000)]
    verbs: dict[str, Any] = {"v1/filter": all_pass}
    with FakeExtender(**verbs) as fake:
        answer = json.loads(http_extender(fake.url).post("v1/filter", json.dumps({"NodeNames": names}).encode()))
        assert answer["NodeNames"] == names


def test_a_response_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.cluster.http_extender.LARGEST_ANSWER_BYTES", 1000)
    with FakeExtender(filter=b" " * 1001) as fake, pytest.raises(OutcomeUnknown, match=r"larger than 1000 bytes"):
        http_extender(fake.url).post("filter", ASKED)


def test_a_connection_that_the_extender_has_closed_is_replaced() -> None:
    with FakeExtender(filter=all_pass) as fake:
        extender = http_extender(fake.url)
        extender.post("filter", ASKED)
        ((_, connection),) = extender._pool._idle
        connection.shut()
        extender.post("filter", ASKED)
        assert (fake.connections, len(fake.asked)) == (2, 2)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(204, OutcomeUnknown, id="no content"),
        pytest.param(404, Refused, id="no such verb"),
        pytest.param(500, OutcomeUnknown, id="failed"),
        pytest.param(302, OutcomeUnknown, id="elsewhere"),
    ],
)
def test_any_status_other_than_200_is_an_error(status: int, error: type[ClusterError]) -> None:
    with FakeExtender(bind=b"") as fake:
        fake.status = status
        with pytest.raises(error, match=rf"{fake.url}/bind answered with status {status}"):
            http_extender(fake.url).post("bind", b"{}")


def test_an_extender_that_does_not_listen_is_a_refusal() -> None:
    with pytest.raises(Refused, match=r"/bind: .* cannot be reached: .*refused"):
        http_extender(f"http://127.0.0.1:{free_port()}").post("bind", b"{}")


def test_the_outcome_of_a_late_response_is_unknown() -> None:
    with FakeExtender(filter=all_pass) as fake:
        fake.delay_seconds = 2.0
        with pytest.raises(OutcomeUnknown, match=r"filter: the response was not complete after 0.2 s"):
            http_extender(fake.url, timeout_seconds=0.2).post("filter", ASKED)


@pytest.fixture
def dripping() -> Iterator[int]:
    """Yields the port of a server that sends a byte every 50 ms, so that it is never silent for long."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            while not over.wait(0.05):
                connection.sendall(b" ")

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    over.set()
    listener.close()


def test_the_time_limit_applies_to_the_whole_response(dripping: int) -> None:
    with pytest.raises(OutcomeUnknown, match=r"the response was not complete"):
        http_extender(f"http://127.0.0.1:{dripping}", timeout_seconds=0.3).post("filter", ASKED)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def pem(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Writes the files ca, cert and key of a client."""
    folder = tmp_path_factory.mktemp("pem")
    client = authority.issue_cert("scheduler")
    files = {name: folder / name for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(str(files["ca"]))
    client.cert_chain_pems[0].write_to_path(str(files["cert"]))
    client.private_key_pem.write_to_path(str(files["key"]))
    return files


@pytest.fixture
def secured(authority: trustme.CA) -> Iterator[FakeExtender]:
    """An extender for 127.0.0.1 and extender.example.com that requires a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "extender.example.com").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with FakeExtender(context, filter=passing("a")) as fake:
        yield fake


def tls(pem: dict[str, Path], **fields: Any) -> TLSConfig:
    given = {"ca_file": pem["ca"], "cert_file": pem["cert"], "key_file": pem["key"], **fields}
    return TLSConfig(**given)


def data(pem: dict[str, Path]) -> dict[str, Any]:
    read = {f"{name}_data": path.read_bytes() for name, path in pem.items()}
    return {**read, "ca_file": None, "cert_file": None, "key_file": None}


def test_both_sides_show_certificates(secured: FakeExtender, pem: dict[str, Path]) -> None:
    for config in (
        tls(pem),
        tls(pem, **data(pem)),
        tls(pem, server_name="extender.example.com"),
        tls(pem, ca_file=None, verified=False),
    ):
        assert json.loads(http_extender(secured.url, tls=config).post("filter", ASKED)) == passing("a")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"ca_file": None}, id="unknown authority"),
        pytest.param({"server_name": "another.example.com"}, id="another name"),
        pytest.param({"cert_file": None, "key_file": None}, id="no client certificate"),
    ],
)
def test_an_extender_that_is_not_trusted_is_not_called(
    secured: FakeExtender, pem: dict[str, Path], fields: Any
) -> None:
    with pytest.raises(ClusterError):
        http_extender(secured.url, tls=tls(pem, **fields)).post("filter", ASKED)
    assert secured.asked == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(TLSConfig(ca_file=Path("/nowhere/ca.crt")), id="no such file"),
        pytest.param(TLSConfig(ca_data=b"not PEM"), id="no PEM"),
        pytest.param(TLSConfig(cert_data=base64.b64decode(b"QUJD"), key_data=b"x"), id="no certificate"),
    ],
)
def test_unreadable_certificates_are_a_configuration_error(broken: TLSConfig) -> None:
    with pytest.raises(ConfigurationError, match=r"extender https://127.0.0.1/x: certificates: "):
        HttpExtender(ExtenderConfig("https://127.0.0.1/x", tls=broken))
