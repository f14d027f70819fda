"""Client certificates: with a client CA only clients that it has signed may call, and only those that are listed."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Certificate = Mapping[str, Any]
PROBES = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that everybody may ask, for kubelet has no certificate."""


@dataclass(frozen=True, slots=True)
class ClientAuthorizer:
    """`names` are common names or DNS names of client certificates; empty: any name that the CA signed."""

    certificate_required: bool = False
    names: frozenset[str] = frozenset()

    def refusal(self, connected: object) -> str:
        """Returns why the client at the other end of this socket is turned away; "" lets it in."""
        if not self.certificate_required:
            return ""
        # Empty unless the handshake verified it.
        certificate = connected.getpeercert() if isinstance(connected, ssl.SSLSocket) else None
        if not certificate:
            return "a client certificate is required"
        if self.names and self.names.isdisjoint(_names(certificate)):
            return "the client certificate's name is not on the list"
        return ""


def _names(certificate: Certificate) -> set[str]:
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
