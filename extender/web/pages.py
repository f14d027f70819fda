"""Probes, metrics and pages about a process whose main thread does something else, by the server of `web.worker`."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from extender.web.access import PROBES, ClientAuthorizer
from extender.web.answers import Answer, error_answer
from extender.web.debug import ONLY_LOCAL, SHOWN_TO_FEW, is_local_call, is_loopback
from extender.web.telemetry.refusals import log_refusal
from extender.web.worker.acceptor import Acceptor
from extender.web.worker.application import Handler, Lifecycle
from extender.web.worker.http1 import Head, Limits, RequestRefused

Page = Callable[[Mapping[str, list[str]], str], Answer]
"""(query, Accept header) -> answer."""

_BODY_BYTES, _QUESTION_BYTES = 64 * 1024, 8 * 1024 * 1024
_MOST_CONNECTIONS = 64
_TURN_SECONDS = 0.25
_log = logging.getLogger(__name__)


class PageServer:
    """Serves `pages` by path from `start` to `stop`. Raises OSError where it cannot listen on `host`:`port`.

    Args:
        pages: answered to GET and HEAD.
        actions: answered to POST, for they change something.
        is_loopback: tells whether a client's address is one of this machine; only such a client gets what is below
            /debug/ and /ui, /configz, and what takes a body.
        tls_context: for each connection; with it everything but probes needs a certificate that the context verifies.
        takers: answered to POST, with its body of 8 MiB at most.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Page],
        actions: Mapping[str, Page] | None = None,
        is_loopback: Callable[[str], bool] = is_loopback,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
        takers: Mapping[str, Handler] | None = None,
    ) -> None:
        self._pages, self._actions, self._is_loopback = pages, actions or {}, is_loopback
        self._authorizer = ClientAuthorizer(certificate_required=tls_context is not None)
        self._takers, limits = takers or {}, Limits(body_bytes=_QUESTION_BYTES if takers else _BODY_BYTES)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from None
        self.port = int(listener.getsockname()[1])
        lifecycle = Lifecycle(self._admit, _nothing, _nothing, _nothing, _nothing, limits, drain_seconds=0.0)
        self._acceptor = Acceptor(lifecycle, [listener], _MOST_CONNECTIONS, tls_context)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._acceptor.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._acceptor.turn(_TURN_SECONDS)

    def _admit(self, head: Head, connected: socket.socket) -> Handler:
        if (refusal := self._authorizer.refusal(connected)) and head.path not in PROBES:
            raise RequestRefused(403, refusal)
        return lambda body: self._answer(head, str(connected.getpeername()[0]), body)

    def _answer(self, head: Head, client: str, body: bytes) -> Answer:
        taker = self._takers.get(head.path)
        action = self._actions.get(head.path) if taker is None else lambda *_: taker(body)
        page, methods = (action, ("POST",)) if action else (self._pages.get(head.path), ("GET", "HEAD"))
        if page is None:
            log_refusal(404, client, f"{head.method} {head.path}", "nothing is served there")
            return error_answer(404, f"nothing is served at {head.path}")
        if head.method not in methods:
            return error_answer(405, f"{head.path} does not take {head.method}", (("Allow", ", ".join(methods)),))
        host = head.fields.get(b"host", b"").decode("latin-1")
        if (taker or head.path.startswith(SHOWN_TO_FEW)) and not is_local_call(client, host, self._is_loopback):
            return error_answer(403, ONLY_LOCAL)
        try:
            query = parse_qs(head.query, keep_blank_values=True)
            return page(query, head.fields.get(b"accept", b"").decode("latin-1"))
        except Exception:
            _log.exception("%s %s failed", head.method, head.path)
            return error_answer(500, "internal error: the log has the cause")


def _nothing(*_: object) -> None:
    pass
