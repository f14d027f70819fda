"""A small server for probes, metrics and pages about the process; it serves nothing that a scheduler waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from extender.web.answers import Answer, error_answer
from extender.web.debug import is_loopback

Page = Callable[[Mapping[str, list[str]], str], Answer]
"""(query, Accept header) -> answer."""

DEBUG = "/debug/"
"""Pages below it tell of pods, and so are for this machine only."""
_SECONDS_TO_ASK = 10.0
_log = logging.getLogger(__name__)


class PageServer:
    """Serves `pages` by path from `start` to `stop`. Raises OSError where it cannot listen on `host`:`port`.

    `is_local`: whether a client's address is one of this machine.
    """

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], is_local: Callable[[str], bool] = is_loopback
    ) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages, "is_local": staticmethod(is_local)})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="pages", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS_TO_ASK
    pages: Mapping[str, Page]
    is_local: Callable[[str], bool]

    def do_GET(self) -> None:  # the base class's name for it
        answer = self._answer()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name for it
        _log.debug(format, *args)

    def _answer(self) -> Answer:
        url = urlsplit(self.path)
        page = self.pages.get(url.path)
        if page is None:
            return error_answer(404, f"nothing is served at {url.path}")
        if url.path.startswith(DEBUG) and not self.is_local(self.client_address[0]):
            return error_answer(403, "only from this machine, as by kubectl port-forward")
        try:
            return page(parse_qs(url.query, keep_blank_values=True), self.headers.get("Accept", ""))
        except Exception:
            _log.exception("GET %s failed", url.path)
            return error_answer(500, "internal error: the log has the cause")
