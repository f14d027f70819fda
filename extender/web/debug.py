"""Pages for people who doubt the cache: a comparison with the API server, and a dump of all that it counts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.web.access import ClientAuthorizer
from extender.web.answers import JSON, Answer, error_answer

DEBUG, UI = "/debug/", "/ui"
"""Pages below them show pods and nodes, and so are for this machine, or for clients with a certificate."""
COMPARE, DUMP = "/debug/cache/compare", "/debug/cache/dump"
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
