"""Decides which callers may send a request.

If a client certificate is required, only the certificate counts. Otherwise a server on loopback trusts every process of
this machine. A browser is such a process, so a web page whose host name is made to resolve to 127.0.0.1 (DNS rebinding)
can send requests to the server. The page cannot change the Host and Origin headers that its browser sends, so these two
are checked.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from extender.web.worker.request_parser import RequestRefused

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
