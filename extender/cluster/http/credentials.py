"""How to reach an API server and as whom: what the `kubernetes` client makes of a kubeconfig or a service account.

The client is imported when a cluster is asked for, not before: it takes 33 MiB and a quarter of a second.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from extender.errors import ConfigurationError, Refused

_TOKEN_KEPT_SECONDS = 10.0
_FAULTY = (OSError, ValueError, TypeError, KeyError, AttributeError)  # what the client raises on a file of odd form


class Credentials(Protocol):
    """Where an Access comes from; asked again when the API server no longer accepts it."""

    def load(self) -> Access:
        """Reads them as they are now. Raises ConfigurationError."""


class Kubeconfig:
    """A kubeconfig file and one of its contexts, by default its current one."""

    def __init__(self, path: Path, context: str | None = None) -> None:
        self._path, self._context = path, context

    def load(self) -> Access:
        if not self._path.is_file():
            raise ConfigurationError([f"kubeconfig {self._path}: no such file"])
        import yaml
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        configuration = Configuration()
        try:
            load_kube_config(  # type: ignore[no-untyped-call]  # the client ships a marker but few types
                str(self._path), self._context, configuration, persist_config=False
            )
            return Access(configuration)
        except (ConfigException, yaml.YAMLError, *_FAULTY) as error:
            raise ConfigurationError([f"kubeconfig {self._path}: {_one_line(error)}"]) from None


def credentials_of(kubeconfig: Path | None) -> Credentials:
    """Those of the file, or without one those of the pod that this process runs in."""
    return Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount()


class ServiceAccount:
    """The account of the pod that this process runs in."""

    def load(self) -> Access:
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException, load_incluster_config

        configuration = Configuration()
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as above
            return Access(configuration)
        except (ConfigException, *_FAULTY) as error:
            raise ConfigurationError(
                [f"no kubeconfig was given, and there is no service account to use instead: {_one_line(error)}"]
            ) from None


class Access:
    """One reading of the credentials; `configuration` is a kubernetes.client.Configuration.

    Attributes:
        host: for the Host header.
        base: path that all paths of the API stand under; empty as a rule.
    """

    def __init__(self, configuration: Any) -> None:
        """Raises OSError or ValueError where certificates cannot be read."""
        url = urlsplit(configuration.host)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"server {configuration.host!r} is no http(s) URL")
        self.host, self.base = url.netloc.rpartition("@")[2], url.path.rstrip("/")
        self._address = (url.hostname, url.port or (443 if url.scheme == "https" else 80))
        self._server_name: str = configuration.tls_server_name or url.hostname
        self._tls = _tls_context(configuration) if url.scheme == "https" else None
        self._proxy = _proxy(configuration)
        self._configuration = configuration
        self._lock = threading.Lock()
        self._authorization: str | None = None
        self._ask_again_at = 0.0

    def authorization(self) -> str | None:
        """The Authorization header; reads a rotated token, or runs the credential plugin again, when it is due.

        Raises:
            Refused: the new token cannot be had; stands as status 401.
        """
        with self._lock:
            # The client takes 130 us to say whether it is due, more than all else that a bind costs.
            if time.monotonic() >= self._ask_again_at:
                self._authorization = self._ask()
                self._ask_again_at = time.monotonic() + _TOKEN_KEPT_SECONDS
            return self._authorization

    def _ask(self) -> str | None:
        try:
            token: str | None = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # a plugin may fail in any way; ConfigException, for one, has no base but this
            raise Refused(f"the credentials cannot be renewed: {_one_line(error)}", 401) from None
        return token.strip() if token else None

    def dial(self, timeout_seconds: float) -> socket.socket:
        """A new connection, TLS included.

        Raises:
            Refused: there is none to be had in that time; stands as status 503, as a gateway would say.
        """
        try:
            sock = self._tunnel(self._proxy, timeout_seconds) if self._proxy else self._direct(timeout_seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(sock, server_hostname=self._server_name) if self._tls else sock
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Refused(f"{self.host} cannot be reached: {_one_line(error)}", 503) from None

    def _direct(self, timeout_seconds: float) -> socket.socket:
        return socket.create_connection(self._address, timeout_seconds)

    def _tunnel(self, proxy: SplitResult, timeout_seconds: float) -> socket.socket:
        connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout_seconds)
        connection.set_tunnel(*self._address, headers=self._configuration.proxy_headers)
        connection.connect()
        return connection.sock


def _tls_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl or configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(configuration: Any) -> SplitResult | None:
    from kubernetes.client.rest import should_bypass_proxies

    if not configuration.proxy or should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    proxy = urlsplit(str(configuration.proxy))
    if proxy.scheme != "http":
        raise ValueError(f"proxy {configuration.proxy!r}: only http:// proxies are supported")
    return proxy


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
