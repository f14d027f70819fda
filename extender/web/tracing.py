"""Gives each call and attempt a trace id for the log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Work(NamedTuple):
    """A finished call of a verb, or a finished attempt to schedule a pod.

    Attributes:
        fields: the fields of the log line, without the trace id.
        ended_at: when the work ended, in seconds since the epoch.
        traceparent: the caller's `traceparent` header (W3C Trace Context); ignored if malformed.
    """

    fields: Mapping[str, object]
    ended_at: float
    traceparent: str = ""


class Traces:
    """Gives each call and attempt a trace id: the caller's, or a new one."""

    def __init__(self) -> None:
        self._process = os.urandom(8).hex()
        self._count = count(1)

    def trace(self, work: Work) -> tuple[float, dict[str, object]]:
        """Gives the work a trace id. Returns when the work ended, and the fields of its log line with the id."""
        caller = _TRACEPARENT.match(work.traceparent)
        trace_id = caller[1] if caller else f"{self._process}{next(self._count):016x}"
        return work.ended_at, {**work.fields, "trace_id": trace_id}
