"""A trace id for every call and attempt, and spans where the environment asks for them, sent by OpenTelemetry's SDK."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from extender.config.settings import Settings
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock, SystemClock
from extender.scheduler.scheduler_ports import Attempt
from extender.web.app import Backend, create_app
from extender.web.telemetry import log
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.scheduler_metrics import SchedulerMetrics
from extender.web.telemetry.tracing import Spans, Traces, spans_wanted, traces_of
from tests.builders import make_pod
from tests.web.fakes import Running, ScriptedVerb

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.configure("json", "info", stream)
    return stream


def spans_in_memory() -> tuple[Spans, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider), exporter


def ask(traces: Traces, headers: Mapping[str, str], do: str = "") -> None:
    """Posts a call to filter, and ends the process."""
    running = Running()
    verbs = [ScriptedVerb(name) for name in ("filter", "prioritize", "preempt", "bind")]
    backend = Backend(verbs, running.waiting_for, running.start, running.stop, traces=traces)
    body = json.dumps({"pod": "shop/web-0", "nodes": ["a", "b"], "do": do})
    app = create_app(backend, Settings(), Metrics(SystemClock(), "1"))
    app.test_client().post("/scheduler/filter", data=body, headers={"Content-Type": "application/json", **headers})
    app.lifecycle.stop()


def logged(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_call_joins_the_trace_of_its_caller(lines: io.StringIO) -> None:
    spans, exporter = spans_in_memory()
    ask(spans, {"traceparent": TRACEPARENT})
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind, span.parent and format_span_id(span.parent.span_id)) == (
        "filter", SpanKind.SERVER, PARENT,
    )  # fmt: skip
    assert format_trace_id(span.context.trace_id) == TRACE
    assert logged(lines)[0]["trace_id"] == TRACE
    assert span.attributes is not None
    assert dict(span.attributes).items() >= {"extender.pod": "shop/web-0", "extender.nodes_in": 2}.items()


def test_a_span_lasts_as_long_as_its_call_and_says_that_it_failed() -> None:
    spans, exporter = spans_in_memory()
    ask(spans, {}, do="refuse")
    (span,) = exporter.get_finished_spans()
    assert (span.parent, span.status.status_code, span.status.description) == (None, StatusCode.ERROR, "no")
    assert (span.end_time or 0) - (span.start_time or 0) == pytest.approx(
        float(str((span.attributes or {})["extender.ms"])) * 1e6, abs=2000
    )


@pytest.mark.parametrize("level", ["info", "error"])
def test_an_attempt_of_the_loop_is_a_span_whatever_is_logged(level: str) -> None:
    stream = io.StringIO()
    log.configure("json", level, stream)
    spans, exporter = spans_in_memory()
    pod = msgspec.convert(make_pod("p").uid("u").scheduler("mine").obj(), Pod)
    SchedulerMetrics(ManualClock(), "1", spans).attempted(Attempt(pod, "scheduled", 0.5, 1, "", "n1"))
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind, (span.end_time or 0) - (span.start_time or 0)) == (
        "schedule", SpanKind.INTERNAL, 500_000_000,
    )  # fmt: skip
    assert dict(span.attributes or {}).items() >= {"k8s.pod.uid": "u", "k8s.node.name": "n1"}.items()
    ids = [line["trace_id"] for line in logged(stream)]
    assert ids == ([format_trace_id(span.context.trace_id)] if level == "info" else [])


def test_without_spans_a_line_has_the_callers_trace_id_or_a_new_one(lines: io.StringIO) -> None:
    traces = Traces()
    for headers in ({"traceparent": TRACEPARENT}, {}, {"traceparent": "none"}, {"traceparent": f"00-{'0' * 32}-1-01"}):
        ask(traces, headers)
    joined, *others = (str(line["trace_id"]) for line in logged(lines))
    assert joined == TRACE
    assert len({*others}) == 3
    assert all(int(each, 16) and len(each) == 32 for each in others)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_asks_for_spans(environ: dict[str, str], wanted: bool) -> None:
    assert spans_wanted(environ) is wanted


def test_the_sdk_is_imported_only_if_spans_are_sent() -> None:
    code = "import sys, extender.app.serve, extender.app.schedule, extender.web.telemetry.tracing as t\n"
    code += "t.traces_of({}); print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_exporter_is_logged_and_no_spans_are_sent(lines: io.StringIO) -> None:
    traces = traces_of({"OTEL_TRACES_EXPORTER": "carrier-pigeon"})
    assert not traces.sends_spans
    assert "reason='no exporter carrier-pigeon is installed'" in lines.getvalue()


class Collector(HTTPServer):
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        super().__init__(("127.0.0.1", 0), _Received)


class _Received(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(ExportTraceServiceRequest.FromString(data))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def test_spans_reach_a_collector_before_the_end(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    for name, value in {**environ, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}.items():
        monkeypatch.setenv(name, value)
    ask(traces_of(environ), {"traceparent": TRACEPARENT})
    (resource,) = (each for received in collector.received for each in received.resource_spans)
    assert "extender" in {
        each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
    }
    (span,) = (span for scope in resource.scope_spans for span in scope.spans)
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("filter", TRACE, PARENT)
