"""Builds the Flask application with verbs, health, metrics and pages. It keeps no global state."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException

from extender.config.settings import Settings, host_and_port, labels_of
from extender.verbs.verb import CallObserver, Verb
from extender.web.access import AccessRules
from extender.web.answers import Answer, Headers, Page, answer_headers, error_answer
from extender.web.calls import (
    Call,
    Calls,
    Exemptions,
    Routes,
    VerbHandler,
    WaitingFor,
    check_media_type,
    report,
)
from extender.web.environ import ADMITTED, WsgiConnection, environ_of
from extender.web.pages import PageServer, PrivatePages, probe_pages
from extender.web.telemetry.batched_notifier import BatchedNotifier
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.refusals import refuse
from extender.web.telemetry.tracing import Traces
from extender.web.tls import ReloadingContext, server_context
from extender.web.worker.application import Handler, Lifecycle
from extender.web.worker.request_parser import Head, Limits, RequestRefused

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backend:
    """The verbs that the web application serves, and the functions of the process behind them.

    Attributes:
        waiting_for: called for every call of a verb; returns check -> the reason why the process cannot decide yet, for
            example {"cache": "waiting for pods, nodes"}; {"cache": None} if it can decide.
        start: starts the process's threads; runs in the worker process, as does `stop`.
        private: pages that only this machine and clients with a certificate may use.
        compare: compares the cache with the API server. Called on SIGUSR2.
        hand_over: hands over the lease. Called on SIGTERM, while calls are still answered.
        revive: restarts threads that have ended; returns their names.
        unready: called for /readyz in place of `waiting_for`, because a standby may be ready although it cannot decide.
        reload: reads the policy again. Called on SIGHUP.
        observers: receive each call.
    """

    verbs: Sequence[Verb[Any, Any]]
    waiting_for: WaitingFor
    start: Callable[[], None]
    stop: Callable[[], None]
    private: PrivatePages = PrivatePages()  # noqa: RUF009  frozen
    compare: Callable[[], None] = lambda: None
    hand_over: Callable[[], None] = lambda: None
    revive: Callable[[], Sequence[str]] = list
    unready: WaitingFor | None = None
    reload: Callable[[], None] = lambda: None
    observers: Sequence[CallObserver] = ()


class ExtenderApp(Flask):
    """A Flask application with the functions that a server calls to start, drain and stop it."""

    lifecycle: Lifecycle


def create_app(backend: Backend, settings: Settings, metrics: Metrics) -> ExtenderApp:
    """Returns the application that serves `backend`'s verbs under `settings.prefix`."""
    app = ExtenderApp("extender", static_folder=None)
    traces = Traces()
    notifier = BatchedNotifier[Call](lambda calls: report(calls, metrics, traces))
    access = AccessRules(settings.client_ca is not None, frozenset(settings.client_names), settings.insecure_bind)
    calls = Calls(backend.waiting_for, notifier.note, settings.before_sync, _exemptions(settings), backend.observers)
    handlers = {path: partial(calls.answer, verb) for path, verb in verb_paths(backend.verbs, settings).items()}
    routes = Routes(handlers, access, partial(_dispatch, app))
    pages = probe_pages(metrics, backend.revive, partial(_unready, app, backend), notifier.catch_up)
    server = _page_server(pages, settings)
    app.lifecycle = _lifecycle(backend, routes, notifier, settings, metrics, server)
    for path, handler in handlers.items():
        view = partial(_post, partial(_traced, handler), settings.body_limit)
        app.add_url_rule(path, path, view, methods=["POST"], provide_automatic_options=False)
    for path, page in {**pages, **backend.private.pages}.items():
        app.add_url_rule(path, path, partial(_view, page))
    for path, page in backend.private.actions.items():
        app.add_url_rule(path, path, partial(_act, page), methods=["POST"], provide_automatic_options=False)
    for path, body_action in backend.private.body_actions.items():
        view = partial(_post, body_action, settings.body_limit)
        app.add_url_rule(path, path, view, methods=["POST"], provide_automatic_options=False)
    app.before_request(partial(_before, app.lifecycle, access))
    app.register_error_handler(Exception, partial(_error, metrics))
    return app


def verb_paths(verbs: Sequence[Verb[Any, Any]], settings: Settings) -> Mapping[str, Verb[Any, Any]]:
    """Returns URL path -> verb, for example "/scheduler/filter". The settings define the prefix."""
    prefix = "/" + settings.prefix.strip("/")
    return {f"{prefix.rstrip('/')}/{verb.name}": verb for verb in verbs}


def _lifecycle(
    backend: Backend,
    routes: Routes,
    notifier: BatchedNotifier[Call],
    settings: Settings,
    metrics: Metrics,
    server: PageServer | None,
) -> Lifecycle:
    def start() -> None:
        if server:
            server.start()
        backend.start()  # started first, because it limits how many malloc arenas the later threads may use
        notifier.start()

    def stop() -> None:
        notifier.stop()
        backend.stop()
        if server:
            server.stop()

    limits = Limits(
        body_bytes=settings.body_limit,
        idle_seconds=settings.keepalive_seconds,
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
    )
    return Lifecycle(
        routes.admit, partial(_refused, metrics), limits, settings.drain_seconds, start, stop, backend.compare,
        backend.hand_over, backend.reload,
    )  # fmt: skip


def _exemptions(settings: Settings) -> Exemptions:
    return Exemptions(
        namespaces=frozenset(settings.exempt_namespaces),
        own_namespace=settings.own_namespace,
        own_name=settings.own_name,
        own_labels=labels_of(settings.own_labels),
    )


def _dispatch(app: ExtenderApp, head: Head, connected: socket.socket, body: bytes) -> Answer:
    """Returns Flask's answer to a request that the worker has read."""
    with app.request_context(environ_of(head, connected, body)):
        response = app.full_dispatch_request()
        headers = [field for field in response.headers if field[0] not in ("Content-Type", "Content-Length")]
        return Answer(response.status_code, response.get_data(), response.content_type or "", tuple(headers))


def _before(lifecycle: Lifecycle, access: AccessRules) -> None:
    """Runs before each Flask view: starts the application and checks the caller.

    Our own worker has done both before. Under any other WSGI server the watches start here, at the first request,
    which is usually a probe.
    """
    if not lifecycle.started:
        lifecycle.start()
    if ADMITTED not in request.environ:
        fields, connection = request.headers, WsgiConnection(request.environ)
        access.check(request.method, request.path, fields.get("Host", ""), fields.get("Origin", ""), connection)


def _traced(handler: VerbHandler, body: bytes) -> Answer:
    return handler(body, traceparent=request.headers.get("traceparent", ""))


def _post(handler: Handler, limit_bytes: int) -> Response:
    """Reads the request's body, at most `limit_bytes`, and returns the handler's answer to it."""
    check_media_type(request.content_type or "", request.content_encoding or "")
    environ, length = request.environ, request.content_length
    # the body's length is unknown, so reading it could wait for ever
    if length is None and not environ.get("wsgi.input_terminated"):
        return _response(handler(b"")) if "HTTP_TRANSFER_ENCODING" not in environ else abort(411)
    if (length or 0) > limit_bytes:
        abort(413, f"the body has {length} bytes, the limit is {limit_bytes}")
    body = environ["wsgi.input"].read(limit_bytes + 1 if length is None else length)
    if len(body) > limit_bytes:
        abort(413, f"the body is larger than the limit of {limit_bytes} bytes")
    if len(body) < (length or 0):
        abort(400, "the body ended early")
    return _response(handler(body))


def _unready(app: ExtenderApp, backend: Backend) -> Mapping[str, str | None]:
    draining = "shutting down" if app.lifecycle.draining else None
    return {**(backend.unready or backend.waiting_for)(), "shutdown": draining}


def _page_server(pages: Mapping[str, Page], settings: Settings) -> PageServer | None:
    """Returns a server for health and metrics if the settings give them a separate address. Raises OSError."""
    if not settings.metrics_bind:
        return None
    host, port = host_and_port(settings.metrics_bind)
    context: Callable[[], ssl.SSLContext] | None = None
    if settings.metrics_client_ca:
        certificate, key, ca = str(settings.tls_cert), str(settings.tls_key), str(settings.metrics_client_ca)
        context = ReloadingContext((certificate, key, ca), lambda: server_context(certificate, key, ca)).current
    return PageServer(host, port, pages, tls_context=context, any_host=settings.insecure_bind)


def _view(page: Page) -> Response:
    answer = page(request.args.to_dict(flat=False), request.headers.get("Accept", ""))
    return _response(answer)


def _act(action: Page) -> Response:
    if request.content_type:  # refuses an HTML form that another site makes a browser send
        check_media_type(request.content_type, "")
    return _view(action)


def _error(metrics: Metrics, error: Exception) -> Response:
    client, line = request.remote_addr or "", f"{request.method} {request.path}"
    if isinstance(error, HTTPException) and error.code is not None:
        headers = tuple((name, value) for name, value in error.get_headers() if name in ("Allow", "Location"))
        return _response(_refused(metrics, error.code, client, line, _message(error), headers))
    if isinstance(error, RequestRefused):
        return _response(_refused(metrics, error.status, client, line, error.message))
    _log.exception("request failed request=%r", line)
    metrics.rejected(500)
    return _response(error_answer(500, "internal error: the extender's log has the cause"))


def _refused(metrics: Metrics, status: int, client: str, line: str, reason: str, headers: Headers = ()) -> Answer:
    metrics.rejected(status)
    return refuse(status, client, line, reason, headers)


def _message(error: HTTPException) -> str:
    if error.code == 404:
        return f"nothing is served at {request.path}"
    if error.code == 405:
        return f"{request.path} does not take {request.method}"
    return error.description or error.name


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer_headers(answer))
