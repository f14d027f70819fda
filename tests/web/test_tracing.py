"""Every call has a trace id in its log line."""

from __future__ import annotations

import io
import json

import pytest

from extender.config.settings import Settings
from extender.runtime.clock import SystemClock
from extender.web import log
from extender.web.app import Backend, create_app
from extender.web.metrics import Metrics
from tests.web.fakes import Running, ScriptedVerb

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.configure("json", "info", stream)
    return stream


def test_a_line_has_the_callers_trace_id_or_a_new_one(lines: io.StringIO) -> None:
    running = Running()
    verbs = [ScriptedVerb(name) for name in ("filter", "prioritize", "preempt", "bind")]
    backend = Backend(verbs, running.waiting_for, running.start, running.stop)
    app = create_app(backend, Settings(), Metrics(SystemClock(), "1"))
    body = json.dumps({"pod": "shop/web-0", "nodes": ["a", "b"]})
    for headers in ({"traceparent": TRACEPARENT}, {}, {"traceparent": "none"}, {"traceparent": f"00-{'0' * 32}-1-01"}):
        headers = {"Content-Type": "application/json", **headers}
        app.test_client().post("/scheduler/filter", data=body, headers=headers)
    app.lifecycle.stop()
    joined, *others = (str(line["trace_id"]) for line in map(json.loads, lines.getvalue().splitlines()))
    assert joined == TRACE
    assert len({*others}) == 3
    assert all(int(each, 16) and len(each) == 32 for each in others)
