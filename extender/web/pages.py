"""Creates the pages about a process: health, metrics, settings and log level."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.config.settings import API_VERSION, OPTIONS, Command, Settings, options_of
from extender.web import log
from extender.web.access import DEBUG
from extender.web.answers import Answer, Handler, Page, error_answer, health_answer, json_answer
from extender.web.metrics import Metrics

_log = logging.getLogger(__name__)

COMPARE, DUMP, LOG_LEVEL = f"{DEBUG}cache/compare", f"{DEBUG}cache/dump", f"{DEBUG}log-level"


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


def configz(settings: Callable[[], Settings], command: Command) -> Page:
    """Returns the page that shows the settings of the command in use, by their keys in the file of --config.

    It shows no secrets, because the settings hold only the paths of files with secrets.
    """

    def page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
        values = settings().model_dump(mode="json")
        return json_answer({API_VERSION: {option.key: values[option.name] for option in options_of(command)}})

    return page


def listener_at(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises OSError, with the address in its message."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        advice = "; choose another, or end the process that has it" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{advice}") from None


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
