"""Pages for people who doubt the cache: a comparison with the API server, and a dump of all that it counts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.web.access import ClientAuthorizer
from extender.web.answers import JSON, Answer, error_answer

DEBUG = "/debug/"
"""Pages below it show pods and nodes, and so are for this machine, or for clients with a certificate."""
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
        address, host = environ.get("REMOTE_ADDR", ""), environ.get("HTTP_HOST", "")
        if not (self.authorizer.certificate_required or is_local_call(address, host)):
            return error_answer(403, f"{ONLY_LOCAL}, or with a client certificate (clientCa)")
        if missing := self.debug.waiting_for():
            return error_answer(503, f"the extender is not ready: {missing}")
        return Answer(200, msgspec.json.encode(look()) + b"\n", JSON)


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
