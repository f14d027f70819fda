"""Defines the address of a server and how to connect to it: directly or through a proxy, with or without TLS."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from extender.errors import Refused

_MOST_MILLISECONDS_UNACKNOWLEDGED = 10_000  # like the time limit of a call
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Endpoint:
    """One server with one set of credentials.

    Endpoints are compared by identity, so two endpoints with equal settings do not share connections.

    Attributes:
        host: the value of the Host header.
        server_name: the name that the server's certificate must have.
        tls: the TLS settings with the client's certificate; None for plain HTTP.
    """

    host: str
    address: tuple[str, int]
    server_name: str
    tls: ssl.SSLContext | None = None
    proxy: SplitResult | None = None
    proxy_headers: Mapping[str, str] | None = None

    def dial(self, timeout_seconds: float) -> socket.socket:
        """Opens a connection, with TLS if the endpoint uses it.

        Raises:
            Refused: the server cannot be reached within `timeout_seconds`. Its status is 503, as if from a gateway.
        """
        sock = None
        try:
            sock = self._tunnel(self.proxy, timeout_seconds) if self.proxy else self._direct(timeout_seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The system would retry for many minutes to deliver a request, even after this process has ended. But the
            # next leader counts on it that a write does not arrive so late.
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # macOS has no such option
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MOST_MILLISECONDS_UNACKNOWLEDGED)
            return self.tls.wrap_socket(sock, server_hostname=self.server_name) if self.tls else sock
        except (OSError, ValueError, http.client.HTTPException) as error:
            if sock is not None:
                sock.close()
            raise Refused(f"{self.host} cannot be reached: {one_line(error)}", 503) from None

    def _direct(self, timeout_seconds: float) -> socket.socket:
        return socket.create_connection(self.address, timeout_seconds)

    def _tunnel(self, proxy: SplitResult, timeout_seconds: float) -> socket.socket:
        connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout_seconds)
        connection.set_tunnel(*self.address, headers=self.proxy_headers)
        connection.connect()
        return connection.sock


def address_of(url: SplitResult) -> tuple[str, int]:
    """Returns the URL's host and port (by default the port of its scheme). Raises ValueError if the port is invalid."""
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def split_http_url(text: str) -> SplitResult:
    """Returns the parts of an http or https URL. Raises ValueError for any other text."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"server {text!r} is not an http or https URL")
    return url


def client_context(
    authorities: str | None, pem: bytes, *, verified: bool, cafile: Path | None = None
) -> ssl.SSLContext:
    """Returns a TLS context that trusts `authorities` (PEM), or else `cafile`, or else the system's.

    Args:
        pem: the certificate and key of the client; b"" if the client has no certificate.
        verified: True if the server's certificate is to be verified.

    Raises:
        OSError: a certificate cannot be read (ssl.SSLError).
    """
    context = ssl.create_default_context(cafile=None if authorities else cafile, cadata=authorities)
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pem:
        # The ssl module reads certificates only from files. Other users cannot read a temporary file.
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def content(path: str | Path | None) -> bytes:
    """Returns the content of the file; b"" if no path is given."""
    return Path(path).read_bytes() if path else b""


def one_line(error: Exception) -> str:
    """Returns the error's message in one line, without an errno; the name of its type if the message is empty."""
    return " ".join(_ERRNO.sub("", str(error)).split()) or type(error).__name__
