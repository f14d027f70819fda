"""Pages for people who doubt the cache: a comparison with the API server, and a dump of all that it counts."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.config.settings import API_VERSION, OPTIONS, Settings
from extender.web.access import ClientAuthorizer
from extender.web.answers import JSON, Answer, error_answer
from extender.web.telemetry import log

_log = logging.getLogger(__name__)

DEBUG, UI = "/debug/", "/ui"
"""Pages below them show pods and nodes, and so are for this machine, or for clients with a certificate."""
COMPARE, DUMP = "/debug/cache/compare", "/debug/cache/dump"
LOG_LEVEL, CONFIGZ = "/debug/log-level", "/configz"
SHOWN_TO_FEW = (DEBUG, UI, CONFIGZ)
ONLY_LOCAL = "only from this machine and by its name, as by kubectl port-forward"


@dataclass(frozen=True)
class Debug:
    """Each returns dataclasses, which are answered as JSON. `waiting_for`: what must be there before, "" if it is."""

    compare: Callable[[], object]
    dump: Callable[[], object]
    waiting_for: Callable[[], str]


@dataclass(frozen=True)
class DebugPages:
    """Answers clients with a certificate, as verbs do; where none is required, those on this machine only."""

    debug: Debug
    authorizer: ClientAuthorizer

    def compare(self, environ: Mapping[str, Any]) -> Answer:
        """Compares the cache with the API server and puts right what differs; the answer lists the differences."""
        return self._answer(environ, self.debug.compare)

    def dump(self, environ: Mapping[str, Any]) -> Answer:
        """Returns everything that the cache holds."""
        return self._answer(environ, self.debug.dump)

    def _answer(self, environ: Mapping[str, Any], look: Callable[[], object]) -> Answer:
        if refused := refusal(environ, self.authorizer):
            return error_answer(403, refused)
        if missing := self.debug.waiting_for():
            return error_answer(503, f"the extender is not ready: {missing}")
        return Answer(200, msgspec.json.encode(look()) + b"\n", JSON)


def change_log_level(query: Mapping[str, list[str]], _accept: str) -> Answer:
    """Sets the least severe level to log, `?level=debug`, until the process ends."""
    levels = OPTIONS["log_level"].choices
    level = next(iter(query.get("level", ())), "")
    if level not in levels:
        return error_answer(400, f"want ?level= with one of {', '.join(levels)}, not {level!r}")
    log.set_level(level)
    _log.warning("the log level is %s now", level)
    return Answer(200, msgspec.json.encode({"level": level}) + b"\n", JSON)


def configz(settings: Settings, **others: object) -> Callable[[Mapping[str, list[str]], str], Answer]:
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
