"""Kubeconfigs, service accounts and credential plugins become an endpoint and an authorization."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from extender.cluster import credentials
from extender.cluster.credentials import Kubeconfig, ServiceAccount
from extender.errors import ConfigurationError, Refused


def write(directory: Path, **changes: Any) -> Path:
    document: dict[str, Any] = {
        "clusters": [
            {"name": "one", "cluster": {"server": "https://127.0.0.1:1"}},
            {"name": "two", "cluster": {"server": "https://localhost:2/k8s/clusters/c-1/"}},
        ],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("one", "two")],
        "current-context": "one",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document | changes))
    return path


def test_the_current_context_is_used_unless_another_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert Kubeconfig(path).load().endpoint.host == "127.0.0.1:1"
    other = Kubeconfig(path, context="two").load()
    assert (other.endpoint.host, other.base) == ("localhost:2", "/k8s/clusters/c-1")


def test_the_token_becomes_the_authorization_header(tmp_path: Path) -> None:
    assert Kubeconfig(write(tmp_path)).load().authorization == "Bearer secret"
    contexts = [{"name": "one", "context": {"cluster": "one"}}]
    assert Kubeconfig(write(tmp_path, users=[], contexts=contexts)).load().authorization is None


def test_a_token_may_be_in_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    path = write(tmp_path, users=[{"name": "me", "user": {"tokenFile": "token"}}])
    assert Kubeconfig(path).load().authorization == "Bearer from-file"


def cluster(**fields: Any) -> dict[str, Any]:
    return {"clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", **fields}}]}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"current-context": "three"}, id="a context that is not there"),
        pytest.param({"contexts": None}, id="no contexts"),
        pytest.param({"clusters": []}, id="no clusters"),
        pytest.param({"clusters": [{"name": "one", "cluster": {"server": "ftp://x"}}]}, id="no http"),
        pytest.param({"clusters": [{"name": "one", "cluster": {"server": "https://x:port"}}]}, id="no port"),
        pytest.param(cluster(**{"certificate-authority": "nowhere.pem"}), id="a CA file that is not there"),
        pytest.param(cluster(**{"certificate-authority-data": "bm8gY2VydA=="}), id="a CA that is none"),
        pytest.param(cluster(**{"certificate-authority-data": "?"}), id="a CA that is not base64"),
        pytest.param(cluster(**{"proxy-url": "socks5://127.0.0.1:1"}), id="a proxy of another kind"),
        pytest.param({"users": [{"name": "me", "user": {"client-certificate": "no.pem"}}], **cluster()}, id="no cert"),
    ],
)
def test_a_kubeconfig_with_a_fault_is_an_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(ConfigurationError) as caught:
        Kubeconfig(path).load()
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [
        pytest.param(
            {"current-context": None}, "current-context: required, or --context with one of: one", id="no context"
        ),
        pytest.param({"current-context": None, "contexts": []}, "it has no contexts; expected a", id="another file"),
        pytest.param({"contexts": None}, "contexts: 'one' not found; there are: none", id="none at all"),
        pytest.param({"current-context": "three"}, "contexts: 'three' not found; there are: one", id="another context"),
        pytest.param(
            {"clusters": {"a": 1}}, "clusters: expected a list of entries with name and cluster", id="a mapping"
        ),
        pytest.param({"clusters": [1]}, "clusters: expected a list of entries with name and cluster", id="numbers"),
        pytest.param({"clusters": []}, "clusters: 'one' not found", id="no clusters"),
        pytest.param({"users": []}, "users: 'me' not found", id="a user who is not there"),
        pytest.param({"users": [{"name": "me", "user": "me"}]}, "users: 'me': user: expected a mapping", id="a text"),
        pytest.param(
            {"users": [{"name": "me", "user": {"auth-provider": {"name": "gcp"}}}]},
            "users: auth-provider returns no token, use exec instead: ",
            id="a provider that is no more",
        ),
    ],
)
def test_an_error_names_the_field(tmp_path: Path, changes: dict[str, Any], recorded: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(ConfigurationError) as caught:
        Kubeconfig(path).load()
    assert str(caught.value).startswith(f"kubeconfig {path}: {recorded}")


@pytest.mark.parametrize("text", ["", "[]", "[", "- 1", "just text", "{}", "\0", "[" * 100_000])
def test_a_file_that_is_not_a_kubeconfig_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        Kubeconfig(tmp_path / "kubeconfig").load()


def test_a_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        Kubeconfig(tmp_path / "nowhere").load()
    with pytest.raises(ConfigurationError, match="not a file"):
        Kubeconfig(tmp_path).load()


def test_a_missing_service_account_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        ConfigurationError, match=r"no kubeconfig was given, and there is no .*\): set --kubeconfig FILE"
    ):
        ServiceAccount().load()


GRANT = """echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":%s}'"""


def with_plugin(directory: Path, script: str, **changes: Any) -> Path:
    """Writes a kubeconfig whose credential plugin is the script."""
    plugin = directory / "plugin.sh"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    return write(directory, users=[{"name": "me", "user": {"exec": exec_}}], **changes)


def test_a_plugin_runs_again_when_its_credentials_expire_or_are_rejected(tmp_path: Path) -> None:
    granted = GRANT % '{"token":"\'$(date +%s%N)\'","expirationTimestamp":"2999-01-01T00:00:00Z"}'
    credentials = Kubeconfig(with_plugin(tmp_path, granted))
    first = credentials.load()
    assert credentials.load(first).authorization == first.authorization
    assert credentials.load(first, rejected=True).authorization != first.authorization


@pytest.mark.parametrize(
    ("script", "seconds", "recorded"),
    [
        pytest.param("echo no such user >&2; exit 3", 60.0, "status 3: no such user", id="it fails"),
        pytest.param("echo '{'", 60.0, "not an ExecCredential", id="it prints nonsense"),
        pytest.param(GRANT % "{}", 60.0, "neither a token nor a certificate", id="it grants nothing"),
        pytest.param("sleep 60", 0.2, "took longer than 0.2 s", id="it hangs"),
    ],
)
def test_a_plugin_without_credentials_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float, recorded: str
) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_SECONDS", seconds)
    with pytest.raises(ConfigurationError, match=recorded):
        Kubeconfig(with_plugin(tmp_path, script)).load()


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"token": "secret"}, id="a token"),
        pytest.param({"username": "me", "password": "secret"}, id="a password"),
        pytest.param({"exec": {"apiVersion": "v1", "command": "/bin/false"}}, id="a plugin"),
    ],
)
def test_no_secret_goes_over_http(tmp_path: Path, user: dict[str, Any]) -> None:
    server = {"clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}]}
    with pytest.raises(ConfigurationError, match="is not an https URL"):
        Kubeconfig(write(tmp_path, users=[{"name": "me", "user": user}], **server)).load()


@pytest.mark.parametrize("token", ["a\r\nX-Remote-User: root", "a\nb", "a\0b", "\u00e9"])
def test_a_token_with_characters_that_a_header_cannot_have_is_an_error(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigurationError, match="the token contains"):
        Kubeconfig(write(tmp_path, users=[{"name": "me", "user": {"token": token}}])).load()


def test_the_endpoint_changes_only_with_its_material(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    credentials = Kubeconfig(write(tmp_path, **cluster(**{"certificate-authority": "ca.pem"})))
    first = credentials.load()
    assert credentials.load(first).endpoint is first.endpoint
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    assert credentials.load(first).endpoint is not first.endpoint


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yields the port of a server that passes its first connection to `serve`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):  # the client may not like what it meets
            serve(listener.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.close()
    thread.join(60)


def tls_server(authority: trustme.CA, name: str, *, client_certificate: bool) -> Callable[[socket.socket], object]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    if client_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.sendall(b"hello")

    return serve


@pytest.mark.parametrize(
    ("name", "fields", "accepted"),
    [
        pytest.param("127.0.0.1", {}, True, id="the name in the certificate is the server's"),
        pytest.param("api.internal", {}, False, id="it is another's"),
        pytest.param("api.internal", {"tls-server-name": "api.internal"}, True, id="that we expect"),
        pytest.param("api.internal", {"insecure-skip-tls-verify": True}, True, id="that we do not look at"),
    ],
)
def test_tls_verifies_the_server_as_the_kubeconfig_says(
    tmp_path: Path, name: str, fields: dict[str, Any], accepted: bool
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("someone@example.com")
    ours.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    user = {"client-certificate": "me.pem", "client-key": "me.pem"}
    with listening(tls_server(authority, name, client_certificate=True)) as port:
        server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.pem", **fields}
        clusters = [{"name": "one", "cluster": server}]
        config = Kubeconfig(write(tmp_path, clusters=clusters, users=[{"name": "me", "user": user}])).load()
        if accepted:
            with config.endpoint.dial(5.0) as connection:
                assert connection.recv(5) == b"hello"
        else:
            with pytest.raises(Refused, match="certificate"):
                config.endpoint.dial(5.0)


def test_a_proxy_is_asked_for_a_tunnel(tmp_path: Path) -> None:
    asked = []

    def proxy(connection: socket.socket) -> None:
        asked.append(connection.recv(1000).partition(b"\r\n")[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.sendall(connection.recv(5).upper())
        connection.close()

    with listening(proxy) as port:
        server = {"server": "http://api.internal:6443", "proxy-url": f"http://127.0.0.1:{port}"}
        config = Kubeconfig(
            write(tmp_path, clusters=[{"name": "one", "cluster": server}], users=[{"name": "me", "user": {}}])
        ).load()
        with config.endpoint.dial(5.0) as connection:
            connection.sendall(b"hello")
            assert connection.recv(5) == b"HELLO"
    assert asked[0].startswith(b"CONNECT api.internal:6443 HTTP/1.")


def test_an_unreachable_server_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be reached"):
        Kubeconfig(write(tmp_path)).load().endpoint.dial(1.0)


def test_the_client_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, extender.cluster.watch.source, extender.cluster.binder;sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
