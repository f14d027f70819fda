"""Gives each call and attempt a trace id for the log. If OpenTelemetry is configured, also sends each as a span.

The thread that writes the log creates the spans, after a call has ended, so that no answer waits for them. The SDK of
OpenTelemetry is imported only if OTEL_TRACES_EXPORTER or an endpoint is set in the environment.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from importlib.metadata import entry_points
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from extender.runtime.product_version import product_version

if TYPE_CHECKING:  # an optional dependency, imported only if spans are sent
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = logging.getLogger(__name__)
_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_STOP_SECONDS = 2.0  # how long the process waits at its end until the last spans are sent
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NAMES = {"uid": "k8s.pod.uid", "node": "k8s.node.name"}  # by OpenTelemetry's conventions
_FAILED = ("error", "failed", "unready", "malformed")


class Work(NamedTuple):
    """A finished call of a verb, or a finished attempt to schedule a pod.

    Attributes:
        name: the name of the span.
        fields: the fields of the log line, without the trace id.
        ended_at: when the work ended, in seconds since the epoch.
        traceparent: the caller's `traceparent` header (W3C Trace Context); ignored if malformed.
    """

    name: str
    fields: Mapping[str, object]
    ended_at: float
    seconds: float
    traceparent: str = ""


class Traces:
    """Gives each call and attempt a trace id: the caller's, or a new one.

    Attributes:
        sends_spans: True if each call and attempt is also sent as a span.
    """

    sends_spans = False

    def __init__(self) -> None:
        self._process = os.urandom(8).hex()
        self._count = count(1)

    def trace(self, work: Work) -> tuple[float, dict[str, object]]:
        """Gives the work a trace id. Returns when the work ended, and the fields of its log line with the id."""
        return work.ended_at, {**work.fields, "trace_id": self._trace_id(work)}

    def _trace_id(self, work: Work) -> str:
        caller = _TRACEPARENT.match(work.traceparent)
        return caller[1] if caller else f"{self._process}{next(self._count):016x}"

    def stop(self) -> None:
        """Sends the remaining spans."""


class Spans(Traces):
    """Traces that are also sent as spans, by a provider of the OpenTelemetry SDK."""

    sends_spans = True

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("extender", product_version())
        self._callers = TraceContextTextMapPropagator()

    def _trace_id(self, work: Work) -> str:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode, format_trace_id

        caller = self._callers.extract({"traceparent": work.traceparent}, Context())
        kind = SpanKind.INTERNAL if "attempt" in work.fields else SpanKind.SERVER
        began_at, attributes = _ns(work.ended_at - work.seconds), _attributes(work.fields)
        span = self._tracer.start_span(work.name, caller, kind, attributes, start_time=began_at)
        if work.fields.get("result") in _FAILED:
            span.set_status(Status(StatusCode.ERROR, str(work.fields.get("error", ""))))
        span.end(_ns(work.ended_at))
        return format_trace_id(span.get_span_context().trace_id)

    def stop(self) -> None:
        """Sends the remaining spans, and waits at most `_STOP_SECONDS` for the collector."""
        thread = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        thread.start()
        thread.join(_STOP_SECONDS)


def spans_wanted(environ: Mapping[str, str]) -> bool:
    named = environ.get(_EXPORTER) or any(environ.get(name) for name in _ENDPOINTS)
    return bool(named) and named != "none" and environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def traces_of(environ: Mapping[str, str]) -> Traces:
    """Returns `Spans` if the environment configures OpenTelemetry, else `Traces`, which sends nothing.

    If the packages of OpenTelemetry are missing, it logs an error and returns `Traces`.
    """
    if not spans_wanted(environ):
        return Traces()
    try:
        return Spans(_provider(environ))
    except Exception as error:  # the SDK may raise any exception, which must not stop the process
        _log.error("tracing switched off; it needs the packages of podseat[otel] reason=%r", str(error))
        return Traces()


def _provider(environ: Mapping[str, str]) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": "extender"})
    # The provider does not stop itself at exit, because `stop` shuts it down after a shorter wait.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(environ)))
    return provider


def _exporter(environ: Mapping[str, str]) -> SpanExporter:
    """Returns the installed exporter that the environment names. Raises LookupError."""
    name = environ.get(_EXPORTER) or "otlp"
    if name == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    exporters = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not exporters:
        raise LookupError(f"no exporter {name} is installed")
    exporter: SpanExporter = next(iter(exporters)).load()()
    return exporter


def _attributes(fields: Mapping[str, object]) -> dict[str, str | int | float]:
    return {
        _NAMES.get(name, f"extender.{name}"): value
        for name, value in fields.items()
        if isinstance(value, str | int | float)
    }


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
