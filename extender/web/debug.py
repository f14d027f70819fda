"""Pages for people who doubt the process: what its cache counts, its settings, its log level; and who may see them."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from extender.config.settings import API_VERSION, OPTIONS, Settings
from extender.web.answers import JSON, Answer, Page, error_answer
from extender.web.calls import ClientAuthorizer
from extender.web.telemetry import log
from extender.web.worker.application import Handler

_log = logging.getLogger(__name__)

DEBUG, UI = "/debug/", "/ui"
"""Pages below them show pods and nodes, and so are for this machine, or for clients with a certificate."""
COMPARE, DUMP = "/debug/cache/compare", "/debug/cache/dump"
LOG_LEVEL, CONFIGZ = "/debug/log-level", "/configz"
SHOWN_TO_FEW = (DEBUG, UI, CONFIGZ)
ONLY_LOCAL = "only from this machine and by its name, as by kubectl port-forward"


@dataclass(frozen=True)
class PrivatePages:
    """Pages for this machine alone, or for clients with a certificate: they show pods and nodes, or change something.

    Attributes:
        pages: by path, for GET.
        actions: by path, for POST.
        takers: by path, what is answered to a body that is posted there.
    """

    pages: Mapping[str, Page] = field(default_factory=dict)
    actions: Mapping[str, Page] = field(default_factory=dict)
    takers: Mapping[str, Handler] = field(default_factory=dict)


def when_ready(look: Callable[[], object], waiting_for: Callable[[], str]) -> Page:
    """Returns the page of what `look` finds, as JSON; `waiting_for`: what must be there before, "" if it is."""

    def page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
        if missing := waiting_for():
            return error_answer(503, f"not ready: {missing}")
        return Answer(200, msgspec.json.encode(look()) + b"\n")

    return page


def change_log_level(query: Mapping[str, list[str]], _accept: str) -> Answer:
    """Sets the least severe level to log, `?level=debug`, until the process ends."""
    levels = OPTIONS["log_level"].choices
    level = next(iter(query.get("level", ())), "")
    if level not in levels:
        return error_answer(400, f"want ?level= with one of {', '.join(levels)}, not {level!r}")
    log.set_level(level)
    _log.warning("the log level is %s now", level)
    return Answer(200, msgspec.json.encode({"level": level}) + b"\n", JSON)


def configz(settings: Settings, **others: object) -> Page:
    """Returns the page with the settings in force, by their keys in the file of --config, and what else is set.

    Secrets are in files, of which the settings hold no more than the paths.
    """
    shown = {OPTIONS[name].key: value for name, value in settings.model_dump(mode="json").items()}
    body = msgspec.json.encode({API_VERSION: {**shown, **others}}) + b"\n"
    return lambda *_: Answer(200, body, JSON)


def refusal(environ: Mapping[str, Any], authorizer: ClientAuthorizer) -> str:
    """Returns why the caller gets no page that shows pods and nodes, or ""."""
    address, host = environ.get("REMOTE_ADDR", ""), environ.get("HTTP_HOST", "")
    if authorizer.certificate_required or is_local_call(address, host):
        return ""
    return f"{ONLY_LOCAL}, or with a client certificate (clientCa)"


def is_loopback(address: str) -> bool:
    """Returns whether a call from this address comes from this machine."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def is_local_call(address: str, host: str, is_loopback: Callable[[str], bool] = is_loopback) -> bool:
    """Returns whether somebody on this machine asks for this machine by name.

    The Host header counts, for a page in a browser here may ask under a name of its own that resolves to loopback.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return is_loopback(address) and (name == "localhost" or is_loopback(name.strip("[]")) or name == "")
