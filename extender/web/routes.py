"""The one route table of the verbs: path -> handler(body) -> answer.

Two ways lead to it. Flask's views read the body of a request that came by WSGI and call the handler; the worker of
`web.worker` asks `Routes.admit` for the handler as soon as it has read a request's head. Each way makes each check
once: certificate, method, media type, encoding, length.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from extender.web.answers import JSON, Answer
from extender.web.worker.application import Handler
from extender.web.worker.http1 import Head, RequestRefused

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


class VerbHandler(Protocol):
    """Answers the body of a verb's request. Raises nothing."""

    def __call__(self, body: bytes, traceparent: str = "") -> Answer: ...


@dataclass(frozen=True)
class Routes:
    """`handlers` by path; every other request goes to `others`, with its head, its socket and its body."""

    handlers: Mapping[str, VerbHandler]
    authorizer: ClientAuthorizer
    others: Callable[[Head, socket.socket, bytes], Answer]

    def admit(self, head: Head, connected: socket.socket) -> Handler:
        """Returns the handler of the request's body; called before a byte of it is read.

        Raises:
            RequestRefused: the client may not call, or the body would be of a kind that is not read here.
        """
        if (refusal := self.authorizer.refusal(connected)) and head.path not in PROBES:
            raise RequestRefused(403, refusal)
        handler = self.handlers.get(head.path)
        if handler is None or head.method != "POST":
            return partial(self.others, head, connected)
        fields = head.fields
        if wrong := unreadable(fields.get(b"content-type", b"").decode("latin-1"), fields.get(b"content-encoding")):
            raise RequestRefused(415, wrong)
        traceparent = fields.get(b"traceparent")
        return partial(handler, traceparent=traceparent.decode("latin-1")) if traceparent else handler


def unreadable(content_type: str, content_encoding: str | bytes | None) -> str:
    """Returns why a body with these headers is not read, or ""."""
    if content_type != JSON and content_type.partition(";")[0].strip().lower() != JSON:
        return f"want Content-Type {JSON}"
    if content_encoding and content_encoding.lower() not in ("identity", b"identity"):
        return "want a body without Content-Encoding"
    return ""
