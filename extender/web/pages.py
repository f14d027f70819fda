"""Creates the pages about a process: health, metrics, settings and log level.

`PageServer` serves pages without Flask: for `extender schedule`, and for the separate metrics address of `extender
serve`.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from extender.config.settings import API_VERSION, OPTIONS, Command, Settings, options_of
from extender.web.access import DEBUG, AccessRules, SocketConnection
from extender.web.answers import Answer, Page, error_answer, health_answer, json_answer
from extender.web.calls import check_media_type
from extender.web.telemetry import log
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.refusals import refuse
from extender.web.worker.application import Handler, Lifecycle
from extender.web.worker.connection import Acceptor
from extender.web.worker.request_parser import Head, Limits

_log = logging.getLogger(__name__)

COMPARE, DUMP, LOG_LEVEL = f"{DEBUG}cache/compare", f"{DEBUG}cache/dump", f"{DEBUG}log-level"
_BODY_BYTES, _QUESTION_BYTES = 64 * 1024, 8 * 1024 * 1024
_MOST_CONNECTIONS = 64
_TURN_SECONDS = 0.25


@dataclass(frozen=True)
class PrivatePages:
    """Pages, by path, that only this machine and clients with a certificate may use.

    Attributes:
        pages: answer GET.
        actions: answer POST without a body.
        body_actions: answer POST with a body.
    """

    pages: Mapping[str, Page] = field(default_factory=dict)
    actions: Mapping[str, Page] = field(default_factory=dict)
    body_actions: Mapping[str, Handler] = field(default_factory=dict)


def when_ready(look: Callable[[], object], waiting_for: Callable[[], str | None]) -> Page:
    """Returns a page with the result of `look` as JSON, or the error 503 as long as `waiting_for` returns a reason."""

    def page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
        missing = waiting_for()
        if missing is not None:
            return error_answer(503, f"not ready: {missing}")
        return json_answer(look())

    return page


def change_log_level(query: Mapping[str, list[str]], _accept: str) -> Answer:
    """Sets the least severe level that is logged (`?level=debug`) until the process ends."""
    levels = OPTIONS["log_level"].choices
    level = next(iter(query.get("level", ())), "")
    if level not in levels:
        return error_answer(400, f"expected ?level= with one of {', '.join(levels)}, got {level!r}")
    log.set_level(level)
    _log.warning("log level changed level=%s", level)
    return json_answer({"level": level})


def configz(settings: Settings, command: Command) -> Page:
    """Returns the page that shows the settings of the command in use, by their keys in the file of --config.

    It shows no secrets, because the settings hold only the paths of files with secrets.
    """
    values = settings.model_dump(mode="json")
    shown = {option.key: values[option.name] for option in options_of(command)}
    answer = json_answer({API_VERSION: shown})
    return lambda *_: answer


def listener_at(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises OSError, with the address in its message."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        advice = "; choose another, or end the process that has it" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{advice}") from None


class PageServer:
    """Serves pages from `start` to `stop`.

    Args:
        pages: answer GET and HEAD, by path.
        actions: answer POST without a body, because they change something.
        tls_context: called for each connection. If it is given, every request but probes needs a certificate that this
            context verifies.
        body_actions: answer POST with a body of at most 8 MiB.
        any_host: see AccessRules.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Page],
        actions: Mapping[str, Page] | None = None,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
        body_actions: Mapping[str, Handler] | None = None,
        *,
        any_host: bool = False,
    ) -> None:
        self._pages = pages
        self._actions = actions or {}
        self._body_actions = body_actions or {}
        self._access = AccessRules(certificate_required=tls_context is not None, any_host=any_host)
        limits = Limits(body_bytes=_QUESTION_BYTES if body_actions else _BODY_BYTES)
        listener = listener_at(host, port)
        self.port = int(listener.getsockname()[1])
        lifecycle = Lifecycle(self._admit, refuse, limits)
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
        connection = SocketConnection(connected)
        self._access.check(head.method, head.path, head.field(b"host"), head.field(b"origin"), connection)
        if head.method == "POST":
            self._check_media_type(head)
        return lambda body: self._answer(head, str(connected.getpeername()[0]), body)

    def _check_media_type(self, head: Head) -> None:
        """Refuses a POST whose body is not JSON, because an HTML form of another site may have sent it.

        Raises:
            RequestRefused: the body has another media type (415).
        """
        content_type = head.field(b"content-type")
        if head.path in self._body_actions or content_type:
            check_media_type(content_type, head.field(b"content-encoding"))

    def _answer(self, head: Head, client: str, body: bytes) -> Answer:
        body_action = self._body_actions.get(head.path)
        action = self._actions.get(head.path) if body_action is None else lambda *_: body_action(body)
        page, methods = (action, ("POST",)) if action else (self._pages.get(head.path), ("GET", "HEAD"))
        if page is None:
            return refuse(404, client, f"{head.method} {head.path}", f"nothing is served at {head.path}")
        if head.method not in methods:
            return error_answer(405, f"{head.path} does not take {head.method}", (("Allow", ", ".join(methods)),))
        try:
            query = parse_qs(head.query, keep_blank_values=True)
            return page(query, head.field(b"accept"))
        except Exception:
            _log.exception("request failed request=%r", f"{head.method} {head.path}")
            return error_answer(500, "internal error: the log has the cause")


def probe_pages(
    metrics: Metrics,
    revive: Callable[[], Sequence[str]],
    unready: Callable[[], Mapping[str, str | None]],
    before_scrape: Callable[[], object] = lambda: None,
) -> Mapping[str, Page]:
    """Returns the pages for probes and Prometheus, by path.

    Args:
        revive: restarts threads that have ended; returns their names.
        unready: returns check -> the reason why the process is not ready, or None if the check passes.
        before_scrape: called before metrics are rendered.
    """

    def livez(query: Mapping[str, list[str]], _accept: str) -> Answer:
        ended = ", ".join(revive())
        checks = {"ping": None, "threads": f"restarted after an unexpected end: {ended}" if ended else None}
        return health_answer("livez", checks, "verbose" in query)

    def readyz(query: Mapping[str, list[str]], _accept: str) -> Answer:
        return health_answer("readyz", {"ping": None, **unready()}, "verbose" in query)

    def scraped(_query: Mapping[str, list[str]], accept: str) -> Answer:
        before_scrape()
        try:
            body, content_type = metrics.render(accept)
        except (TypeError, ValueError):
            # prometheus-client fails for some versions of the format that a client may ask for
            metrics.rejected(406)
            return error_answer(406, "the Accept header asks for an unknown format of metrics")
        return Answer(200, body, content_type)

    return {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/metrics": scraped}
