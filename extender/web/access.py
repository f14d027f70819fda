"""Decides which callers may send a request, and builds the TLS contexts that check their certificates.

If a client certificate is required, only the certificate counts. Otherwise a server on loopback trusts every process of
this machine. A browser is such a process, so a web page whose host name is made to resolve to 127.0.0.1 (DNS rebinding)
can send requests to the server. The page cannot change the Host and Origin headers that its browser sends, so these two
are checked.

A context is rebuilt when its files change: a renewed certificate needs no restart.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from extender.web.request_parser import RequestRefused

Certificate = Mapping[str, Any]
"""A client's certificate, as `ssl.SSLSocket.getpeercert` returns it."""

PROBES = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that every caller may read: kubelet has no certificate and uses the pod's IP address as Host."""
DEBUG, UI, CONFIGZ, SIMULATE = "/debug/", "/ui", "/configz", "/simulate"
PRIVATE = (DEBUG, UI, CONFIGZ, SIMULATE)
"""Paths that show pods and nodes, or cost much. Only this machine and clients with a certificate may use them."""

ONLY_LOCAL = (
    "allowed only from this machine with a Host header of localhost, 127.0.0.1 or [::1], as through kubectl"
    " port-forward, or with a client certificate (clientCa)"
)
_FOREIGN_HOST = (
    "the Host header must name this machine (localhost, 127.0.0.1 or [::1]) in a request to a loopback address;"
    " a proxy that sends another Host needs insecureBind: true"
)
_FOREIGN_ORIGIN = "the Origin header must name the same site as the Host header"

# Other loopback addresses do not count as this machine: a service mesh's sidecar passes requests on from 127.0.0.6.
_OWN_ADDRESSES = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_HOST = re.compile(r"(?:(localhost)|([0-9.]+)|\[([0-9a-f]*:[0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE)
_LONGEST_HOST = 64
_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0  # corrected permissions do not change a file's signature, so failed files are read again
_Signature = tuple[tuple[int, int, int] | None, ...]


class Connection(Protocol):
    """The addresses and the certificate of a client's connection. An unknown address, or one that is not IP, is ""."""

    def peer_address(self) -> str: ...

    def local_address(self) -> str: ...

    def certificate(self) -> Certificate | None:
        """Returns the client's certificate if it sent one that the TLS handshake has verified, else None."""


@dataclass(frozen=True, slots=True)
class WsgiConnection:
    """The connection of the request with this WSGI environment.

    gunicorn and our worker pass the socket in the environment. Other servers do not, so the local address is unknown. A
    loopback address is then assumed, so that `AccessRules` checks the Host header.
    """

    environ: Mapping[str, Any]

    def peer_address(self) -> str:
        return _without_zone(self.environ.get("REMOTE_ADDR", ""))

    def local_address(self) -> str:
        accepted = self._socket()
        return _ip_address(accepted.getsockname()) if accepted is not None else "127.0.0.1"

    def certificate(self) -> Certificate | None:
        accepted = self._socket()
        return accepted.getpeercert() if isinstance(accepted, ssl.SSLSocket) else None

    def _socket(self) -> socket.socket | None:
        return self.environ.get("gunicorn.socket")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules by which one server admits or refuses requests.

    Attributes:
        certificate_required: every request but probes needs a client certificate.
        names: a client certificate must have one of these as its common name or a DNS name; if empty, any name will do.
        any_host: requests to a loopback address may have any Host header (insecureBind). The PRIVATE paths
            still require a Host header that names this machine.
    """

    certificate_required: bool = False
    names: frozenset[str] = frozenset()
    any_host: bool = False

    def check(self, method: str, path: str, host: str, origin: str, connection: Connection) -> None:
        """Raises RequestRefused (403) if the caller may not send this request; `host` and `origin` are the headers."""
        if path in PROBES:
            return
        if self.certificate_required:
            self._check_certificate(connection.certificate())
        elif path.startswith(PRIVATE):
            if connection.peer_address() not in _OWN_ADDRESSES or not names_this_machine(host):
                raise RequestRefused(403, ONLY_LOCAL)
        elif not (names_this_machine(host) or self.any_host) and is_loopback(connection.local_address()):
            raise RequestRefused(403, _FOREIGN_HOST)
        if origin and method != "GET" and not _is_same_origin(origin, host):
            raise RequestRefused(403, _FOREIGN_ORIGIN)

    def _check_certificate(self, certificate: Certificate | None) -> None:
        if not certificate:
            raise RequestRefused(403, "a client certificate is required")
        if self.names and self.names.isdisjoint(_names(certificate)):
            raise RequestRefused(403, "the client certificate's name is not in clientNames")


def is_loopback(address: str) -> bool:
    """Returns True if `address` is an IP address of the loopback interface."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def names_this_machine(host: str) -> bool:
    """Returns True if a Host header is `localhost` or a loopback address, with or without a port."""
    return len(host) <= _LONGEST_HOST and _names_this_machine(host)


@lru_cache(maxsize=64)
def _names_this_machine(host: str) -> bool:
    parts = _HOST.fullmatch(host)
    return parts is not None and bool(parts[1] or is_loopback(parts[2] or parts[3]))


def _is_same_origin(origin: str, host: str) -> bool:
    authority = origin.partition("://")[2]
    return bool(authority) and authority.lower() == host.lower()


def _names(certificate: Certificate) -> set[str]:
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}


def _ip_address(address: object) -> str:
    """Returns the IP address in a socket's address, without an IPv6 zone; "" for a socket of another family."""
    return _without_zone(address[0]) if isinstance(address, tuple) else ""


def _without_zone(address: str) -> str:
    return address.partition("%")[0]


class ReloadingContext:
    """Holds a TLS context, and rebuilds it when one of its files changes.

    While the files do not match (a certificate was written before its key), the last good context stays in use.
    """

    def __init__(self, files: Sequence[str], build: Callable[[], ssl.SSLContext]) -> None:
        self._files = [Path(file) for file in files]
        self._build = build
        self._lock = Lock()
        self._retry_at = 0.0
        self._failed_signature: _Signature = ()
        # The signature is read before the files, so that a change in between is noticed by the next check.
        self._signature = self._current_signature()
        self._context = build()

    def current(self) -> ssl.SSLContext:
        with self._lock:
            signature = self._current_signature()
            must_wait = signature == self._failed_signature and time.monotonic() < self._retry_at
            if signature != self._signature and not must_wait:
                self._reload(signature)
            return self._context

    def _reload(self, signature: _Signature) -> None:
        try:
            self._context = self._build()
        except (OSError, ValueError) as error:
            _log.warning("TLS files not loaded, the earlier ones stay in use reason=%r", str(error))
            self._failed_signature = signature
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        else:
            _log.info("TLS files loaded, new connections use them")
            self._signature = signature

    def _current_signature(self) -> _Signature:
        return tuple(_signature(file) for file in self._files)


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Returns a server's context for TLS 1.2 or newer.

    With `client_ca` a client's certificate is requested and verified. A client without a certificate can still connect,
    because the kubelet has none for its probes. `AccessRules` then refuses all requests that are not probes.

    Raises:
        OSError: a file cannot be read, or is not a certificate or key (ssl.SSLError).
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE
    return context
