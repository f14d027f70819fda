"""What people look at when they doubt the cache: a comparison with the API server, and all that it counts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.web.access import ClientAuthorizer
from extender.web.answers import JSON, Answer, error_answer

COMPARE, DUMP = "/debug/cache/compare", "/debug/cache/dump"


@dataclass(frozen=True)
class Debug:
    """Each returns dataclasses, which are answered as JSON. `waiting_for`: what must be there before, "" if it is."""

    compare: Callable[[], object]
    dump: Callable[[], object]
    waiting_for: Callable[[], str]


@dataclass(frozen=True)
class DebugPages:
    """Answers those who may look: as for verbs by certificate, and where none is asked for from this machine only."""

    debug: Debug
    authorizer: ClientAuthorizer

    def compare(self, environ: Mapping[str, Any]) -> Answer:
        """Compares and puts right; the answer tells what was wrong."""
        return self._answer(environ, self.debug.compare)

    def dump(self, environ: Mapping[str, Any]) -> Answer:
        """Everything that counts."""
        return self._answer(environ, self.debug.dump)

    def _answer(self, environ: Mapping[str, Any], tell: Callable[[], object]) -> Answer:
        if not (self.authorizer.certificate_required or is_loopback(environ.get("REMOTE_ADDR", ""))):
            return error_answer(403, "only from this machine, or with a client certificate (clientCa)")
        if missing := self.debug.waiting_for():
            return error_answer(503, f"the extender is not ready: {missing}")
        return Answer(200, msgspec.json.encode(tell()) + b"\n", JSON)


def is_loopback(client: str) -> bool:
    """Whether a call from this address comes from this machine."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
